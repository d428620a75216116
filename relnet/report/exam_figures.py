"""The exam's figures, from its lines: accuracy against length, samples against length, accuracy against state bytes."""

from collections.abc import Callable, Sequence
from math import log2
from pathlib import Path
from statistics import fmean
from typing import Any

from relnet.report.ceilings import share_without_repeat
from relnet.report.figures import COLOURS, LINES, literal, png, wrapped
from relnet.report.files import write_new
from relnet.report.verdict import FREE, SITTING, Line, best, elsewhere, first, groups, lost, share

NGRAMS = (3, 4, 5)


def exam_figures(lines: Sequence[Line], folder: str | Path, note: str = "") -> list[Path]:
    """Draw what the lines have data for and return the files: exam-lengths.png, exam-samples.png, exam-states.png in `folder`.

    Of several learning rates the best is drawn. Free-running answers, whole strings; a curve says where seeds are missing in it. An
    existing file is never overwritten.
    note: a sentence to stand below.
    ValueError without a single result.
    """
    free = [line for line in best(lines) if line["mode"] == FREE]
    # A seed that diverged stays among the others.
    chosen = [row for rows in groups(free, *SITTING).values() if any(row["items"] for row in rows) for row in rows]
    if not chosen:
        raise ValueError("no results of an exam to draw")
    folder = Path(folder)
    made = [write_new(folder / "exam-lengths.png", _figure(chosen, _lengths, wrapped(note)))]
    if any(line.get("samples") is not None for line in chosen):
        made.append(write_new(folder / "exam-samples.png", _figure(chosen, _samples, wrapped(note))))
    if any(line.get("state_bytes") for line in chosen):
        made.append(write_new(folder / "exam-states.png", _figure(chosen, _states, wrapped(note))))
    return made


