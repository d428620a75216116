"""Live progress of preparing a text and of training: a bar on a terminal, a line every ten seconds elsewhere (a file, a pipe, CI)."""

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from relnet.report import duration
from relnet.train import StepRecord

SECONDS_BETWEEN_LINES = 10.0


class TrainingProgress:
    """Shows steps, loss, accuracy, steps a second and time left; call it with each update's record.

    behind: what to show behind it all.
    """

    def __init__(self, name: str, steps: int, console: Console, behind: Callable[[], str] = str) -> None:
        self._name, self._steps, self._console, self._behind = name, steps, console, behind
        self._first_step: int | None = None
        self._validation = ""
        self._bar = None
        if console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TextColumn("{task.fields[numbers]}"),
                TimeRemainingColumn(compact=True),
                TextColumn("left{task.fields[behind]}"),
                console=console,
            )

    def __enter__(self) -> "TrainingProgress":
        self._began = self._last_line = time.monotonic()
        if self._bar:
            self._bar.start()
            self._task = self._bar.add_task(self._name, total=self._steps, numbers="", behind="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, record: StepRecord) -> None:
        """Show one more update."""
        if self._first_step is None:
            # A resumed run does not start at 1.
            self._first_step = record.step - 1
        if record.bits_per_byte is not None:
            self._validation = f"  validation {record.bits_per_byte:.3f} bits/byte"
        if record.test_accuracy is not None:
            self._validation = f"  test {record.test_accuracy:.1%}"
        elapsed = max(time.monotonic() - self._began, 1e-9)
        speed = (record.step - self._first_step) / elapsed
        penalty = "" if record.penalty is None else f"  penalty {record.penalty:.3g}"
        numbers = f"loss {record.loss:.3f}{penalty}  accuracy {record.window_accuracy:6.1%}{self._validation}  {speed:.2f} steps/s"
        if self._bar:
            self._bar.update(self._task, completed=record.step, numbers=numbers, behind=self._behind())
        elif time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES or record.step == self._steps:
            self._last_line = time.monotonic()
            left = (self._steps - record.step) / speed
            self._console.print(
                f"{self._name}  step {record.step}/{self._steps}  {numbers}  at most {duration(left)} left{self._behind()}"
            )


class PreparingProgress:
    """Shows how far a text is read or prepared; call it with what is done, the bytes done, and all bytes (None: not known)."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bar: Progress | None = None
        self._last_line = time.monotonic()

    def __enter__(self) -> "PreparingProgress":
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar:
            self._bar.stop()

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Show that `done` bytes are done."""
        if self._console.is_terminal:
            if self._bar is None:
                # Only now: most tasks have nothing to prepare.
                columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), DownloadColumn())
                self._bar = Progress(*columns, console=self._console)
                self._bar.start()
                self._task = self._bar.add_task(what)
            self._bar.update(self._task, description=what, completed=done, total=total)
        elif time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            whole = "" if total is None else f" of {total / 1e6:,.0f}"
            self._console.print(f"{what}: {done / 1e6:,.0f}{whole} MB")
