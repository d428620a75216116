"""relnet sweep."""

import contextlib
import shlex
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from relnet import recipes, report, sweep
from relnet.commands.console import out, status
from relnet.commands.maps import image_maps
from relnet.commands.train import described
from relnet.progress import PreparingProgress, TrainingProgress
from relnet.run import AnyModel
from relnet.sweep import Plan, PlannedRun, RunsFailedError, TimeLeft
from relnet.train import StepRecord, num_processes

# Images held out whose maps figure 8 shows.
MAPPED = 10
# Seconds between two lines about runs that train elsewhere.
TELLING = 30

SweepRecipe = (
    Annotated[Plan, described("figure2", recipes.figure2)]
    | Annotated[Plan, described("figure3", recipes.figure3)]
    | Annotated[Plan, described("figure4", recipes.figure4)]
    | Annotated[Plan, described("figure6", recipes.figure6)]
    | Annotated[Plan, described("figure7", recipes.figure7)]
    | Annotated[Plan, described("figure8", recipes.figure8)]
    | Annotated[Plan, described("heads-lr", recipes.heads_lr)]
    | Annotated[Plan, described("exam-copying", recipes.exam_copying)]
    | Annotated[Plan, described("exam-lengths", recipes.exam_lengths)]
    | Annotated[Plan, described("exam-lookup", recipes.exam_lookup)]
)


@dataclass(frozen=True)
class Sweep:
    """Train and examine all runs of a figure; what is finished is not done again, so the same command goes on after Ctrl-C or a kill."""

    plan: SweepRecipe
    """which figure"""
    out: Path | None = None
    """Folder of the run folders; default: $RELNET_RUNS, or relnet/runs in the user's data folder (~/.local/share)."""
    json: Path | None = None
    """File to append each finished run to, one JSON line, once."""
    figure: Path | None = None
    """PNG file of the figure; an existing file is kept and a new name chosen. Default: figures/NAME.png beside the run folders.
    An exam has several: a folder of this name, without .png."""
    budget: float | None = None
    """Hours, after which the run that trains is saved and no other is begun."""
    on: Literal["here", "ray"] = "here"
    """here: one run after another; ray: at once, as far as a Ray cluster has room (the extra ray), which sees --out and all data."""
    address: str | None = None
    """Of the Ray cluster; default: one that is started on this machine."""
    device: str = "auto"
    """auto, cpu, cuda, mps, or one GPU such as cuda:1."""

    def __call__(self) -> None:
        """Run the command."""
        if self.budget is not None and not self.budget > 0:
            raise ValueError(f"budget {self.budget:g}: hours above 0 wanted")
        if self.figure is not None:
            report.check_png(self.figure)
        if num_processes() > 1:
            raise ValueError("a sweep starts its runs itself: call relnet sweep without accelerate launch")
        with PreparingProgress(status) as preparing:
            runs = sweep.prepared(self.plan.runs, preparing)
        folder = self.out or sweep.root()
        status.print(f"{self.plan.name}: {len(runs)} runs; run folders in {folder}")
        with _Shown(runs) as shown, _told_how_to_go_on():
            outcome = self._swept(runs, folder, shown)
        if outcome.left:
            out.print(
                f"the budget is used up: {len(outcome.left)} of {len(runs)} runs are left; the same command goes on"
            )
        try:
            if outcome.finished:
                self._show(report.read_runs(outcome.finished), folder)
        except Exception as error:
            if not outcome.failed:
                raise
            # What failed is not to go unsaid.
            status.print(f"no figure: {type(error).__name__}: {error}")
        if outcome.failed:
            faults = "; ".join(f"{place.name}: {fault}" for place, fault in outcome.failed.items())
            raise RunsFailedError(f"{len(outcome.failed)} of {len(runs)} runs failed twice: {faults}")

    def _swept(self, runs: list[PlannedRun], folder: Path, shown: "_Shown") -> sweep.Outcome:
        budget = None if self.budget is None else 3600 * self.budget
        command = shlex.join(["relnet", *sys.argv[1:]])
        told: dict[str, Any] = {
            "device": self.device,
            "budget": budget,
            "lines": self.json,
            "command": command,
            "on_end": shown.end,
            "on_wait": shown.wait,
        }
        if self.on == "ray":
            # Here and not above: Ray is an extra.
            from relnet.sweep_ray import sweep_on_ray

            return sweep_on_ray(runs, folder, address=self.address, on_begin=shown.begin, on_look=shown.look, **told)
        return sweep.sweep(runs, folder, on_start=shown.start, on_step=shown.step, **told)

    def _show(self, runs: list[report.Run], folder: Path) -> None:
        path = self.figure or folder / "figures" / f"{self.plan.name}.png"
        note = f"Not as in the paper: {self.plan.changes}." if self.plan.changes else ""
        if self.plan.figure == "maps":
            out.print(report.table(runs))
            for one in runs:
                middle = (one.config["model"]["depth"] + 1) // 2
                first = range(min(MAPPED, one.images[-1]["images"]))
                image_maps(one.folder, (), first, (middle,), device=self.device, figure=path, note=note)
            return
        if self.plan.figure == "exam":
            lines = [line for run in runs for line in report.exam_lines(run.config, run.result, run.exam)]
            out.print(report.verdict(lines))
            made = report.exam_figures(lines, path.with_suffix(""), note)
        else:
            out.print(report.table(runs))
            if self.plan.figure == "curves":
                made = [report.learning_curves(runs, path, note)]
            else:
                made = [report.steps_figure(runs, path, self.plan.figure, note)]
        out.print(f"figure: {', '.join(map(str, made))}" + (f"; {note}" if note else ""))


