"""A results folder: its JSON lines, and the trained runs among them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from relnet.claims.fields import Line, fault
from relnet.claims.parts import Bounds, bounds
from relnet.report.reading import FORMAT

Key = TypeVar("Key")
WIDTH, DEPTH = 192, 12
# Strings an update and the precision of copying runs: the paper's, and what fits two cores. Runs of the two are never compared.
PAPERS_BATCHES, CPU_BATCHES = (320, "bfloat16"), (64, "float32")
PAPERS_STEPS = 2000
# What else of a copying run is as in the paper, whatever its length, rate, batches and seed.
PAPERS_TRAINING = {
    "stop_accuracy": 0.99,
    "accumulate": 1,
    "beta1": 0.9,
    "beta2": 0.999,
    "weight_decay": 0.0,
    "warmup_steps": 50,
    "schedule": "constant",
    "clip": 1.0,
}
# A mixer of figure 2 by its run's name, and any other: what is not said is so.
CHANGED = {
    "causalrn-no-sum-norm": {"sum_norm": False},
    "causalrn-approximate": {"pair_norm": "approximate"},
    "causalrn-no-pair-norm": {"pair_norm": "none"},
    "causalrn-relu": {"activation": "relu"},
    "causalrn-elu": {"activation": "elu"},
}
PLAIN = {
    "hidden": None,
    "head_width": None,
    "windows": None,
    "positions": "none",
    "activation": "exp",
    "sum_norm": True,
}


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
        """The task's settings, empty where the trainer was called by itself; so are the model's and the training's."""
        return self.line["config"].get("task") or {}

    @property
    def model(self) -> Line:
        """The model's settings."""
        return self.line["config"].get("model") or {}

    @property
    def told(self) -> Line:
        """The training's settings."""
        return self.line["config"].get("train") or {}

    @property
    def result(self) -> Line:
        """How the training went."""
        return self.line["result"]

    @property
    def exam(self) -> list[Line]:
        """Rows that were asked something."""
        return [row for row in self.line.get("exam") or () if row["items"]]

    @property
    def to_target(self) -> int | None:
        """Updates until the accuracy that the run was told of, None where it never came there."""
        return self.result["steps_to_accuracy"]

    @property
    def batches(self) -> tuple[int, str]:
        """Strings an update, and the precision."""
        return self.told["batch_size"], self.told["precision"]

    @property
    def copies(self) -> bool:
        """Whether it copies in the paper's layout, at its width and depth."""
        shape = self.model.get("width"), self.model.get("depth")
        return self.task.get("_type") == "Copying" and self.task["layout"] == "cui2024" and shape == (WIDTH, DEPTH)

    @property
    def as_named(self) -> bool:
        """Whether it was trained as in the paper, and its mixer is what its name says."""
        mixer = self.model.get("mixer")
        norm = "approximate" if self.name.startswith("linear-") else "exact"
        expected = PLAIN | {"pair_norm": norm} | CHANGED.get(self.name, {})
        return (
            self.line["config"].get("penalty") is None
            and all(self.told.get(key, value) == value for key, value in PAPERS_TRAINING.items())
            and isinstance(mixer, dict)
            and all(mixer.get(key, value) == value for key, value in expected.items())
        )

    @property
    def went(self) -> tuple[bool, int]:
        """How far it came: whether to its target, and its updates."""
        return self.to_target is not None, self.result["steps"]

    @property
    def ended(self) -> bool:
        """Whether it came to its target or had the paper's updates, and did not break off."""
        return self.to_target is not None or self.result["steps"] >= PAPERS_STEPS

    def when(self, accuracy: float) -> int | None:
        """The first update at which the mean accuracy of the last 320 strings was at least this."""
        curve = self.line["curve"]
        reached = (
            step for step, value in zip(curve["step"], curve["window_accuracy"], strict=True) if value >= accuracy
        )
        return next(reached, None)


