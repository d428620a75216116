"""Cui 2024 on texts and images: models that converge alike on a data set."""

from collections.abc import Iterable, Sequence
from statistics import fmean

from relnet.claims.claim import Finding, claim, graded, untested
from relnet.claims.lines import Results, Trained, at_seeds, files_of

# Bytes of WikiText-103, images of the five parts of CIFAR-5m that the paper trains on.
TEXT_EPOCH, IMAGE_EPOCH = 522_243_436, 5_000_000


def _peers(runs: Iterable[Trained], names: Sequence[str]) -> list[dict[str, list[Trained]]]:
    """Runs by name that differ in their mixer and seed only, at the seeds that all names share; those that saw most come last."""
    groups: dict[str, dict[str, dict[int, Trained]]] = {}
    for run in runs:
        alike = {
            **run.task,
            **run.told,
            "seed": None,
            "shape": (run.model["width"], run.model["depth"]),
            "seen": _seen(run),
        }
        of_name = groups.setdefault(repr(sorted(alike.items())), {}).setdefault(run.name, {})
        of_name[run.told["seed"]] = run
    found = []
    for by_name in groups.values():
        seeds = set.intersection(*(set(by_name.get(name, ())) for name in names))
        if seeds:
            found.append({name: [by_name[name][seed] for seed in sorted(seeds)] for name in names})
    return sorted(found, key=lambda group: _seen(group[names[0]][0]))


def _all(group: dict[str, list[Trained]]) -> list[Trained]:
    return [run for runs in group.values() for run in runs]


def _seen(run: Trained) -> int:
    """Tokens read, or images seen."""
    return run.result["steps"] * run.told["batch_size"] * run.task.get("context", 1)


@claim(
    "C12",
    "Linear CausalRN converges like Transformer and Linear Transformer on WikiText-103 characters, and spells well",
    "figure 6",
)
def c12(results: Results) -> Finding:
    """Of the runs of all three on one text, alike in context, tokenizer, size, budget and all but the mixer, those that read most.
    Holds if Linear CausalRN's bits per byte, mean over seeds, are at most 5 % above the better Transformer's after one epoch of
    WikiText-103's bytes; in part if so on less or another text. How it spells is not judged."""
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
        f"{at_seeds(_all(runs))}"
    )
    came = "bits per byte of the whole validation text: " + ", ".join(
        f"{name} {value:.3f}" for name, value in bits.items()
    )
    return Finding(graded([alike], whole=_read_wikitext(first)), ran, came, files_of(_all(runs)))


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
    by_data = {_data(runs["linear-birn"][0]): runs for runs in groups}
    if not by_data:
        return untested()
    parts, came, used = [], [], []
    for data, runs in sorted(by_data.items()):
        right = {
            name: fmean(run.line["images"][-1]["test_accuracy"] for run in of_name) for name, of_name in runs.items()
        }
        parts.append(right["linear-birn"] >= max(right["transformer"], right["linear-transformer"]) - 0.01)
        came.append(
            f"{data}, {_seen(runs['linear-birn'][0]):,} images seen: "
            + ", ".join(f"{name} {100 * value:.1f} %" for name, value in right.items())
        )
        used += _all(runs)
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
