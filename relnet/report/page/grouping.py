"""Which runs belong together: those that differ in their seed only are one line of a chart, with a band."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from relnet.report.reading import Run
from relnet.report.settings import differences, telling


@dataclass(frozen=True)
class Group:
    """Runs that differ in their seed only: the task they learn, a label that no other group of this task has, their places in the list."""

    task: str
    label: str
    members: tuple[int, ...]


def seed_of(run: Run) -> int | None:
    """The seed of a run's weights and strings, None where it is not said."""
    for place in (run.config.get("train"), run.result.get("settings")):
        if isinstance(place, dict) and isinstance(place.get("seed"), int):
            return place["seed"]
    said = re.search(r"seed-(\d+)$", run.folder.name)
    return int(said[1]) if said else None


def task_of(run: Run) -> str:
    """The task in words; of a training of relnet exam its folder's name."""
    return run.task or (run.folder.parent.name if "seed" in run.folder.name else "") or "task not said"


def trained_length(run: Run) -> int | None:
    """The length of the strings that a run trains on, None where its task has none."""
    length = (run.config.get("task") or {}).get("length")
    return length if isinstance(length, int) else None


def grouped(runs: Sequence[Run]) -> list[Group]:
    """The groups, by task, those of short strings first, then in order of appearance."""
    members: dict[tuple[str, ...], list[int]] = {}
    for number, run in enumerate(runs):
        members.setdefault(_identity(run), []).append(number)
    firsts = [runs[numbers[0]] for numbers in members.values()]
    labels = _labels(firsts)
    found = [
        Group(task_of(run), label, tuple(numbers))
        for run, label, numbers in zip(firsts, labels, members.values(), strict=True)
    ]
    return sorted(found, key=lambda group: _natural(group.task))


def _natural(text: str) -> list[tuple[int, str]]:
    """A key to sort text by in which numbers count as such."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"([0-9]+)", text)]


def run_labels(runs: Sequence[Run], groups: Iterable[Group]) -> list[str]:
    """A label for each run: its group's, and where the group has several, its seed; its folder, where two of a task still have the same."""
    labels = [""] * len(runs)
    for group in groups:
        names = [f"{group.label}, seed {seed_of(runs[member])}" for member in group.members]
        count = Counter(names)
        for member, name in zip(group.members, names, strict=True):
            alone = group.label if len(names) == 1 else name
            labels[member] = alone if count[name] == 1 else f"{name} ({runs[member].folder})"
    return labels


def _identity(run: Run) -> tuple[str, ...]:
    if not run.config:
        return (str(run.folder.resolve().parent), re.sub(r"[-_ ]?seed[-_ ]?\d+", "", run.folder.name))
    return (_stem(run), *(f"{name}={value}" for name, value in _settings(run).items()))


def _stem(run: Run) -> str:
    return re.sub(r"[-_, ]*seed[-_ ]?\d+", "", run.name) or run.name


def _settings(run: Run) -> dict[str, str]:
    if not run.config and (rate := re.fullmatch(r"lr-(.+)-seed-\d+", run.folder.name)):
        return {"lr": rate[1]}
    # Another seed is no other experiment.
    return {name: value for name, value in telling(run.config).items() if name != "train.seed"}


def _labels(runs: Sequence[Run]) -> list[str]:
    """Names; where two on the same task are the same, the settings in which those runs differ stand behind."""
    keys = [(task_of(run), _stem(run)) for run in runs]
    alike: dict[tuple[str, str], list[int]] = {}
    for number, key in enumerate(keys):
        alike.setdefault(key, []).append(number)
    labels = [""] * len(runs)
    for (_, stem), numbers in alike.items():
        told = differences([_settings(runs[number]) for number in numbers])
        for number, behind in zip(numbers, told, strict=True):
            labels[number] = f"{stem}, {behind}" if behind else stem
    seen: Counter[tuple[str, str]] = Counter()
    for number, ((task, _), label) in enumerate(zip(keys, labels, strict=True)):
        seen[task, label] += 1
        if seen[task, label] > 1:
            labels[number] = f"{label} #{seen[task, label]}"
    return labels
