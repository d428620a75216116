"""A results folder: its JSON lines, and the trained runs among them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from relnet.report.reading import FORMAT, read_lines

Line = dict[str, Any]
WIDTH, DEPTH = 192, 12


@dataclass(frozen=True)
class Trained:
    """A line that `relnet sweep` or `relnet report` wrote: a run with its config, result, exam (or text) and curve."""

    file: str
    line: Line

    @property
    def name(self) -> str:
        """Of the run: the model, and what of it is changed."""
        return self.line["name"]

    @property
    def task(self) -> Line:
        """The task's settings."""
        return self.line["config"]["task"]

    @property
    def model(self) -> Line:
        """The model's settings."""
        return self.line["config"]["model"]

    @property
    def told(self) -> Line:
        """The training's settings."""
        return self.line["config"]["train"]

    @property
    def result(self) -> Line:
        """How the training went."""
        return self.line["result"]

    @property
    def exam(self) -> list[Line]:
        """Rows that were asked something."""
        return [row for row in self.line.get("exam", []) if row["items"]]

    @property
    def to_target(self) -> int | None:
        """Updates until the accuracy that the run was told of, None where it never came there."""
        return self.result["steps_to_accuracy"]

    def when(self, accuracy: float) -> int | None:
        """The first update at which the mean accuracy of the last 320 strings was at least this."""
        curve = self.line["curve"]
        reached = (
            step for step, value in zip(curve["step"], curve["window_accuracy"], strict=True) if value >= accuracy
        )
        return next(reached, None)


@dataclass(frozen=True)
class Results:
    """The JSON lines of a folder's *.jsonl files, by file name, and the names of its *.png files."""

    files: dict[str, list[Line]]
    figures: frozenset[str] = frozenset()

    @property
    def runs(self) -> list[Trained]:
        """Every trained run, each config once: the latest line of it."""
        found: dict[str, Trained] = {}
        for name, line in self._lines():
            if line.get("format") == FORMAT and {"name", "config", "result", "curve"} <= line.keys() and line["result"]:
                found[repr(sorted(line["config"].items()))] = Trained(name, line)
        return list(found.values())

    def copying(
        self, *names: str, length: int | None = None, lr: float | None = 5e-4, heads: int | None = 1
    ) -> list[Trained]:
        """Runs of these names that copy in the paper's layout and at its width and depth, in batches of 64: one a name, length,
        rate and seed.

        Where one was run with several limits, the one that went furthest. None: any.
        """
        best: dict[tuple[Any, ...], Trained] = {}
        for run in self.runs:
            if run.name not in names or run.task.get("_type") != "Copying" or run.task["layout"] != "cui2024":
                continue
            found = (run.model["width"], run.model["depth"], run.told["batch_size"], run.told["precision"])
            if found != (WIDTH, DEPTH, 64, "float32") or run.told["stop_accuracy"] != 0.99:
                continue
            if length not in (None, run.task["length"]) or lr not in (None, run.told["lr"]):
                continue
            if heads not in (None, run.model["mixer"].get("heads")):
                continue
            key = (run.name, run.task["length"], run.told["lr"], run.told["seed"])
            if key not in best or run.result["steps"] > best[key].result["steps"]:
                best[key] = run
        return sorted(best.values(), key=lambda run: (run.task["length"], run.told["lr"], run.told["seed"]))

    def having(self, *keys: str) -> list[tuple[str, Line]]:
        """Lines that have all of these keys, each with its file."""
        return [(name, line) for name, line in self._lines() if line.keys() >= set(keys)]

    def _lines(self) -> Iterable[tuple[str, Line]]:
        return ((name, line) for name, lines in self.files.items() for line in lines)


def read_folder(folder: str | Path) -> Results:
    """Read the *.jsonl files of a folder, by name; ValueError where it has none."""
    paths = sorted(Path(folder).glob("*.jsonl"))
    if not paths:
        raise ValueError(f"{folder} holds no results: no *.jsonl files in it")
    figures = frozenset(path.name for path in Path(folder).glob("*.png"))
    return Results({path.name: read_lines(path) for path in paths}, figures)


def files_of(runs: Iterable[Trained]) -> tuple[str, ...]:
    """The files that runs come from, each once."""
    return tuple(dict.fromkeys(run.file for run in runs))


def mean_steps(runs: Sequence[Trained]) -> float | None:
    """Mean updates to the target, None where a run never came there, and where there are no runs."""
    steps = [run.to_target for run in runs]
    known = [number for number in steps if number is not None]
    return fmean(known) if known and len(known) == len(steps) else None


def at_least(runs: Sequence[Trained]) -> float:
    """Mean updates to the target, a run that never came there counted with all of its own: what the others' mean is at least."""
    return fmean(run.result["steps"] if run.to_target is None else run.to_target for run in runs)


def told_steps(runs: Sequence[Trained]) -> str:
    """Updates to the target of runs that differ in seed: "80", "80, 83 (mean 81.5)", ">1,000"."""
    shown = [f">{run.result['steps']:,}" if run.to_target is None else f"{run.to_target:,}" for run in runs]
    mean = mean_steps(runs)
    return ", ".join(shown) + (f" (mean {mean:,.1f})" if mean is not None and len(runs) > 1 else "")


def at_seeds(runs: Iterable[Trained]) -> str:
    """Which seeds, in words."""
    seeds = sorted({run.told["seed"] for run in runs})
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
