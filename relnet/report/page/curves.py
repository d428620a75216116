"""What the charts of a page draw: learning curves by task and group, and accuracy of exams against length."""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from relnet.report.page.grouping import Group, seed_of, trained_length
from relnet.report.page.thinning import number, thinned
from relnet.report.reading import Run
from relnet.report.verdict import FORCED, FREE, Line, best, groups, lost, share, trained_task

# Points of the clock of a run: wall time hardly bends.
CLOCK = 60


@dataclass(frozen=True)
class Measure:
    """What a chart draws: its name and unit, the figure of the log, its factor, the ends of the axis (None: of what is drawn).

    marked: measured now and then, so that each point is to be seen.
    """

    name: str
    unit: str
    key: str
    factor: float = 1.0
    low: float | None = None
    high: float | None = None
    marked: bool = False


LOSS = Measure("Loss", "nats", "loss", low=0.0)
ACCURACY = Measure("Accuracy", "%, mean of the last 320 samples", "window_accuracy", factor=100.0, low=0.0, high=100.0)
PENALTY = Measure("Penalty", "added to the loss", "penalty", low=0.0)
VALIDATION = Measure("Validation", "bits a byte", "bits_per_byte", marked=True)
TESTED = Measure("Images held out", "% right", "test_accuracy", factor=100.0, low=0.0, high=100.0, marked=True)


def panels(runs: Sequence[Run], grouped: Sequence[Group]) -> dict[str, list[dict[str, Any]]]:
    """The charts of each task: loss, accuracy or, of texts and images, what was measured on those held out, and penalty; only with points.

    A chart is {"measure", "unit", "low", "high", "marked", "targets", "lines"}; a line {"label", "runs"}; a run of it {"run": place in
    the list} and its curve as `thinned` returns it.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for task in dict.fromkeys(group.task for group in grouped):
        mine = [group for group in grouped if group.task == task]
        members = [runs[member] for group in mine for member in group.members]
        texts = any(run.learns_text for run in members)
        images = any(run.learns_images for run in members)
        measured = VALIDATION if texts else TESTED if images else ACCURACY
        charts = [_panel(runs, mine, measure) for measure in (LOSS, measured, PENALTY)]
        if drawn := [chart for chart in charts if chart["lines"]]:
            found[task] = drawn
    return found


def _panel(runs: Sequence[Run], grouped: Sequence[Group], measure: Measure) -> dict[str, Any]:
    lines = []
    targets = [number(runs[member].stop_accuracy) for group in grouped for member in group.members]
    for group in grouped:
        curves = [
            {"run": member, **curve} for member in group.members if (curve := _curve(runs[member], measure)) is not None
        ]
        if curves:
            lines.append({"label": group.label, "runs": curves})
    return {
        "measure": measure.name,
        "unit": measure.unit,
        "low": measure.low,
        "high": measure.high,
        "marked": measure.marked,
        "targets": sorted({100 * target for target in targets if target}) if measure is ACCURACY else [],
        "lines": lines,
    }


def _curve(run: Run, measure: Measure) -> dict[str, list[Any]] | None:
    updates = [update for update in run.updates if measure.key in update and number(update["step"]) is not None]
    values = [None if (value := number(update[measure.key])) is None else measure.factor * value for update in updates]
    if all(value is None for value in values):
        return None
    return thinned([update["step"] for update in updates], values)


def clock(run: Run) -> dict[str, list[float]] | None:
    """Seconds of training after some of the steps, None where the log does not tell them."""
    seconds = [number(update.get("seconds")) for update in run.updates]
    if not seconds or None in seconds or None in [number(update["step"]) for update in run.updates]:
        return None
    passed = list(itertools.accumulate(second or 0.0 for second in seconds))
    places = sorted({round(place * (len(passed) - 1) / CLOCK) for place in range(CLOCK + 1)})
    return {
        "step": [run.updates[place]["step"] for place in places],
        "seconds": [round(passed[place], 3) for place in places],
    }


@dataclass(frozen=True)
class Source:
    """Where a line of a chart against length comes from: its label, what tells it from another of this label, the runs (none: an exam)."""

    label: str
    behind: str
    runs: tuple[int, ...] = ()


def length_charts(
    runs: Sequence[Run], grouped: Sequence[Group], sittings: Mapping[Path, Sequence[Line]]
) -> list[dict[str, Any]]:
    """Charts of accuracy against length, one a task and training: {"task", "trained", "on", "lost", "lines"}; some line has two lengths.

    trained, on: up to which length, and on which task, if known. lost: of each line in which seeds are missing, how many in words.
    A line is {"label", "runs"} and for each of "free_running.exact", "free_running.letters", "teacher_forced.exact" and
    "teacher_forced.letters" a list of [length, percent, low, high]: mean and 95 % interval, over training seeds where there are several.
    Each group of runs, and each candidate of each place of `sittings`, is a line of its own.
    """
    asked: dict[tuple[str, int | None, str | None], dict[Source, list[Line]]] = {}
    for group in grouped:
        source = Source(group.label, group.task, group.members)
        for member in group.members:
            run, seed = runs[member], seed_of(runs[member])
            for row in run.exam:
                line = {**row, "seed": (seed, row["seed"])} if len(group.members) > 1 else row
                # A run sits the exam of its own task.
                key = (str(row["task"]), trained_length(run), str(row["task"]))
                asked.setdefault(key, {}).setdefault(source, []).append(line)
    for place, lines in sittings.items():
        for line in best(lines):
            sources = asked.setdefault((str(line["task"]), line.get("train_length"), trained_task(line)), {})
            sources.setdefault(Source(str(line["subject"]), str(place)), []).append(line)
    found: list[dict[str, Any]] = []
    for (task, trained, learned), sources in asked.items():
        named = list(zip(_told_apart(list(sources)), sources.items(), strict=True))
        drawn = [{"label": label, "runs": list(source.runs), **_points(rows)} for label, (source, rows) in named]
        missing = {label: words for label, (_, rows) in named if (words := lost(rows))}
        found.append({"task": task, "trained": trained, "on": learned, "lost": missing, "lines": drawn})
    return [chart for chart in found if any(len(line[f"{FREE}.exact"]) > 1 for line in chart["lines"])]


def _told_apart(sources: Sequence[Source]) -> list[str]:
    """Labels of a chart's lines. Where several have the same, what tells them apart stands behind; runs keep theirs before exams."""
    labels = Counter(one.label for one in sources)
    of_runs = Counter(one.label for one in sources if one.runs)
    return [
        f"{one.label} ({one.behind})" if (of_runs if one.runs else labels)[one.label] > 1 else one.label
        for one in sources
    ]


