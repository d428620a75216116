"""Runs side by side: one table, as aligned text for a terminal and as markdown."""

import io
import re
import shutil
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from rich.box import Box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from relnet.report.cells import MISSING, Contents, encodable, formatted, seconds_per_step, shown, wall_time
from relnet.report.image_table import image_contents
from relnet.report.reading import Run, labels
from relnet.report.text_table import text_contents

# A rule below the titles and nothing else, in ASCII: what is redirected stays readable everywhere.
RULED = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


def table(runs: Sequence[Run], width: int | None = None) -> str:
    """The runs as aligned plain text, a line each (a line for each length where several were examined).

    width: columns of text, by default the terminal's, at least 80. ValueError without runs.
    """
    return "\n".join(aligned(contents, width) for contents in _tables(runs))


def aligned(contents: Contents, width: int | None = None) -> str:
    """A table as aligned plain text, its sentences below it; width as for `table`."""
    width = max(80, width or shutil.get_terminal_size((120, 24)).columns)
    columns = list(zip(contents.titles, *contents.lines, strict=True))
    names, *figures = (max(len(part) for cell in column for part in cell.split("\n")) for column in columns)
    gap = 2 if names + sum(figures) + 2 * len(figures) <= width else 1
    # Figures are shown whole in any case; what is left is the names', which are folded.
    names = min(names, max(10, width - sum(figures) - gap * len(figures)))
    drawn = Table(box=RULED, padding=(0, gap - 1, 0, 0), pad_edge=False, show_edge=False)
    drawn.add_column(Text(contents.titles[0]), overflow="fold", width=names)
    for title, figure in zip(contents.titles[1:], figures, strict=True):
        drawn.add_column(Text(title), justify="right", width=figure)
    for line in contents.lines:
        drawn.add_row(*map(Text, line))
    file = io.StringIO()
    Console(file=file, width=names + sum(figures) + gap * len(figures), color_system=None).print(drawn)
    notes = "".join(textwrap.fill(note, width, subsequent_indent="  ") + "\n" for note in contents.notes)
    return encodable("".join(line.rstrip() + "\n" for line in file.getvalue().splitlines()) + "\n" + notes)


def markdown(runs: Sequence[Run]) -> str:
    """The same table as markdown, with the sentences below it. ValueError without runs."""
    return "\n".join(map(_markdown, _tables(runs)))


