"""What a page is made from: runs, results of exams that have no run folder, and what could not be read, each with its reason."""

import dataclasses
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from relnet.report.page.curves import length_charts
from relnet.report.page.grouping import grouped
from relnet.report.page.markup import overview, run_details
from relnet.report.page.thinning import number
from relnet.report.reading import Run, kept, read_lines, read_place, run_places
from relnet.report.verdict import Line

COUNTS = {"length", "items", "exact", "letters", "letters_right"}
SITTING_FIELDS = {"subject", "task", "mode", "seed", *COUNTS}
# Figures that a line of an exam may have.
MEASURED = ("train_length", "lr", "steps", "train_accuracy")
# What reading a value of another kind than it should be ends in.
FOREIGN = (ValueError, TypeError, KeyError, AttributeError, IndexError, ArithmeticError, OSError)


@dataclass(frozen=True)
class Gathered:
    """runs: readable ones. sittings: lines of exams of candidates. unreadable: place and reason."""

    runs: list[Run]
    sittings: list[Line]
    unreadable: list[tuple[Path, str]]


def gather(paths: Iterable[str | Path], patient: bool = False) -> Gathered:
    """Read all that lies under the paths: run folders, folders of them, a `relnet exam` folder, files of JSON lines of either or both.

    ValueError where a path is missing or holds none of these, unless `patient`: it may hold some later; a single run that is damaged stops
    nothing, it is named in `unreadable`.
    """
    found = Gathered([], [], [])
    seen: set[Path] = set()
    for path in map(Path, paths):
        if patient and not path.exists():
            continue
        lines = [line for file in _sitting_files(path) for line in read_lines(file) if _is_result(line)]
        found.sittings.extend(lines)
        if lines and path.is_file():
            _read_beside(path, found)
            continue
        places = run_places(path)
        if not places and not lines and not patient:
            raise ValueError(f"{path} is not a run folder, nor does it hold any, nor results of an exam")
        for place in places:
            if place.resolve() not in seen:
                seen.add(place.resolve())
                _read(place, found)
    return found


def _is_result(line: Line) -> bool:
    """Whether it is a result of an exam of candidates, as relnet wrote it."""
    return (
        line.keys() >= SITTING_FIELDS
        and all(number(line[name]) is not None for name in COUNTS)
        and 0 <= line["exact"] <= line["items"]
        and 0 <= line["letters_right"] <= line["letters"]
        and all(line.get(name) is None or number(line[name]) is not None for name in MEASURED)
        and all(isinstance(line[name], str | int | float) for name in ("subject", "task", "mode", "seed"))
        and isinstance(line.get("trained_task"), str | None)
    )


def _sitting_files(path: Path) -> Iterable[Path]:
    if path.is_file():
        yield path
        return
    for place, folders, files in os.walk(path):
        if {"config.json", "log.jsonl"} & set(files):
            folders.clear()
        elif "exam.jsonl" in files:
            yield Path(place, "exam.jsonl")


def _read_beside(path: Path, found: Gathered) -> None:
    """Read the runs of a file that has results of exams too."""
    for place, line in enumerate(read_lines(path), start=1):
        # An exam's have none.
        if "config" in line:
            _read(Path(f"{path}:{place}"), found, lambda place, line=line: [kept(line, place)])


def _read(place: Path, found: Gathered, read: Callable[[Path], list[Run]] = read_place) -> None:
    try:
        runs = [_named(run) for run in read(place)]
        for run in runs:
            # A file may be sound JSON and hold what no relnet wrote: seen when something is made of it.
            groups = grouped([run])
            overview([run], groups, [run.name])
            length_charts([run], groups, [])
            run_details(run, run.name, 0, None)
        found.runs.extend(runs)
    except FOREIGN as error:
        told = str(error) if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {error}"
        found.unreadable.append((place, told))


def _named(run: Run) -> Run:
    """A training of relnet exam has no config.json: its folders, CANDIDATE/TASK-LENGTH/lr-LR-seed-SEED, name it."""
    if run.config or not (run.folder / "candidate.json").exists():
        return run
    return dataclasses.replace(run, name=run.folder.resolve().parents[1].name)
