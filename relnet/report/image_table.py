"""Runs on images: accuracy on images held out, and speed."""

from collections.abc import Sequence

from relnet.report.cells import Contents, formatted, seconds_per_step, shown, wall_time
from relnet.report.reading import Run


def image_contents(names: Sequence[str], runs: Sequence[Run]) -> Contents:
    """The table of runs on images; below it what the figures are."""
    titles = [
        "name",
        "parameters",
        "images\ntrained on",
        "test\naccuracy %",
        "test\nloss",
        "images/\ns",
        "s/\nstep",
        "wall\ntime",
    ]
    lines, notes = [], []
    for name, run in zip(names, runs, strict=True):
        row = run.images[-1] if run.images else {}
        accuracy = row.get("test_accuracy", run.result.get("test_accuracy"))
        seconds, batch = seconds_per_step(run), (run.config.get("train") or {}).get("batch_size")
        lines.append(
            [
                name,
                shown(run.result.get("num_parameters")),
                shown(None if batch is None else run.steps * batch),
                formatted(None if accuracy is None else 100 * accuracy, ".2f"),
                formatted(row.get("test_loss", run.result.get("test_loss")), ".4f"),
                shown(round(batch / seconds) if batch and seconds else None),
                formatted(seconds, ".3g"),
                wall_time(run),
            ]
        )
        if not run.result:
            notes.append(f"{name}: no result yet, {run.steps:,} updates in the log.")
    counts = sorted({row["images"] for run in runs for row in run.images})
    asked = f" ({', '.join(f'{count:,}' for count in counts)})" if counts else ""
    first = f"test: all images held out{asked}, after the last update; loss in nats; images/s: in training; parameters without embeddings."
    return Contents(titles, lines, [first, *notes])