@dataclass(frozen=True)
class Results:
    """The JSON lines of a folder's *.jsonl files, by file name, the names of its *.png files, and what was left out and why."""

    files: dict[str, list[Line]]
    figures: frozenset[str] = frozenset()
    left_out: tuple[str, ...] = ()

    @cached_property
    def runs(self) -> list[Trained]:
        """Every trained run, each config once: its last line, files taken by name."""
        found: dict[str, Trained] = {}
        for name, line in self._lines():
            if line.get("format") == FORMAT and {"name", "config", "result", "curve"} <= line.keys() and line["result"]:
                found[repr(sorted(line["config"].items()))] = Trained(name, line)
        return list(found.values())

    def copying(
        self, batches: tuple[int, str], name: str, length: int, lr: float | None = 5e-4, heads: int = 1
    ) -> list[Trained]:
        """Runs that are what this name says, trained as in the paper to copy in its layout, one a rate and seed; lr None: any.

        Where one was run with several limits, one that came to 99 %, else the one that went furthest.
        """
        best: dict[tuple[float, int], Trained] = {}
        for run in self.runs:
            if not run.copies or (run.name, run.batches, run.task["length"]) != (name, batches, length):
                continue
            if not run.as_named or run.model["mixer"].get("heads") != heads or lr not in (None, run.told["lr"]):
                continue
            key = (run.told["lr"], run.told["seed"])
            if key not in best or run.went >= best[key].went:
                best[key] = run
        return [best[key] for key in sorted(best)]

    def comparable(self, wanted: Mapping[Key, Mapping[str, Any]]) -> dict[Key, list[Trained]]:
        """Copying runs to compare, by key, each wanted by the arguments of `copying`: those at the seeds that all keys share.

        At the paper's batches where there are such seeds and none of their runs broke off, else at a CPU's; those that broke off, where
        there are no others. Empty where there are none.
        """
        broken: dict[Key, list[Trained]] = {}
        for batches in (PAPERS_BATCHES, CPU_BATCHES):
            found = {key: self.copying(batches, **one) for key, one in wanted.items()}
            seeds = set.intersection(*({run.told["seed"] for run in runs} for runs in found.values()))
            shared = {key: [run for run in runs if run.told["seed"] in seeds] for key, runs in found.items()}
            if seeds and (batches == CPU_BATCHES or all(run.ended for runs in shared.values() for run in runs)):
                return shared
            broken = broken or (shared if seeds else {})
        return broken

    def having(self, *keys: str) -> list[tuple[str, Line]]:
        """Lines that have all of these keys, each with its file."""
        return [(name, line) for name, line in self._lines() if line.keys() >= set(keys)]

    def _lines(self) -> Iterable[tuple[str, Line]]:
        return ((name, line) for name, lines in self.files.items() for line in lines)


def read_folder(folder: str | Path) -> Results:
    """Read the *.jsonl files of a folder, by name; lines that cannot be judged are left out. ValueError where no line is left."""
    if not Path(folder).is_dir():
        raise ValueError(f"{folder} is not a folder{'' if Path(folder).exists() else ': it does not exist'}")
    paths = sorted(Path(folder).glob("*.jsonl"))
    if not paths:
        raise ValueError(f"{folder} holds no results: no *.jsonl files in it")
    files: dict[str, list[Line]] = {}
    left_out: list[str] = []
    for path in paths:
        files[path.name], told = _read_file(path)
        left_out += told
    if not any(files.values()):
        more = f" (and {len(left_out) - 1} more)" if len(left_out) > 1 else ""
        raise ValueError(
            f"{folder} holds no results: {left_out[0] + more if left_out else 'its *.jsonl files are empty'}"
        )
    figures = frozenset(path.name for path in Path(folder).glob("*.png"))
    return Results(files, figures, tuple(left_out))


def _read_file(path: Path) -> tuple[list[Line], list[str]]:
    """The lines of a file that can be judged, and of the others which are left out, a reason each."""
    lines: list[Line] = []
    others: dict[str, list[int]] = {}
    for number, content in enumerate(path.read_bytes().splitlines(), start=1):
        if not content.strip():
            continue
        line = _parsed(content)
        why = fault(line) if isinstance(line, dict) else "not a line of relnet's"
        if why:
            others.setdefault(why, []).append(number)
        else:
            lines.append(line)
    return lines, [f"{path}, {_places(numbers)}: {why}: left out" for why, numbers in others.items()]


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _places(numbers: Sequence[int]) -> str:
    return f"line {numbers[0]}" if len(numbers) == 1 else f"{len(numbers)} lines from line {numbers[0]} on"


def files_of(runs: Iterable[Trained]) -> tuple[str, ...]:
    """The files that runs come from, each once."""
    return tuple(dict.fromkeys(run.file for run in runs))


def files_of_lines(found: Iterable[tuple[str, Line]]) -> tuple[str, ...]:
    """The files of lines as `Results.having` gives them, each once."""
    return tuple(dict.fromkeys(file for file, _ in found))


def all_of(found: Mapping[Any, Sequence[Trained]]) -> list[Trained]:
    """The runs of all keys."""
    return [run for runs in found.values() for run in runs]


def needed(runs: Iterable[Trained]) -> Bounds:
    """The least and the most updates that runs need to the target in the mean."""
    return bounds((run.to_target, run.result["steps"]) for run in runs)


def told_steps(runs: Sequence[Trained]) -> str:
    """Updates to the target of runs that differ in seed: "80", "80, 83 (mean 81.5)", ">1,000"."""
    shown = [f">{run.result['steps']:,}" if run.to_target is None else f"{run.to_target:,}" for run in runs]
    least, most = needed(runs)
    return ", ".join(shown) + (f" (mean {most:,.1f})" if least == most and len(runs) > 1 else "")


def at_seeds(runs: Iterable[Trained]) -> str:
    """Which seeds, in words."""
    seeds = sorted({run.told["seed"] for run in runs})
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
