"""Learning curves of runs, as a PNG that is readable in print, on a light page and without telling colours apart."""

import io
import itertools
import textwrap
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from relnet.report.cells import encodable
from relnet.report.files import write_new
from relnet.report.reading import Run, labels

# Okabe and Ito's colours, which the colour-blind can tell apart; yellow, too faint on white, is left out.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LINES = ("-", "--", "-.", ":", (0, (6, 1.5, 1, 1.5, 1, 1.5)))


def learning_curves(runs: Sequence[Run], path: str | Path, note: str = "") -> Path:
    """Draw loss and accuracy of the runs against steps, and return the file that was written.

    Where all runs are on a text, its validation in bits per byte takes the place of the accuracy; where all are on images, loss
    and accuracy on images held out are drawn as points beside the lines of the training images.

    path: a file name ending in .png. An existing file is never overwritten: curves-2.png, curves-3.png, ... is chosen
        then. ValueError for another ending, and where no run has logged an update.
    note: a sentence to stand below.
    """
    path = check_png(path)
    drawn = [(label, run) for label, run in zip(labels(runs), runs, strict=True) if run.updates]
    if not drawn:
        raise ValueError(f"no updates to draw: {', '.join(str(run.folder) for run in runs) or 'no runs'}")
    return write_new(path, _draw(drawn, wrapped(note)))


def check_png(path: str | Path) -> Path:
    """Return the path; ValueError where it is not a PNG's."""
    path = Path(path)
    if path.suffix.lower() != ".png":
        raise ValueError(f"{path}: the figure is a PNG, give a name that ends in .png")
    return path


def wrapped(note: str) -> list[str]:
    """Lines of a sentence below a figure; a percentage is not broken."""
    return textwrap.wrap(note.replace(" %", "\N{NO-BREAK SPACE}%"), 110)


def _draw(runs: Sequence[tuple[str, Run]], note: Sequence[str]) -> bytes:
    # Here and not above: importing it searches the machine's fonts and writes a cache.
    from matplotlib.figure import Figure

    columns, rows = _legend_shape([label for label, _ in runs])
    figure = Figure(figsize=(8, 6.4 + 0.22 * rows + 0.2 * len(note)), layout="constrained", facecolor="white")
    loss, lower = figure.subplots(2, sharex=True)
    texts, images = all(run.learns_text for _, run in runs), all(run.learns_images for _, run in runs)
    handles = []
    for number, (_, run) in enumerate(runs):
        steps = [update["step"] for update in run.updates]
        style = {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": LINES[number % len(LINES)],
            "linewidth": 1.8,
            # A single update has no line to show.
            "marker": "o" if len(steps) == 1 else None,
        }
        handles += loss.plot(steps, [update.get("loss", float("nan")) for update in run.updates], **style)
        if texts:
            at = [update["step"] for update in run.validated]
            lower.plot(at, [update["bits_per_byte"] for update in run.validated], **{**style, "marker": "o"})
        else:
            window = [100 * update.get("window_accuracy", float("nan")) for update in run.updates]
            lower.plot(steps, window, **style)
        if images:
            # Training images come again, flipped and shifted; those held out do not.
            at, points = [update["step"] for update in run.validated], {**style, "linestyle": "none", "marker": "o"}
            loss.plot(at, [update["test_loss"] for update in run.validated], **points)
            lower.plot(at, [100 * update["test_accuracy"] for update in run.validated], **points)
    for threshold in sorted({run.stop_accuracy for _, run in runs if run.stop_accuracy is not None}):
        lower.axhline(100 * threshold, color="#555555", linewidth=0.8, zorder=0)
        text = f"{100 * threshold:.10g} %"
        lower.annotate(
            text,
            (0, 100 * threshold),
            (4, -3),
            va="top",
            textcoords="offset points",
            color="#555555",
            xycoords=lower.get_yaxis_transform(),
        )
    loss.set_ylabel("loss (nats; points: images held out)" if images else "loss (nats a token)", fontsize=11)
    loss.set_ylim(bottom=0)
    if texts:
        lower.set_ylabel("validation (bits a byte)", fontsize=11)
    else:
        lower.set_ylabel(f"accuracy (%),\nmean of the last 320 {'images' if images else 'strings'}", fontsize=11)
        lower.set_ylim(-2, 104)
    lower.set_xlabel("training step (updates)", fontsize=11)
    if note:
        figure.supxlabel(literal("\n".join(note)), fontsize=9, color="#555555")
    for axes in (loss, lower):
        axes.set_facecolor("white")
        axes.grid(color="#DDDDDD", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
    loss.set_title(literal(_title([run for _, run in runs])), fontsize=13)
    # handlelength: room for a whole period of the dashes.
    figure.legend(
        handles,
        [literal(label) for label, _ in runs],
        # Not below: there it and the note would be drawn over each other.
        loc="outside upper center",
        ncols=columns,
        frameon=False,
        fontsize=11,
        handlelength=3.6,
    )
    return png(figure)


def _legend_shape(names: Sequence[str]) -> tuple[int, int]:
    """Columns and rows of a legend that fits the figure's width, about 90 letters; a line sample takes 9."""
    for columns in range(len(names), 1, -1):
        # As matplotlib shares them out: the first columns have one more where the number does not divide.
        each, more = divmod(len(names), columns)
        starts = [column * each + min(column, more) for column in range(columns + 1)]
        widths = [9 + max(map(len, names[start:end])) for start, end in itertools.pairwise(starts)]
        if sum(widths) <= 90:
            return columns, starts[1]
    return 1, len(names)


def _title(runs: Sequence[Run]) -> str:
    tasks = {run.task for run in runs} - {""}
    return tasks.pop() if len(tasks) == 1 else "several tasks" if tasks else "learning curves"


def literal(text: str) -> str:
    """Text that matplotlib shows as it is: it reads $...$ as mathematics, and fails on what cannot be encoded."""
    return encodable(text).replace("$", r"\$")


def png(figure: Any) -> bytes:
    """Return a figure of matplotlib's as a PNG; a letter that its font lacks is drawn as an empty box."""
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        figure.savefig(file, format="png", dpi=150)
    return file.getvalue()
