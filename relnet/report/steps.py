"""Updates to the target against a setting of the runs: length or learning rate, one line a name, one mark a run."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal

from relnet.report.figures import COLOURS, LINES, check_png, literal, png, wrapped
from relnet.report.files import write_new
from relnet.report.reading import Run

Setting = Literal["length", "lr"]
AXES = {"length": "letters in a string", "lr": "learning rate"}


def setting(run: Run, name: Setting) -> float | None:
    """Return the length that a run was trained at, or its learning rate; None where its config names none."""
    part = run.config.get("task" if name == "length" else "train") or {}
    return part.get(name)


def steps_figure(runs: Sequence[Run], path: str | Path, against: Setting = "length", note: str = "") -> Path:
    """Draw updates to the target against a setting, both on logarithmic axes, and return the file that was written.

    A line joins the means over runs that differ in nothing else and reached it, with how many of how many where some did not; a hollow
    triangle is a run that ended without reaching it, at its last update. note: a sentence below. An existing file is never overwritten, as
    for `learning_curves`. ValueError for another ending than .png, and where no run is finished.
    """
    path = check_png(path)
    finished = [run for run in runs if run.result and setting(run, against) is not None]
    if not finished:
        raise ValueError(f"no finished run with a {against} to draw")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Here and not above: importing it searches the machine's fonts and writes a cache.
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter, NullLocator, StrMethodFormatter

    class Between(LogFormatter):
        """Which marks have room for a number, the base knows; but it writes 2000 beside 1,000."""

        def __call__(self, x: float, pos: int | None = None) -> str:
            return f"{x:,.0f}" if super().__call__(x, pos) else ""

    lines = wrapped(note)
    figure = Figure(figsize=(8, 5 + 0.2 * len(lines)), layout="constrained", facecolor="white")
    axes = figure.subplots()
    names = list(dict.fromkeys(run.name for run in finished))
    for number, name in enumerate(names):
        style = {"color": COLOURS[number % len(COLOURS)], "linestyle": LINES[number % len(LINES)], "linewidth": 1.8}
        reached: dict[float, list[int]] = {}
        for run in finished:
            at, steps = setting(run, against), run.result.get("steps_to_accuracy")
            if run.name != name or at is None:
                continue
            if steps is None:
                axes.plot(at, run.steps, "^", color=style["color"], fillstyle="none")
                continue
            axes.plot(at, steps, "o", color=style["color"], markersize=4)
            reached.setdefault(at, []).append(steps)
        axes.plot(sorted(reached), [fmean(reached[at]) for at in sorted(reached)], label=literal(name), **style)
        for at, steps in reached.items():
            many = sum(run.name == name and setting(run, against) == at for run in finished)
            if len(steps) < many:
                told = f"{len(steps)} of {many}"
                axes.annotate(
                    told, (at, fmean(steps)), (5, 5), textcoords="offset points", color=style["color"], fontsize=9
                )
    if any(run.result.get("steps_to_accuracy") is None for run in finished):
        axes.plot([], [], "^", color="#555555", fillstyle="none", label="ended without it")
    axes.set_xscale("log")
    axes.set_yscale("log")
    # 200, not 2 x 10^2: within a decade every mark has its number.
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.yaxis.set_minor_formatter(Between(minor_thresholds=(2, 0.5)))
    places = sorted({at for run in finished if (at := setting(run, against)) is not None})
    axes.set_xticks(places, [f"{at:g}" for at in places])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(AXES[against], fontsize=11)
    targets = {run.stop_accuracy for run in finished}
    shared = targets.pop() if len(targets) == 1 else None
    target = "the target" if shared is None else f"{100 * shared:.10g} %"
    axes.set_ylabel(f"training steps to {target}", fontsize=11)
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=11, handlelength=3.6)
    if lines:
        figure.supxlabel(literal("\n".join(lines)), fontsize=9, color="#555555")
    return write_new(path, png(figure))
