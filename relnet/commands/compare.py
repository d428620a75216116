"""relnet compare."""

import contextlib
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from relnet import exam, nn, recipes, report, run
from relnet.commands.console import out, status
from relnet.commands.resuming import check_resumable
from relnet.progress import TrainingProgress
from relnet.run import RunConfig
from relnet.train import is_main_process


@dataclass(frozen=True)
class Compare:
    """Train several models on the same task, examine them, and draw their learning curves."""

    task: tyro.conf.Positional[Literal["copying"]]
    """What to learn."""
    configs: Annotated[tuple[RunConfig, ...], tyro.conf.arg(constructor=recipes.compare_copying)]
    string: str = "hello"
    """Letters a-z for each model to copy; repeated or cut to the trained length."""
    out: Path | None = None
    """Folder of the runs; default: a new one under $RELNET_RUNS or ./runs."""
    resume: bool = False
    """Go on with the comparison in --out: finished runs are kept, the others resumed."""
    device: str = "auto"
    """auto, cpu, cuda, mps, or one GPU such as cuda:1."""

    def __call__(self) -> None:
        """Run the command."""
        configs = self.configs
        if self.resume:
            check_resumable(self.out, [config.name for config in configs])
        task = configs[0].task
        # Refused now, not after minutes of training.
        task.encode(self.string)
        text = "".join(itertools.islice(itertools.cycle(self.string), task.length))
        progress: TrainingProgress

        def start(config: RunConfig, _: nn.SequenceModel) -> None:
            nonlocal progress
            shown.close()
            progress = shown.enter_context(TrainingProgress(config.name, config.train.steps, status))

        named = run.run_folder(self.out, f"compare-{task.name}-{task.length}")
        with named as folder, contextlib.ExitStack() as shown:
            status.print(f"{len(configs)} models on {task.name}, strings of {task.length}; run folders in {folder}")
            finished = run.compare(
                configs,
                folder,
                device=self.device,
                resume=self.resume,
                on_start=start,
                on_step=lambda record: progress(record),
            )
        if not is_main_process():
            return
        runs = report.read_runs([one.folder for one in finished])
        out.print(report.table(runs))
        change = "" if text == self.string else f" (repeated or cut to the trained {task.length} letters)"
        out.print(f"\nThe string {self.string!r}{change}, copied without help:\n")
        width = max(len(config.name) for config in configs)
        out.print(f"  {'':{width}}  {text}")
        for one in finished:
            subject = exam.ModelSubject(one.model, name=one.config.name)
            out.print(f"  {one.config.name:{width}}  {exam.complete(subject, task, text)}")
        figure = report.learning_curves(runs, folder / "curves.png")
        out.print(f"\nlearning curves: {figure}")
