"""Live progress of training: a bar on a terminal, a line every ten seconds elsewhere (a file, a pipe, CI)."""

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from relnet.report import duration
from relnet.train import StepRecord

SECONDS_BETWEEN_LINES = 10.0


class TrainingProgress:
    """Shows steps, loss, accuracy, steps a second and time left; call it with each update's record."""

    def __init__(self, name: str, steps: int, console: Console) -> None:
        self._name, self._steps, self._console = name, steps, console
        self._first_step: int | None = None
        self._bar = None
        if console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TextColumn("{task.fields[numbers]}"),
                TimeRemainingColumn(compact=True),
                TextColumn("left"),
                console=console,
            )

    def __enter__(self) -> "TrainingProgress":
        self._began = self._last_line = time.monotonic()
        if self._bar:
            self._bar.start()
            self._task = self._bar.add_task(self._name, total=self._steps, numbers="")
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
        elapsed = max(time.monotonic() - self._began, 1e-9)
        speed = (record.step - self._first_step) / elapsed
        numbers = f"loss {record.loss:.3f}  accuracy {record.window_accuracy:6.1%}  {speed:.2f} steps/s"
        if self._bar:
            self._bar.update(self._task, completed=record.step, numbers=numbers)
        elif time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES or record.step == self._steps:
            self._last_line = time.monotonic()
            left = (self._steps - record.step) / speed
            self._console.print(
                f"{self._name}  step {record.step}/{self._steps}  {numbers}  at most {duration(left)} left"
            )
