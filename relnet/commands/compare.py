"""relnet compare."""

import contextlib
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from relnet import exam, recipes, report, run, tasks
from relnet.commands.console import out, status
from relnet.commands.resuming import check_resumable
from relnet.progress import PreparingProgress, TrainingProgress
from relnet.run import RunConfig
from relnet.train import is_main_process

CompareRecipe = (
    Annotated[tuple[RunConfig, ...], tyro.conf.subcommand("copying", constructor=recipes.compare_copying)]
    | Annotated[tuple[RunConfig, ...], tyro.conf.subcommand("text", constructor=recipes.compare_text)]
    | Annotated[tuple[RunConfig, ...], tyro.conf.subcommand("images", constructor=recipes.compare_images)]
)


@dataclass(frozen=True)
class Compare:
    """Train several models on the same task, examine them, and draw their learning curves."""

    configs: CompareRecipe
    """what to learn"""
    string: str = "hello"
    """Copying: letters a-z for each model to copy; repeated or cut to the trained length."""
    prompt: str = run.PROMPT
    """Text: what each model goes on from."""
    out: Path | None = None
    """Folder of the runs; default: a new one under $RELNET_RUNS or ./runs."""
    resume: bool = False
    """Go on with the comparison in --out: finished runs are kept, the others resumed."""
    device: str = "auto"
    """auto, cpu, cuda, mps, or one GPU such as cuda:1."""

    def __call__(self) -> None:
        """Run the command."""
        if self.resume:
            check_resumable(self.out, [config.name for config in self.configs])
        with PreparingProgress(status) as preparing:
            configs = run.prepared(self.configs, preparing)
        task = configs[0].task
        self._check_words(task)
        progress: TrainingProgress

        def start(config: RunConfig, _: run.AnyModel) -> None:
            nonlocal progress
            shown.close()
            progress = shown.enter_context(TrainingProgress(config.name, config.train.steps, status))

        named = run.run_folder(self.out, f"compare-{task.label}")
        with named as folder, contextlib.ExitStack() as shown:
            status.print(f"{len(configs)} models on {task.name}, {task.rows}; run folders in {folder}")
            finished = run.compare(
                configs,
                folder,
                device=self.device,
                resume=self.resume,
                prompt=self.prompt,
                on_start=start,
                on_step=lambda record: progress(record),
            )
        if not is_main_process():
            return
        runs = report.read_runs([one.folder for one in finished])
        out.print(report.table(runs))
        if isinstance(task, tasks.Copying):
            self._copy(task, finished)
        figure = report.learning_curves(runs, folder / "curves.png")
        out.print(f"\nlearning curves: {figure}")

    def _check_words(self, task: tasks.AnyTask) -> None:
        """Refuse what the models cannot be asked in the end now, not after minutes of training."""
        if isinstance(task, tasks.Copying):
            task.encode(self.string)
        elif isinstance(task, tasks.Text) and (found := len(task.encode(self.prompt))) > task.context:
            raise ValueError(f"--prompt has {found} tokens, the models take {task.context}: give a shorter one")

    def _copy(self, task: tasks.Copying, finished: list[run.Run]) -> None:
        text = "".join(itertools.islice(itertools.cycle(self.string), task.length))
        change = "" if text == self.string else f" (repeated or cut to the trained {task.length} letters)"
        out.print(f"\nThe string {self.string!r}{change}, copied without help:\n")
        width = max(len(one.config.name) for one in finished)
        out.print(f"  {'':{width}}  {text}")
        for one in finished:
            subject = exam.ModelSubject(one.model, name=one.config.name)
            out.print(f"  {one.config.name:{width}}  {exam.complete(subject, task, text)}")
