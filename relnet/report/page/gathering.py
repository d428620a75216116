"""What a page is made from: runs, results of exams that have no run folder, and what could not be read, each with its reason."""

import contextlib
import dataclasses
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from relnet.report.page.checking import COUNTS, check_run, check_sitting
from relnet.report.page.curves import length_charts
from relnet.report.page.grouping import grouped
from relnet.report.page.markup import overview, run_details
from relnet.report.reading import Run, kept, read_lines, read_place, run_places
from relnet.report.tables import markdown
from relnet.report.verdict import Line

SITTING_FIELDS = {"subject", "task", "mode", "seed", "length", *COUNTS}
# What reading a value of another kind than it should be ends in.
FOREIGN = (ValueError, TypeError, KeyError, AttributeError, IndexError, ArithmeticError, OSError)


@dataclass(frozen=True)
class Gathered:
    """runs: readable ones. sittings: lines of exams of candidates, by the folder or file that has them. unreadable: place and reason."""

    runs: list[Run]
    sittings: dict[Path, list[Line]]
    unreadable: list[tuple[Path, str]]


def gather(paths: Iterable[str | Path], patient: bool = False) -> Gathered:
    """Read all that lies under the paths: run folders, folders of them, a `relnet exam` folder, files of JSON lines of either or both.

    What is found twice counts once. ValueError where a path is missing or holds none of these, unless `patient`: it may hold some later; a
    single run or file of an exam that is damaged stops nothing, it is named in `unreadable`.
    """
    found = Gathered([], {}, [])
    seen: set[Path] = set()
    for path in map(Path, paths):
        if patient and not path.exists():
            continue
        files = [file for file in _sitting_files(path) if _read_sitting(file, found, seen)]
        if path in files:
            continue
        places = run_places(path)
        # Beside run folders such files have the same runs again.
        others = [] if places else [file for file in _kept_files(path) if file not in files]
        if others:
            names = ", ".join(file.name for file in others[:3]) + (" and more" if others[3:] else "")
            found.unreadable.append((path, f"files of runs as JSON lines are read by their names only: {names}"))
        elif not places and not files and not patient:
            raise ValueError(f"{path} is not a run folder, nor does it hold any, nor results of an exam")
        for place in places:
            if _is_new(place, seen):
                _read(place, found)
    return found


def _is_new(place: Path, seen: set[Path]) -> bool:
    """Whether this place has not been seen under any name; from now on it has."""
    resolved = place.resolve()
    if resolved in seen:
        return False
    seen.add(resolved)
    return True


def _sitting_files(path: Path) -> Iterable[Path]:
    if path.is_file():
        yield path
        return
    for place, folders, files in os.walk(path):
        folders.sort()
        if {"config.json", "log.jsonl"} & set(files):
            folders.clear()
        elif "exam.jsonl" in files:
            yield Path(place, "exam.jsonl")


def _kept_files(path: Path) -> list[Path]:
    """The files in a folder that begin with a run's JSON line."""
    if not path.is_dir():
        return []
    found = []
    for file in sorted(path.glob("*.jsonl")):
        with contextlib.suppress(OSError), file.open("rb") as lines:
            first = lines.readline()
            if b'"config"' in first and b'"curve"' in first:
                found.append(file)
    return found


def _read_sitting(file: Path, found: Gathered, seen: set[Path]) -> bool:
    """Read results of exams, and the runs that are kept beside them; whether there are any in this file."""
    try:
        lines = list(enumerate(read_lines(file), start=1))
    except OSError as error:
        found.unreadable.append((file, str(error)))
        return True
    results = [(place, line) for place, line in lines if line.keys() >= SITTING_FIELDS]
    if results and _is_new(file, seen):
        _keep_sound(file, results, found)
        for place, line in lines:
            # An exam's have none.
            if "config" in line:
                _read(Path(f"{file}:{place}"), found, lambda place, line=line: [kept(line, place)])
    return bool(results)


def _keep_sound(file: Path, results: Iterable[tuple[int, Line]], found: Gathered) -> None:
    sound, odd = [], []
    for place, line in results:
        try:
            check_sitting(f"line {place}", line)
            sound.append(line)
        except ValueError as error:
            odd.append(str(error))
    if sound:
        found.sittings[file.parent if file.name == "exam.jsonl" else file] = sound
    if odd:
        more = f", and {len(odd) - 1} more of its lines" if odd[1:] else ""
        found.unreadable.append((file, f"{odd[0]}{more}"))


def _read(place: Path, found: Gathered, read: Callable[[Path], list[Run]] = read_place) -> None:
    try:
        runs = [_named(run) for run in read(place)]
    except FOREIGN as error:
        found.unreadable.append((place, _told(error)))
        return
    for run in runs:
        try:
            check_run(run)
            # A file may be sound JSON and hold what no relnet wrote: seen when something is made of it.
            markdown([run])
            groups = grouped([run])
            overview([run], groups, [run.name])
            length_charts([run], groups, {})
            run_details(run, run.name, 0, None)
            found.runs.append(run)
        except FOREIGN as error:
            found.unreadable.append((run.folder, _told(error)))


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {error}"


def _named(run: Run) -> Run:
    """A training of relnet exam has no config.json: its folders, CANDIDATE/TASK-LENGTH/lr-LR-seed-SEED, name it."""
    if run.config or not (run.folder / "candidate.json").exists():
        return run
    return dataclasses.replace(run, name=run.folder.resolve().parents[1].name)