def _figure(
    lines: Sequence[Line], draw: Callable[[Any, Sequence[Line], dict[str, dict[str, Any]]], None], note: Sequence[str]
) -> bytes:
    """One row of axes a task, one style a candidate."""
    # Here and not above: importing it searches the machine's fonts and writes a cache.
    from matplotlib.figure import Figure

    tasks = groups(lines, "task")
    styles = {
        subject: {
            "color": COLOURS[n % len(COLOURS)],
            "linestyle": LINES[n % len(LINES)],
            "linewidth": 1.8,
            "marker": "o",
        }
        for n, (subject,) in enumerate(groups(lines, "subject"))
    }
    figure = Figure(figsize=(10, 1 + 3.4 * len(tasks)), layout="constrained", facecolor="white")
    for axes, ((task,), rows) in zip(figure.subplots(len(tasks), squeeze=False)[:, 0], tasks.items(), strict=True):
        draw(axes, rows, styles)
        axes.set_title(literal(str(task)), fontsize=12)
        axes.grid(color="#DDDDDD", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        # Beside the axes: many candidates leave no room between their points.
        axes.legend(frameon=False, fontsize=9, handlelength=3.6, loc="center left", bbox_to_anchor=(1, 0.5))
    if note:
        figure.supxlabel(literal("\n".join(note)), fontsize=9, color="#555555")
    return png(figure)


def _label(sitting: tuple[Any, ...], rows: Sequence[Line]) -> str:
    """What the legend says of a sitting's curve."""
    subject, task, trained, learned = sitting
    name = (
        subject if trained is None else f"{subject}, {f'{learned} ' if elsewhere(task, learned) else ''}up to {trained}"
    )
    return literal(", ".join(filter(None, [name, lost(rows)])))


def _lengths(axes: Any, lines: Sequence[Line], styles: dict[str, dict[str, Any]]) -> None:
    for sitting, rows in groups(lines, *SITTING).items():
        subject, _, trained, _ = sitting
        found = [(length, share(at)) for (length,), at in sorted(groups(rows, "length").items())]
        points = [(length, 100 * one[0], 100 * one[1], 100 * one[2]) for length, one in found if one]
        lengths, means, lows, highs = zip(*points, strict=True)
        label = _label(sitting, rows)
        (drawn,) = axes.plot(lengths, means, label=label, **{**styles[subject], "markersize": 4})
        axes.fill_between(lengths, lows, highs, color=drawn.get_color(), alpha=0.12, linewidth=0)
        if trained is not None:
            axes.axvline(trained, color=drawn.get_color(), linewidth=0.6, zorder=0)
    if str(lines[0]["task"]).startswith("copying"):
        longest = max(line["length"] for line in lines if line["items"])
        grid = sorted({max(1, round(longest * part / 24)) for part in range(1, 25)})
        for ngram, shade in zip(NGRAMS, ("#AAAAAA", "#777777", "#333333"), strict=True):
            clean = [100 * share_without_repeat(length, ngram, lines[0].get("alphabet") or 26) for length in grid]
            axes.plot(
                grid, clean, color=shade, linewidth=0.9, label=f"strings without a repeated {ngram}-gram (simulated)"
            )
    axes.set_xlabel("length")
    axes.set_ylabel("free-running, exact (%)")
    axes.set_ylim(-2, 104)


def _samples(axes: Any, lines: Sequence[Line], styles: dict[str, dict[str, Any]]) -> None:
    known = [line for line in lines if line.get("samples") is not None]
    candidates = groups(known, "subject", "task", "trained_task")
    places = sorted({line["train_length"] for line in known})
    # Those that ended together without it would hide one another.
    apart = 0.015 * ((places[-1] - places[0]) or places[0])
    for number, ((subject, task, learned), rows) in enumerate(candidates.items()):
        name = f"{subject}, {learned}" if elsewhere(task, learned) else subject
        points, missed = [], []
        for (trained,), at in sorted(groups(rows, "train_length").items()):
            found = [row["samples_to_99"] for row in at]
            if None in found:
                aside = apart * (number - (len(candidates) - 1) / 2)
                missed.append((trained + aside, max(row["samples"] for row in at)))
            else:
                points.append((trained, fmean(found)))
        if points:
            axes.plot(*zip(*points, strict=True), label=literal(name), **styles[subject])
        if missed:
            label = literal(f"{name}, 99 % not reached within")
            axes.plot(*zip(*missed, strict=True), "^", color=styles[subject]["color"], fillstyle="none", label=label)
    axes.set_xlabel("trained length")
    axes.set_ylabel("training rows seen until 99 %")
    axes.set_xticks(places)
    axes.set_yscale("log")


def _states(axes: Any, lines: Sequence[Line], styles: dict[str, dict[str, Any]]) -> None:
    for sitting, rows in groups(lines, *SITTING).items():
        subject = sitting[0]
        at = [
            (first(rows_at, "state_bytes"), share(rows_at), length)
            for (length,), rows_at in groups(rows, "length").items()
        ]
        points = sorted((size, 100 * found[0], length) for size, found, length in at if found and size)
        if not points:
            continue
        sizes, means, lengths = zip(*points, strict=True)
        label = _label(sitting, rows)
        axes.plot(sizes, means, label=label, **{**styles[subject], "linestyle": "none"})
        for size, mean, length in zip(sizes, means, lengths, strict=True):
            axes.annotate(str(length), (size, mean), (4, 3), textcoords="offset points", fontsize=7)
    if str(lines[0]["task"]).startswith("copying"):
        bits = log2(lines[0].get("alphabet") or 26)
        for length in sorted({line["length"] for line in lines if line["items"]}):
            # Fewer bits than this, and more than half of the strings of this length are copied wrong.
            axes.axvline((length * bits - 1) / 8, color="#999999", linewidth=0.7, zorder=0)
            axes.annotate(str(length), ((length * bits - 1) / 8, 52), fontsize=7, color="#777777", rotation=90)
        axes.plot([], [], color="#999999", linewidth=0.7, label="bound for a length L: (L log2(a) - 1) / 8 bytes")
    axes.set_xlabel("state after the prompt (bytes, measured); numbers are lengths")
    axes.set_ylabel("free-running, exact (%)")
    axes.set_xscale("log")
    axes.set_ylim(-2, 104)
