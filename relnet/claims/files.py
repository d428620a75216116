"""The ledger's second table: which files there are, the commands that made them, and what lines that no claim is about say."""

import re
from collections.abc import Sequence

from relnet.claims.lines import CPU_BATCHES, Line, Results
from relnet.report.reading import FORMAT

# What one cannot tell from the lines themselves: the command, where they do not name it, and what they are about.
FILES = {
    "bench.jsonl": ("make bench", "speed of the ops beside attention"),
    "curvature-cifar-hessian.jsonl": (
        "python bench/curvature_robustness.py FOLDER --operator hessian",
        "accuracy on CIFAR-10 under attack by penalty ([curvature.md](curvature.md))",
    ),
    "curvature-cifar-jacobian.jsonl": (
        "python bench/curvature_robustness.py FOLDER --operator jacobian",
        "accuracy on CIFAR-10 under attack by penalty ([curvature.md](curvature.md))",
    ),
    "curvature-cost.jsonl": (
        "python bench/curvature_cost.py --json results/curvature-cost.jsonl",
        "seconds a step of each curvature penalty as multiples of a plain one, memory over 200 steps",
    ),
    "curvature-error.jsonl": (
        "python bench/curvature.py --json results/curvature-error.jsonl",
        "error of spectral norms against products spent ([curvature.md](curvature.md))",
    ),
    "curvature-digits.jsonl": (
        "python bench/curvature_robustness.py digits --json results/curvature-digits.jsonl",
        "accuracy under attack by penalty ([curvature.md](curvature.md))",
    ),
    "curvature-scale.jsonl": (
        "python bench/curvature_scale.py --json results/curvature-scale.jsonl",
        "spectral norms of matrices that are scaled down ([curvature.md](curvature.md))",
    ),
    "curvature-structure.jsonl": (
        "python bench/curvature_structure.py --json results/curvature-structure.jsonl",
        "symmetry and diagonality with and without a penalty",
    ),
    "exam.jsonl": (
        "python bench/exam_claims.py RUNS --json results/exam.jsonl",
        "copying and lookup: answers by length, free-running and teacher-forced",
    ),
    "exam-annealed.jsonl": (
        "python bench/exam_claims.py RUNS --json results/exam-annealed.jsonl --anneal",
        "the same at shorter lengths, the learning rate falling to 0",
    ),
    "exactness.jsonl": (
        "python bench/exactness.py --json results/exactness.jsonl",
        "the linear form and the stability trick against their definitions",
    ),
    "interpolation.jsonl": (
        "python bench/interpolation.py RUN",
        "milliseconds and error of a backend by interpolation, milliseconds of `eager` and `blocked` beside it",
    ),
    "long-copying.jsonl": (
        "relnet train long-copying",
        "training of CausalRNs of two blocks that copy ten times their trained length ([exam.md](exam.md))",
    ),
    "length-ideas.jsonl": (
        "python bench/length_ideas.py RUNS --json results/length-ideas.jsonl",
        "what helps a CausalRN to copy beyond its length ([exam.md](exam.md))",
    ),
    "retrieval.jsonl": (
        "relnet inspect RUN --retrieval 64",
        "whether a copying model's strongest relation is the letter to be said",
    ),
    "theory.jsonl": (
        "relnet theory",
        "hand-set models: errors, ablations, and what states can hold ([exam.md](exam.md))",
    ),
    "theory-training.jsonl": (
        "python bench/theory_training.py",
        "training from weights set by hand and from random ones ([docs/theory.md](../docs/theory.md))",
    ),
}


def files_table(results: Results) -> str:
    """Return a row a file: its name and figure, the commands that made it, its lines, what it holds."""
    rows = [("file", "command", "lines", "what it holds")]
    for name, lines in results.files.items():
        command, about = FILES.get(name, ("", ""))
        told = list(dict.fromkeys(line["command"] for line in lines if line.get("command")))
        commands = ", ".join(f"`{one}`" for one in told or ([command] if command else []))
        figure = name.removesuffix(".jsonl") + ".png"
        links = f"[{name}]({name})" + (f", [figure]({figure})" if figure in results.figures else "")
        rows.append(
            (
                links,
                commands,
                f"{len(lines):,}",
                "; ".join(filter(None, (about, _runs(lines), _speeds(lines), _found(lines)))),
            )
        )
    return markdown(rows)