def _markdown(contents: Contents) -> str:
    lines = [
        [one_line(title) for title in contents.titles],
        ["---", *["---:"] * (len(contents.titles) - 1)],
        *contents.lines,
    ]
    drawn = ["| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines]
    return encodable("\n".join([*drawn, "", *(f"- {note}" for note in contents.notes)]) + "\n")


def one_line(title: str) -> str:
    """A column's title without its line breaks."""
    return re.sub(r"(?<=[-/])\n", "", title).replace("\n", " ")


def _tables(runs: Sequence[Run]) -> list[Contents]:
    """One of the runs with an exam, one of those on a text, one of those on images: their figures are others."""
    if not runs:
        raise ValueError("no runs to show")
    named = list(zip(labels(runs), runs, strict=True))
    return [draw(*zip(*(named[place] for place in places), strict=True)) for draw, places in by_kind(runs)]


def by_kind(runs: Sequence[Run]) -> list[tuple[Callable[[Sequence[str], Sequence[Run]], Contents], list[int]]]:
    """The kinds of runs that are there, what draws the table of each, and the runs' places."""
    found: dict[Any, list[int]] = {exam_contents: [], text_contents: [], image_contents: []}
    for place, run in enumerate(runs):
        found[text_contents if run.learns_text else image_contents if run.learns_images else exam_contents].append(
            place
        )
    return [(draw, places) for draw, places in found.items() if places]


def exam_contents(names: Sequence[str], runs: Sequence[Run]) -> Contents:
    """The table of runs with an exam; below it what the figures are."""
    lengths = [sorted({row["length"] for row in run.exam if row["items"]}) or [None] for run in runs]
    several = len({length for run_lengths in lengths for length in run_lengths} - {None}) > 1
    threshold = _common([run.stop_accuracy for run in runs])
    titles = [
        "name",
        *(["length"] if several else []),
        "parameters",
        f"steps\nto\n{_percent(threshold)}" if threshold is not None else "steps\nto\ntarget",
        "stays\nfrom",
        "teacher-\nforced\nexact/\nletters %",
        "free-\nrunning\nexact/\nletters %",
        "stops\n%",
        "s/\nstep",
        "wall\ntime",
    ]
    lines = []
    for run, name, run_lengths in zip(runs, names, lengths, strict=True):
        for length in run_lengths:
            forced, free = (
                [row for row in run.exam if row["length"] == length and row["mode"] == mode]
                for mode in ("teacher_forced", "free_running")
            )
            lines.append(
                [
                    name,
                    *([shown(length)] if several else []),
                    shown(run.result.get("num_parameters")),
                    _steps(run, "steps_to_accuracy"),
                    _steps(run, "steps_to_stay"),
                    _exact_and_letters(forced),
                    _exact_and_letters(free),
                    _share(free, "stopped", "items"),
                    formatted(seconds_per_step(run), ".3g"),
                    wall_time(run),
                ]
            )
    return Contents(titles, lines, _notes(runs, names))


def _notes(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    rows = [row for run in runs for row in run.exam if row["items"]]
    notes = [
        "steps: updates done when the mean accuracy of the last 320 training strings, each measured before its own "
        "update, first reached the target; stays from: the first step from which it stayed there; >N: not within N updates."
    ]
    if rows:
        notes.append(
            "exact: strings without a wrong letter; letters: letters that are right; "
            "stops: free-running answers that end where they should."
        )
        items = sorted({row["items"] for row in rows})
        seeds = sorted({row["seed"] for row in rows})
        lengths = sorted({row["length"] for row in rows})
        notes.append(
            f"Exam: {_range(items)} items a length and seed; {listed('length', lengths)}; {listed('seed', seeds)}."
        )
        scorers = sorted({str(row.get("scorer", "unknown")) for row in rows})
        notes.append(
            f"Scorer of the training accuracy: {', '.join(scorers)}"
            f"{' (never compare across scorers)' if len(scorers) > 1 else ''}."
        )
    if _common([run.stop_accuracy for run in runs]) is None:
        for name, run in zip(names, runs, strict=True):
            if run.stop_accuracy is not None:
                notes.append(f"{name}: the target is {_percent(run.stop_accuracy)}.")
    for name, run in zip(names, runs, strict=True):
        if not run.result:
            notes.append(f"{name}: no result yet, {run.steps:,} updates in the log.")
        skipped = {(row["length"], row["note"]) for row in run.exam if row.get("note")}
        notes.extend(f"{name}: length {length} was not examined, it {note}." for length, note in sorted(skipped))
        ties = sum(row["ties"] for row in run.exam)
        if ties:
            notes.append(f"{name}: in {ties:,} decisions of the exam the two highest logits were within 1e-4.")
    return notes


def _common(values: Sequence[Any]) -> Any:
    """The value that all have, None where they differ."""
    return values[0] if len(set(values)) == 1 else None


def _percent(share: float) -> str:
    return f"{100 * share:.10g} %"


def _steps(run: Run, key: str) -> str:
    if not run.result or (run.config and run.stop_accuracy is None):
        return MISSING
    reached = run.result.get(key)
    return f">{run.steps:,}" if reached is None else f"{reached:,}"


def _exact_and_letters(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return MISSING
    return f"{_share(rows, 'exact', 'items')}/{_share(rows, 'letters_right', 'letters')}"


def _share(rows: Sequence[dict[str, Any]], part: str, whole: str) -> str:
    """Percent, rounded down: 100 says that really all are right, 0 that none is."""
    right, num = sum(row[part] for row in rows), sum(row[whole] for row in rows)
    if num == 0:
        return MISSING
    return f"{100 * right // num}" if right in (0, num) else f"{1000 * right // num / 10:.1f}"


def _range(numbers: Sequence[int]) -> str:
    return f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,} to {numbers[-1]:,}"


def listed(name: str, numbers: Sequence[Any]) -> str:
    """A word and the numbers that it is said of: "seed 0", "lengths 8, 16"."""
    return f"{name}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