@contextlib.contextmanager
def _told_how_to_go_on() -> Generator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped; what is done is kept, and the same command goes on") from None


class _Shown(contextlib.ExitStack):
    """What is shown while a sweep goes on: each run's progress, and behind it the time left for all."""

    def __init__(self, runs: list[PlannedRun]) -> None:
        super().__init__()
        self._runs, self._left, self._ended = runs, TimeLeft(runs), 0
        self._elsewhere: set[PlannedRun] = set()
        self._told = time.monotonic()

    def start(self, planned: PlannedRun, model: AnyModel) -> None:
        """Show that a run begins."""
        # A run that failed is begun again.
        self.close()
        number = self._runs.index(planned) + 1
        status.print(
            f"run {number} of {len(self._runs)}: {planned.name}, {model.num_parameters:,} weights, "
            f"at most {planned.config.train.steps:,} steps{self._behind()}"
        )
        self._begun = False
        name = f"{number}/{len(self._runs)} {planned.config.name}"
        self._progress = self.enter_context(TrainingProgress(name, planned.config.train.steps, status, self._behind))

    def step(self, planned: PlannedRun, record: StepRecord) -> None:
        """Show an update."""
        if not self._begun and record.step > 1:
            status.print(f"{planned.name} goes on after update {record.step - 1:,}")
        self._begun = True
        self._left.took(planned, record.step, record.seconds)
        self._progress(record)

    def begin(self, planned: PlannedRun) -> None:
        """Show that a run has begun elsewhere."""
        self._elsewhere.add(planned)
        status.print(f"{self._done}: {planned.name} has begun")

    def look(self, planned: PlannedRun, step: int, seconds: float) -> None:
        """Show now and then how many runs train elsewhere, and the time left for all."""
        self._left.took(planned, step, seconds)
        if time.monotonic() > self._told + TELLING:
            self._told = time.monotonic()
            status.print(f"{self._done}, {len(self._elsewhere)} training{self._behind()}")

    def wait(self, busy: Sequence[PlannedRun]) -> None:
        """Show which runs are waited for."""
        names = ", ".join(planned.name for planned in busy)
        status.print(f"{self._done}: waiting for what another process is at: {names}")

    def end(self, planned: PlannedRun, fault: str) -> None:
        """Show how a run ended."""
        self.close()
        self._elsewhere.discard(planned)
        self._left.over(planned)
        self._ended += 1
        status.print(f"{self._done}: {planned.name}" + (f" failed twice: {fault}" if fault else ""))

    @property
    def _done(self) -> str:
        return f"{self._ended} of {len(self._runs)} done"

    def _behind(self) -> str:
        seconds = self._left.seconds()
        if seconds is None:
            return ""
        return f"; all runs: about {report.duration(seconds / max(1, len(self._elsewhere)))}, without exams"
