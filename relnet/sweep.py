"""Sweeps: many runs as one job that may be stopped, killed and begun again at any moment.

    ROOT/NAME-TASK-lr-LR-seed-SEED-HASH     one run's folder

HASH is of the run's config, so that it is done once, whichever sweep asks for it.

ROOT is $RELNET_RUNS, or relnet/runs in the user's data folder ($XDG_DATA_HOME, else ~/.local/share): outside of any work tree. What
is finished there is taken as it is; what was begun goes on after its last checkpoint, to the same numbers on a CPU.
"""

import dataclasses
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from relnet import report, run
from relnet.run import RUNS_VARIABLE, AnyModel, RunConfig
from relnet.train import SAVING, StepRecord, StopTrainingError, choose_device

ATTEMPTS = 2


class RunsFailedError(Exception):
    """Some runs of a sweep failed twice; the others are done."""


@dataclass(frozen=True)
class PlannedRun:
    """A run of a sweep: its config, the lengths that it is examined at (none: the trained one), what it needs of a cluster."""

    config: RunConfig
    lengths: tuple[int, ...] = ()
    cpus: int = 1
    gpus: int = 0

    @property
    def name(self) -> str:
        """What tells its folder from others: readable, and then the config's hash."""
        config, task = self.config, self.config.task
        return (
            f"{config.name}-{task.label}-lr-{config.train.lr:g}-seed-{config.train.seed}-{identity(self.content)[:10]}"
        )

    @property
    def content(self) -> dict[str, Any]:
        """The config as JSON values."""
        return json.loads(run.config_to_json(self.config))


@dataclass(frozen=True)
class Plan:
    """A sweep as a recipe gives it: a name, its runs, how their figure is drawn, and what is not as in the paper, in one sentence.

    figure: "curves": loss and accuracy against steps; "length", "lr": steps to the target against it; "exam": the figures of an exam;
    "maps": relation maps of images held out, in the block in the middle.
    """

    name: str
    runs: tuple[PlannedRun, ...]
    changes: str = ""
    figure: Literal["curves", "length", "lr", "exam", "maps"] = "curves"


@dataclass(frozen=True)
class Outcome:
    """How a sweep ended: folders of finished runs, what failed twice and why, folders of what was not finished in time."""

    finished: list[Path] = field(default_factory=list)
    failed: dict[Path, str] = field(default_factory=dict)
    left: list[Path] = field(default_factory=list)

    def ended(self, place: Path, fault: str, lines: str | Path | None, command: str) -> None:
        """Take in a run that finished (fault "") or failed; a finished one is appended to the file of lines, where there is one."""
        if fault:
            self.failed[place] = fault
            return
        self.finished.append(place)
        if lines is not None:
            append_line(Path(lines), place, command)


def root() -> Path:
    """Return the folder that sweeps' run folders go to: $RELNET_RUNS, or relnet/runs in the user's data folder."""
    if named := os.environ.get(RUNS_VARIABLE):
        return Path(named)
    return Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "relnet" / "runs"