def steps_charts(runs: Sequence[Run], grouped: Sequence[Group]) -> list[dict[str, Any]]:
    """Charts of the steps to the target accuracy against the trained length, one a task and target; some line has two lengths.

    A chart is {"task", "target", "lines"}, a line {"label", "runs", "steps"}: steps are [length, mean, least, most, note] over the seeds
    that reached the target; the note says how many, unless all did.
    """
    found: dict[tuple[str, float], dict[str, dict[str, Any]]] = {}
    for group in grouped:
        members = [runs[member] for member in group.members]
        length, target = trained_length(members[0]), number(members[0].stop_accuracy)
        reached = [step for run in members if (step := number(run.result.get("steps_to_accuracy"))) is not None]
        if length is None or target is None or not reached:
            continue
        task = group.task.replace(f"length {length}", "any length")
        note = "" if len(reached) == len(members) else f"{len(reached)} of {len(members)} runs"
        point = [length, fmean(reached), min(reached), max(reached), note]
        line = found.setdefault((task, target), {}).setdefault(
            group.label, {"label": group.label, "runs": [], "steps": []}
        )
        line["runs"].extend(group.members)
        line["steps"].append(point)
    charts = [
        {"task": task, "target": 100 * target, "lines": list(lines.values())} for (task, target), lines in found.items()
    ]
    return [chart for chart in charts if any(len(line["steps"]) > 1 for line in chart["lines"])]


def _points(rows: Sequence[Line]) -> dict[str, list[list[float]]]:
    found: dict[str, list[list[float]]] = {}
    for mode in (FREE, FORCED):
        for name, part, whole in (("exact", "exact", "items"), ("letters", "letters_right", "letters")):
            points = found.setdefault(f"{mode}.{name}", [])
            of_mode = [row for row in rows if row["mode"] == mode]
            for (length,), at in sorted(groups(of_mode, "length").items()):
                if (told := share(at, part, whole)) is not None:
                    points.append([length, *(round(100 * one, 2) for one in told)])
    return found
