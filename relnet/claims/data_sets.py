"""Cui 2024 on texts and images: models that converge alike on a data set."""

import json
from collections.abc import Iterable, Sequence
from statistics import fmean

from relnet.claims.claim import Finding, claim, graded, untested
from relnet.claims.lines import Results, Trained, all_of, at_seeds, files_of

# Bytes of WikiText-103, images of the five parts of CIFAR-5m that the paper trains on.
TEXT_EPOCH, IMAGE_EPOCH = 522_243_436, 5_000_000
# Settings that say how a run is kept, not what it learns, and what runs that are compared may differ in.
SAVING = ("checkpoint_every", "keep")
OWN = ("mixer", "mlp", "checkpointing")


def _peers(runs: Iterable[Trained], names: Sequence[str]) -> list[dict[str, list[Trained]]]:
    """Runs by name that differ in their mixer and seed only, at the seeds that all names share; those that saw most come last.

    A name that stands for several models at one seed has no run there: which of them is meant is not known.
    """
    groups: dict[str, dict[str, dict[int, list[Trained]]]] = {}
    for run in runs:
        of_name = groups.setdefault(_alike(run), {}).setdefault(run.name, {})
        of_name.setdefault(run.told["seed"], []).append(run)
    found = []
    for by_name in groups.values():
        clear = {name: {seed: of[0] for seed, of in by_name.get(name, {}).items() if len(of) == 1} for name in names}
        seeds = set.intersection(*map(set, clear.values()))
        if seeds:
            found.append({name: [clear[name][seed] for seed in sorted(seeds)] for name in names})
    return sorted(found, key=lambda group: _seen(group[names[0]][0]))


def _alike(run: Trained) -> str:
    """All that runs have to share to be compared: a setting that is not given is as good as none."""
    shared = {
        "task": run.task,
        "training": {key: value for key, value in run.told.items() if key not in (*SAVING, "seed")},
        "model": {key: value for key, value in run.model.items() if key not in OWN},
        "penalty": run.line["config"].get("penalty") or {},
    }
    given = {
        kind: {key: value for key, value in settings.items() if value is not None} for kind, settings in shared.items()
    }
    return json.dumps([given, _seen(run)], sort_keys=True)


def _seen(run: Trained) -> int:
    """Tokens read, or images seen."""
    return run.result["steps"] * run.told["batch_size"] * (run.task.get("context") or 1)


@claim(
    "C12",
    "Linear CausalRN converges like Transformer and Linear Transformer on WikiText-103 characters, and spells well",
    "figure 6",
)
def c12(results: Results) -> Finding:
    """Of the runs of all three on one text, alike in context, tokenizer, size, budget and all but the mixer, those that read most; a
    name that stands for two models is not compared. Holds if Linear CausalRN's bits per byte, mean over seeds, are at most 5 % above
    the better Transformer's after one epoch of WikiText-103's bytes; in part if so on less or another text. How it spells is not
    judged."""
    names = ("linear-causalrn", "transformer", "linear-transformer")
    groups = _peers(
        (run for run in results.runs if run.task.get("_type") == "Text" and run.result["bits_per_byte"]), names
    )
    if not groups:
        return untested()
    runs = groups[-1]
    bits = {name: fmean(run.result["bits_per_byte"] for run in of_name) for name, of_name in runs.items()}
    alike = bits["linear-causalrn"] <= 1.05 * min(bits["transformer"], bits["linear-transformer"])
    first = runs["linear-causalrn"][0]
    ran = (
        f"width {first.model['width']}, {first.model['depth']} blocks, {_seen(first):,} {first.task['tokenizer']} read, "
        f"{at_seeds(all_of(runs))}"
    )
    came = "bits per byte of the whole validation text: " + ", ".join(
        f"{name} {value:.3f}" for name, value in bits.items()
    )
    return Finding(graded([alike], whole=_read_wikitext(first)), ran, came, files_of(all_of(runs)))


def _read_wikitext(run: Trained) -> bool:
    """Whether it read all bytes of WikiText-103, but for what is left of the last batch."""
    corpus = all(data == "wikitext-103" or "wikitext-103-raw-v1:train" in data for data in run.task["data"])
    epoch = TEXT_EPOCH // (run.told["batch_size"] * run.task["context"])
    return corpus and run.task["tokenizer"] == "bytes" and run.result["steps"] >= epoch


@claim(
    "C13", "Linear BiRN converges like Transformer and Linear Transformer on CIFAR-5m, loss and accuracy", "figure 7"
)
def c13(results: Results) -> Finding:
    """Each set of images on which all three were run, alike in size, budget and all but the mixer, is a part, and of its runs those
    that saw most images count: it holds if Linear BiRN's accuracy on the images held out, mean over seeds, is at most 1 point below
    the better Transformer's. It holds as a whole only if one of them is CIFAR-5m, 5 million images of it seen. The loss is not
    judged."""
    names = ("linear-birn", "transformer", "linear-transformer")
    groups = _peers(
        (run for run in results.runs if run.task.get("_type") == "Images" and run.line.get("images")), names
    )
    # Files of one name may lie in folders of two sets.
    by_data = {tuple(runs["linear-birn"][0].task["data"]): runs for runs in groups}
    if not by_data:
        return untested()
    parts, came, used = [], [], []
    for _, runs in sorted(by_data.items()):
        right = {
            name: fmean(run.line["images"][-1]["test_accuracy"] for run in of_name) for name, of_name in runs.items()
        }
        parts.append(right["linear-birn"] >= max(right["transformer"], right["linear-transformer"]) - 0.01)
        came.append(
            f"{_data(runs['linear-birn'][0])}, {_seen(runs['linear-birn'][0]):,} images seen: "
            + ", ".join(f"{name} {100 * value:.1f} %" for name, value in right.items())
        )
        used += all_of(runs)
    shapes = dict.fromkeys(f"width {run.model['width']}, {run.model['depth']} blocks" for run in used)
    return Finding(
        graded(parts, whole=any(map(_saw_cifar5m, used))),
        f"{'; '.join(shapes)}, {at_seeds(used)}",
        "accuracy on images held out: " + "; ".join(came),
        files_of(used),
    )


def _data(run: Trained) -> str:
    return ", ".join(path.rstrip("/").rpartition("/")[2] for path in run.task["data"])


def _saw_cifar5m(run: Trained) -> bool:
    """Whether it is CIFAR-5m by its files' or their folder's names, and an epoch was seen."""
    paths = [path.lower().replace("-", "") for path in run.task["data"]]
    return all("cifar5m" in path for path in paths) and _seen(run) >= IMAGE_EPOCH