def identity(content: dict[str, Any]) -> str:
    """Return the hash of a config, given as JSON values: of all that decides its numbers, and its name.

    How often it is saved is left out, and so is every setting that is not given, so that a setting that a later release adds changes none.

    >>> identity({"a": 1, "train": {"keep": 2, "lr": 0.1}}) == identity({"train": {"lr": 0.1, "warmup": None}, "a": 1})
    True
    """
    train = {name: value for name, value in content.get("train", {}).items() if name not in SAVING}
    text = json.dumps(_given({**content, "train": train}), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _given(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _given(inner) for name, inner in value.items() if inner is not None}
    return [_given(inner) for inner in value] if isinstance(value, list) else value


def sweep(
    runs: Sequence[PlannedRun],
    folder: str | Path,
    *,
    device: str = "auto",
    budget: float | None = None,
    lines: str | Path | None = None,
    command: str = "",
    on_start: Callable[[PlannedRun, AnyModel], None] | None = None,
    on_step: Callable[[PlannedRun, StepRecord], None] | None = None,
    on_end: Callable[[PlannedRun, str], None] | None = None,
) -> Outcome:
    """Train and examine the runs, one after the other, each in a folder of its own in `folder`; what is finished is not done again.

    budget: seconds; when they are over, the run that trains is saved and left, and no other is begun.
    lines: a file that each finished run is appended to, once, as a line of JSON (as `relnet report --json` writes it); command: to stand
        there.
    on_start: called before a run that is not finished trains, with its untrained model; on_step: after each of its updates; on_end: after
        each run, with "" or why it failed (twice: a run that raises is gone on with once).

    ValueError for the same run twice, a device that is not there and a file that holds anything else than JSON lines. KeyboardInterrupt as
    `relnet.run.train` raises it: the same call goes on.
    """
    deadline = time.monotonic() + budget if budget is not None else float("inf")
    check(runs, lines)
    choose_device(device)
    outcome = Outcome()
    for planned in runs:
        place = Path(folder) / planned.name
        if time.monotonic() >= deadline:
            outcome.left.append(place)
            continue
        try:
            fault = do(planned, place, device, deadline, on_start, on_step)
        except KeyboardInterrupt:
            if time.monotonic() < deadline:
                raise
            outcome.left.append(place)
            continue
        outcome.ended(place, fault, lines, command)
        if on_end is not None:
            on_end(planned, fault)
    return outcome


def check(runs: Sequence[PlannedRun], lines: str | Path | None) -> None:
    """Raise ValueError where the same run stands twice, or the file of lines holds anything else: now, not after hours."""
    if lines is not None and Path(lines).exists():
        _parsed(Path(lines), _whole(Path(lines).read_bytes()))
    names = [planned.name for planned in runs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{', '.join(twice)}: the same run stands twice in the sweep")


def do(
    planned: PlannedRun,
    place: Path,
    device: str,
    deadline: float = float("inf"),
    on_start: Callable[[PlannedRun, AnyModel], None] | None = None,
    on_step: Callable[[PlannedRun, StepRecord], None] | None = None,
) -> str:
    """Do a run, or what is left of it; return "", or why it failed twice.

    KeyboardInterrupt where it is not finished at the deadline, a time of `time.monotonic`.
    """

    def start(_: RunConfig, model: AnyModel) -> None:
        if on_start is not None:
            on_start(planned, model)

    def step(record: StepRecord) -> None:
        if on_step is not None:
            on_step(planned, record)
        if time.monotonic() >= deadline:
            # As Ctrl-C: this update is saved, then training ends.
            raise StopTrainingError

    fault = ""
    for _ in range(ATTEMPTS):
        try:
            finished = run.train(planned.config, place, device=device, resume=True, on_start=start, on_step=step)
            run.examine_unless_done(finished, lengths=planned.lengths)
        except Exception as error:
            fault = f"{type(error).__name__}: {error}"
        else:
            return ""
    return fault


def append_line(path: Path, folder: Path, command: str) -> None:
    """Append a finished run to a file of JSON lines unless it stands there with all of its exam; a line that a kill cut short goes."""
    (found,) = report.read_runs([folder])
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a+b") as file:
        # Two sweeps may share a file.
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        whole = _whole(file.read())
        for known in _parsed(path, whole):
            same = "config" in known and identity(known["config"]) == identity(found.config)
            measured = known.get("exam") or known.get("text") or known.get("images") or ()
            if same and len(measured) >= len(found.exam or found.text or found.images):
                return
        file.truncate(sum(map(len, whole)))
        file.write(found.to_json(command).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _whole(content: bytes) -> list[bytes]:
    """The lines that end."""
    return content[: content.rfind(b"\n") + 1].splitlines(keepends=True)


def _parsed(path: Path, lines: Sequence[bytes]) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in lines]
    except ValueError as error:
        raise ValueError(f"{path} holds a line that is no JSON ({error}); give another file for the runs") from None


class TimeLeft:
    """Estimates how long the rest of a sweep takes at most: updates that are left, times the time of an update so far.

    An update's time is taken as proportional to its tokens, at the rate of the runs of the same name, else at that of all.

    >>> from relnet.recipes import copying
    >>> runs = [PlannedRun(copying(length=length, max_steps=10)) for length in (16, 33)]
    >>> left = TimeLeft(runs)
    >>> left.seconds() is None
    True
    >>> left.took(runs[0], step=4, seconds=3.4)
    >>> round(left.seconds(), 1)
    88.4
    >>> left.over(runs[0])
    >>> round(left.seconds(), 1)
    68.0
    """

    def __init__(self, runs: Sequence[PlannedRun]) -> None:
        self._left = {planned: planned.config.train.steps for planned in runs}
        self._seconds: dict[str, float] = {}
        self._tokens: dict[str, float] = {}

    def took(self, planned: PlannedRun, step: int, seconds: float) -> None:
        """Count update number `step` of a run, which took `seconds`."""
        name = planned.config.name
        self._left[planned] = planned.config.train.steps - step
        self._seconds[name] = self._seconds.get(name, 0.0) + seconds
        self._tokens[name] = self._tokens.get(name, 0.0) + _tokens(planned)

    def over(self, planned: PlannedRun) -> None:
        """Count a run as over, finished or not."""
        self._left[planned] = 0

    def seconds(self) -> float | None:
        """Return the estimate, None before the first update."""
        if not self._tokens:
            return None
        all_runs = sum(self._seconds.values()) / sum(self._tokens.values())
        rates = {name: self._seconds[name] / self._tokens[name] for name in self._tokens}
        return sum(
            updates * _tokens(planned) * rates.get(planned.config.name, all_runs)
            for planned, updates in self._left.items()
        )


def _tokens(planned: PlannedRun) -> int:
    return planned.config.train.batch_size * planned.config.task.context


def prepared(
    runs: Sequence[PlannedRun], on_progress: Callable[[str, int, int | None], None] | None = None
) -> list[PlannedRun]:
    """Return the runs, each text that they train on prepared and named by its content (`relnet.run.prepared`)."""
    configs = run.prepared([planned.config for planned in runs], on_progress)
    return [dataclasses.replace(planned, config=config) for planned, config in zip(runs, configs, strict=True)]
