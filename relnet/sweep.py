"""Sweeps: many runs as one job that may be stopped, killed and begun again at any moment.

    ROOT/NAME-TASK-lr-LR-seed-SEED-HASH     one run's folder

HASH is of the run's config, so that it is done once, whichever sweep asks for it.

ROOT is $RELNET_RUNS, or relnet/runs in the user's data folder ($XDG_DATA_HOME, else ~/.local/share): outside of any work tree. What
is finished there is taken as it is; what was begun goes on after its last checkpoint, to the same numbers on a CPU.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch

from relnet import report, run
from relnet.exam.lines import end_last_line, is_cut_short
from relnet.files import lock
from relnet.report.page.checking import check_run
from relnet.run import RUNS_VARIABLE, AnyModel, RunConfig
from relnet.train import SAVING, StepRecord, StopTrainingError, choose_device
from relnet.train.folder import locked, not_written

ATTEMPTS = 2
# Of a sweep in a run's folder: held while it trains and examines the run.
LOCK = ".sweep-lock"
# Seconds between two looks at runs that another process is at.
WAITING = 2.0
# What a line of a finished run begins with.
OPENING = b'{"format": 1, "command": "'


class RunsFailedError(Exception):
    """Some runs of a sweep failed twice; the others are done."""


class BusyError(Exception):
    """Another process is at a run."""


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
    """How a sweep ended, in the order of its runs: folders of finished ones, what failed twice and why, folders of what is left to do."""

    finished: list[Path] = field(default_factory=list)
    failed: dict[Path, str] = field(default_factory=dict)
    left: list[Path] = field(default_factory=list)


class Ends:
    """Takes in how runs end, in any order; their lines, and the outcome, are in the order of the runs.

    A line waits for those of the runs before; what still waits when a sweep ends, however it does, is written then.
    """

    def __init__(
        self,
        runs: Sequence[PlannedRun],
        folder: Path,
        lines: str | Path | None,
        command: str,
        on_end: Callable[[PlannedRun, str], None] | None,
    ) -> None:
        self._runs, self._folder, self._lines, self._command, self._on_end = runs, folder, lines, command, on_end
        self._faults: dict[PlannedRun, str | None] = {}
        self._unwritten = list(runs)

    def __enter__(self) -> "Ends":
        return self

    def __exit__(self, *_: object) -> None:
        self._unwritten = [planned for planned in self._unwritten if planned in self._faults]
        self._write()

    def over(self, planned: PlannedRun, fault: str) -> None:
        """A run is finished (fault "") or failed twice."""
        self._faults[planned] = fault
        self._write()
        if self._on_end is not None:
            self._on_end(planned, fault)

    def left(self, planned: PlannedRun) -> None:
        """A run was not finished in time."""
        self._faults[planned] = None

    @property
    def outcome(self) -> Outcome:
        """How the runs ended so far."""
        found = Outcome()
        for planned in self._runs:
            place, fault = self._folder / planned.name, self._faults.get(planned)
            if fault is None:
                found.left.append(place)
            elif fault:
                found.failed[place] = fault
            else:
                found.finished.append(place)
        return found

    def _write(self) -> None:
        while self._unwritten and self._unwritten[0] in self._faults:
            planned = self._unwritten.pop(0)
            if self._lines is not None and self._faults[planned] == "":
                append_line(Path(self._lines), self._folder / planned.name, self._command)


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
    on_wait: Callable[[Sequence[PlannedRun]], None] | None = None,
) -> Outcome:
    """Train and examine the runs, one after the other, each in a folder of its own in `folder`; what is finished is not done again.

    budget: seconds; when they are over, the run that trains is saved and left, and no other is begun.
    lines: a file that each finished run is appended to, once, as a line of JSON (as `relnet report --json` writes it); command: to stand
        there.
    on_start: called before a run that is not finished trains, with its untrained model; on_step: after each of its updates; on_end: after
        each run, with "" or why it failed (twice: a run that raises is gone on with once).
    on_wait: called with the runs that are left where other processes are at all of them. Sweeps of the same runs share them: what another
        one is at is waited for, and gone on with where that one was stopped.

    ValueError for the same run twice, a device that is not there and a file of lines that holds anything else, OSError for one that cannot
    be written, all before anything is done. KeyboardInterrupt as `relnet.run.train` raises it: the same call goes on.
    """
    deadline = time.monotonic() + budget if budget is not None else float("inf")
    choose_device(device)
    check(runs, lines)
    folder = Path(folder)
    with Ends(runs, folder, lines, command, on_end) as ends:

        def attempt(waiting: Sequence[PlannedRun]) -> list[PlannedRun]:
            busy = []
            for planned in waiting:
                place = folder / planned.name
                if is_finished(planned, place):
                    ends.over(planned, "")
                    continue
                if time.monotonic() >= deadline:
                    ends.left(planned)
                    continue
                try:
                    fault = do(planned, place, device, deadline, on_start, on_step)
                except BusyError:
                    busy.append(planned)
                except KeyboardInterrupt:
                    if time.monotonic() < deadline:
                        raise
                    ends.left(planned)
                else:
                    ends.over(planned, fault)
            return busy

        in_rounds(runs, attempt, on_wait)
        return ends.outcome


def in_rounds(
    runs: Sequence[PlannedRun],
    attempt: Callable[[Sequence[PlannedRun]], list[PlannedRun]],
    on_wait: Callable[[Sequence[PlannedRun]], None] | None,
) -> None:
    """Attempt the runs, then again those that it returns, the busy ones, until there are none; on_wait: as for `sweep`."""
    told = None
    while runs:
        busy = attempt(runs)
        if len(busy) == len(runs):
            if on_wait is not None and busy != told:
                on_wait(busy)
            told = busy
            time.sleep(WAITING)
        runs = busy


def check(runs: Sequence[PlannedRun], lines: str | Path | None) -> None:
    """Raise where the same run stands twice, a model cannot be built, or no lines can be appended to the file, which is made: now, not
    after hours."""
    names = [planned.name for planned in runs]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"{', '.join(twice)}: the same run stands twice in the sweep")
    for config in {repr(planned.config.model): planned.config for planned in runs}.values():
        try:
            with torch.device("meta"):
                run.build_model(config)
        except ValueError as error:
            raise ValueError(f"{config.name} cannot be built: {error}") from None
    if lines is not None:
        path = Path(lines)
        if path.exists() and not path.is_file():
            raise ValueError(f"{path} is no regular file; give another file for the runs")
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "a+b") as file:
            file.seek(0)
            _parsed(path, file.read())


def is_finished(planned: PlannedRun, place: Path) -> bool:
    """Whether a run is trained, and examined in all that is asked of it."""
    if not (place / "result.json").exists():
        return False
    try:
        found = _read(place)
    except ValueError:
        # Damaged, as `do` will say.
        return False
    # Half a folder, as when somebody removed a file of it, is for training to refuse.
    if not found.config or "steps" not in found.result:
        return False
    return not run.unasked(found, planned.config.task, lengths=planned.lengths)


def _read(place: Path) -> report.Run:
    """The run of a folder; ValueError for one that is damaged, so that no line can be made of it."""
    (found,) = report.read_runs([place])
    check_run(found)
    return found


def do(
    planned: PlannedRun,
    place: Path,
    device: str,
    deadline: float = float("inf"),
    on_start: Callable[[PlannedRun, AnyModel], None] | None = None,
    on_step: Callable[[PlannedRun, StepRecord], None] | None = None,
) -> str:
    """Do a run, or what is left of it; return "", or why it failed twice, in one line.

    KeyboardInterrupt where it is not finished at the deadline, a time of `time.monotonic`; BusyError where another process is at it.
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
    with _alone(place):
        for _ in range(ATTEMPTS):
            try:
                finished = run.train(planned.config, place, device=device, resume=True, on_start=start, on_step=step)
                run.examine_unless_done(finished, lengths=planned.lengths)
                _read(place)
            except Exception as error:
                fault = in_one_line(f"{type(error).__name__}: {error}")
            else:
                return ""
    return fault