def _runs(lines: Sequence[Line]) -> str:
    """How the runs among the lines ended: updates by task, length, rate and model, bits per byte, images told right."""
    copied: dict[tuple[str, int, float, str], dict[str, list[Line]]] = {}
    bits, right = [], []
    for line in lines:
        if line.get("format") != FORMAT or "config" not in line or not line.get("result"):
            continue
        result, task = line["result"], line["config"].get("task") or {}
        if task.get("_type") == "Text":
            # None where no text was held out to validate.
            if (of_run := result["bits_per_byte"]) is not None:
                bits.append(f"{line['name']} {of_run:.3f}")
        elif line.get("images"):
            right.append(f"{line['name']} {100 * line['images'][-1]['test_accuracy']:.1f} %")
        elif task.get("length"):
            # Without that target nothing was counted.
            train = line["config"]["train"]
            if train.get("stop_accuracy") != 0.99:
                continue
            # Copying goes without saying, and so do a CPU's batches.
            kind = re.sub(r"\B([A-Z])", r" \1", task.get("_type", "")).lower()
            kind = "" if kind == "copying" else f"{kind}, "
            strings, precision = batches = (train["batch_size"], train["precision"])
            under = f", batches of {strings} in {precision}" if batches != CPU_BATCHES else ""
            of_rate = copied.setdefault((kind, task["length"], train["lr"], under), {})
            of_rate.setdefault(line["name"], []).append(result)
    parts = [
        f"updates to 99 %, {kind}{length} letters, rate {lr:g}{under}: "
        + ", ".join(f"{name} {_updates(runs)}" for name, runs in models.items())
        for (kind, length, lr, under), models in sorted(copied.items())
    ]
    parts += [
        f"{what}: {', '.join(shown)}" for what, shown in (("bits per byte", bits), ("images right", right)) if shown
    ]
    return "; ".join(parts)


def _updates(results: Sequence[Line]) -> str:
    """The updates of each run to 99 %, and the seconds that they took; of one that never came there, all of them."""
    counts, seconds = [], []
    for result in results:
        reached = result["steps_to_accuracy"]
        counts.append(f">{result['steps']:,}" if reached is None else f"{reached:,}")
        if (pace := result.get("seconds_per_step")) is not None:
            seconds.append(f"{pace * (reached or result['steps']):,.0f}")
    return ", ".join(counts) + (f" (in {', '.join(seconds)} s)" if seconds else "")


def _speeds(lines: Sequence[Line]) -> str:
    """Times of the relation op beside attention's, forward and backward, by the last line of each shape and instruction set."""
    shown = {}
    for line in lines:
        times = line.get("medians") or {}
        if (
            line.get("case") == "relation_mean"
            and line.get("activation") == "exp"
            and times.get("cpu")
            and times.get("attention")
        ):
            ours, attention = times["cpu"]["both"], times["attention"]["both"]
            case = f"{' x '.join(map(str, line['shape']))}, {line['isa']}, {line['threads']} threads"
            shown[case] = f"{case}: {ours:.3g} ms, {ours / attention:.2f} of attention's"
    return "; ".join(shown.values())


def _found(lines: Sequence[Line]) -> str:
    """Share of steps at which a model's strongest relation is the right place, by what strength is taken for."""
    return "; ".join(
        f"{line['run']}, block {line['block'] + 1}, by {line['quantity']}: {100 * line['share']:.2f} % of {line['steps']:,} steps"
        for line in lines
        if {"quantity", "share", "block", "steps"} <= line.keys()
    )


def markdown(rows: Sequence[Sequence[str]]) -> str:
    """Return a table, its first row the titles."""
    lines = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * len(rows[0]), *lines[1:]])