def in_one_line(text: str) -> str:
    """The words of a text, which may have several lines, in one."""
    return " ".join(text.split())


@contextlib.contextmanager
def _alone(place: Path) -> Generator[None]:
    """Keep other sweeps from a run, its exam included; BusyError where one is at it, or a training that no sweep began."""
    place.mkdir(parents=True, exist_ok=True)
    with open(place / LOCK, "ab") as file:
        try:
            # Of a file system without locks training warns.
            lock(file, wait=False)
        except BlockingIOError:
            raise BusyError(place) from None
        try:
            with locked(place):
                pass
        except ValueError:
            raise BusyError(place) from None
        yield


def append_line(path: Path, folder: Path, command: str) -> None:
    """Append a finished run to a file of JSON lines unless it stands there with all of its exam; a line that a kill cut short goes."""
    (found,) = report.read_runs([folder])
    with open(path, "a+b") as file:
        # Two sweeps may share a file.
        lock(file)
        file.seek(0)
        for known in _parsed(path, file.read()):
            same = "config" in known and identity(known["config"]) == identity(found.config)
            measured = known.get("exam") or known.get("text") or known.get("images") or ()
            if same and len(measured) >= len(found.exam or found.text or found.images):
                return
        try:
            end_last_line(file, OPENING)
            file.write(found.to_json(command).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        except OSError as error:
            raise not_written(path, error) from error


def _parsed(path: Path, content: bytes) -> list[dict[str, Any]]:
    """The lines, but for a last one that was cut short; ValueError where one is not relnet's."""
    lines = content.splitlines(keepends=True)
    if lines and not lines[-1].endswith(b"\n") and is_cut_short(lines[-1], OPENING):
        lines.pop()
    found = []
    for number, line in enumerate(lines, start=1):
        try:
            found.append(_checked(json.loads(line)))
        except ValueError:
            raise ValueError(f"{path}, line {number} is none of relnet's; give another file for the runs") from None
    return found


def _checked(value: Any) -> dict[str, Any]:
    """The value of a line; ValueError unless it is what relnet writes of a run, or of an exam, which has no config."""
    if not isinstance(value, dict) or "format" not in value:
        raise ValueError
    config, measured = value.get("config", {"train": {}}), [value.get(name, []) for name in ("exam", "text", "images")]
    if not isinstance(config, dict) or not isinstance(config.get("train"), dict):
        raise ValueError
    if not all(isinstance(rows, list) for rows in measured):
        raise ValueError
    return value


class TimeLeft:
    """Estimates about how long the rest of a sweep trains at most: updates that are left, times the time of an update so far.

    An update's time is taken as proportional to its tokens, at the rate of the runs of the same name at the nearest length, else at that
    of all runs. Exams are not counted, and of a quadratic model at lengths that none was seen at too little is.

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
        # By name and length of a row.
        self._seconds: dict[tuple[str, int], float] = {}
        self._tokens: dict[tuple[str, int], float] = {}

    def took(self, planned: PlannedRun, step: int, seconds: float) -> None:
        """Count update number `step` of a run, which took `seconds`."""
        seen = planned.config.name, planned.config.task.context
        self._left[planned] = planned.config.train.steps - step
        self._seconds[seen] = self._seconds.get(seen, 0.0) + seconds
        self._tokens[seen] = self._tokens.get(seen, 0.0) + _tokens(planned)

    def over(self, planned: PlannedRun) -> None:
        """Count a run as over, finished or not."""
        self._left[planned] = 0

    def seconds(self) -> float | None:
        """Return the estimate, None before the first update."""
        if not self._tokens:
            return None
        return sum(updates * _tokens(planned) * self._rate(planned) for planned, updates in self._left.items())

    def _rate(self, planned: PlannedRun) -> float:
        """Seconds a token."""
        name, context = planned.config.name, planned.config.task.context
        if alike := [length for other, length in self._tokens if other == name]:
            nearest = name, min(alike, key=lambda length: abs(length - context))
            return self._seconds[nearest] / self._tokens[nearest]
        return sum(self._seconds.values()) / sum(self._tokens.values())


def _tokens(planned: PlannedRun) -> int:
    return planned.config.train.batch_size * planned.config.task.context


def prepared(
    runs: Sequence[PlannedRun], on_progress: Callable[[str, int, int | None], None] | None = None
) -> list[PlannedRun]:
    """Return the runs, each text that they train on prepared and named by its content (`relnet.run.prepared`)."""
    configs = run.prepared([planned.config for planned in runs], on_progress)
    return [dataclasses.replace(planned, config=config) for planned, config in zip(runs, configs, strict=True)]
