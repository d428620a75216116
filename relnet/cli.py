"""The relnet command: parses, calls, prints. Every option comes from a type or a recipe's signature."""

import contextlib
import io
import itertools
import logging
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

import relnet
from relnet import exam, nn, recipes, report, run
from relnet.progress import TrainingProgress
from relnet.run import RunConfig
from relnet.train import is_main_process, seconds_per_step

# Results go to stdout, what happens meanwhile to stderr: a pipe gets the results only.
out = Console(markup=False, highlight=False, soft_wrap=True)
status = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)


def _brief(function) -> str:
    """First paragraphs of a recipe's docstring, without its arguments."""
    return (function.__doc__ or "").partition("Args:")[0].strip()


def _recipe(name: str, function) -> object:
    return tyro.conf.subcommand(name, constructor=function, description=_brief(function))


TrainRecipe = (
    Annotated[RunConfig, _recipe("copying", recipes.copying)]
    | Annotated[RunConfig, _recipe("paper-copying", recipes.paper_copying)]
)


@dataclass(frozen=True)
class Train:
    """Train one model by a recipe. Ctrl-C saves; --resume goes on."""

    recipe: TrainRecipe
    """what to learn"""
    out: Path | None = None
    """Run folder; default: a new one under $RELNET_RUNS or ./runs."""
    resume: bool = False
    """Go on with the run in --out."""
    device: str = "auto"
    """auto, cpu, cuda, mps, or one GPU such as cuda:1."""
    track: tuple[str, ...] = ()
    """Other places to log to, by accelerate's names (tensorboard, wandb, ...); log.jsonl is always written."""

    def __call__(self) -> None:
        """Run the command."""
        config, task, settings = self.recipe, self.recipe.task, self.recipe.train
        if self.resume:
            _check_resumable(self.out)

        def start(_: RunConfig, model: nn.SequenceModel) -> None:
            status.print(
                f"{config.name} on {task.name}, strings of {task.length}: {model.num_parameters:,} weights without "
                f"embeddings, at most {settings.steps} steps of {settings.batch_size} strings; run folder: {folder}"
            )
            seconds = seconds_per_step(model, task, settings, self.device)
            status.print(f"about {seconds:.2f} s a step: at most {report.duration(seconds * settings.steps)}")
            shown.enter_context(progress)

        progress = TrainingProgress(config.name, settings.steps, status)
        named = run.run_folder(self.out, f"{config.name}-{task.name}-{task.length}")
        with named as folder, contextlib.ExitStack() as shown:
            finished = run.train(
                config,
                folder,
                device=self.device,
                resume=self.resume,
                on_start=start,
                on_step=progress,
                trackers=self.track,
            )
        with status.status("examining ..."):
            run.examine_unless_done(finished)
        out.print(report.table(report.read_runs([finished.folder])))


def _check_resumable(out: Path | None, names: Sequence[str] = ("",)) -> None:
    """Raise ValueError where there is no run to go on with, as after a slip of the pen in --out."""
    if out is None:
        raise ValueError("--resume needs --out FOLDER, what to go on with")
    if not any((out / name / "config.json").exists() for name in names):
        raise ValueError(f"{out} holds nothing to go on with; give the folder that was begun, or leave out --resume")


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
            _check_resumable(self.out, [config.name for config in configs])
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


@dataclass(frozen=True)
class Exam:
    """Examine trained runs: copying, teacher-forced and free-running. Results are added to each run's exam.jsonl."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of finished runs."""
    lengths: tuple[int, ...] = ()
    """Letters in the strings; default: the trained length."""
    num: int = 320
    """Strings a length and seed."""
    seeds: tuple[int, ...] = (0,)
    """Of the strings."""
    batch_size: int = 64
    """Strings asked at once."""
    data: Path | None = None
    """Text file of strings of yours, one a line, to ask in place of random ones; these results are shown, not kept."""
    device: str = "auto"
    """auto, cpu, cuda, mps, or one GPU such as cuda:1."""

    def __call__(self) -> None:
        """Run the command."""
        if not self.runs:
            raise ValueError("no run folder given; give the folders that relnet train made")
        for folder in self.runs:
            run.examine(
                folder,
                lengths=self.lengths or None,
                seeds=self.seeds,
                num=self.num,
                batch_size=self.batch_size,
                data=self.data,
                device=self.device,
                # Results that are kept come in the table below.
                on_row=lambda row: _show_row(row, out if self.data else status),
            )
        if not self.data:
            out.print(report.table(report.read_runs(self.runs)))


def _show_row(row: exam.Row, console: Console) -> None:
    share = f"{row.exact}/{row.items} strings exact" if row.items else row.note
    console.print(f"{row.subject}  length {row.length}  seed {row.seed}  {row.mode}: {share}")


@dataclass(frozen=True)
class Report:
    """Print the table of runs and draw their learning curves."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, or folders of run folders."""
    figure: Path | None = None
    """PNG file of the learning curves; an existing file is kept and a new name chosen. Default: curves.png in the first folder."""
    markdown: bool = False
    """Print the table as Markdown."""
    json: Path | None = None
    """New file to write one JSON line a run into: config, result, exam and curve, to keep when the run folders are gone."""
    command: str = ""
    """The command that made the runs, to stand in --json's lines."""

    def __call__(self) -> None:
        """Run the command."""
        if not self.folders:
            raise ValueError("no folder given; give run folders, or a folder of them")
        runs = report.read_runs(self.folders)
        out.print((report.markdown if self.markdown else report.table)(runs))
        path = report.learning_curves(runs, self.figure or self.folders[0] / "curves.png")
        out.print(f"\nlearning curves: {path}")
        if self.json:
            with self.json.open("x") as file:
                file.writelines(one.to_json(self.command) + "\n" for one in runs)
            out.print(f"JSON lines: {self.json}")


Command = (
    Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Exam, tyro.conf.subcommand("exam")]
    | Annotated[Report, tyro.conf.subcommand("report")]
)


def parse(arguments: Sequence[str] | None = None) -> Command:
    """Return the command that the arguments name; SystemExit 2 with one line on stderr where they do not fit."""
    captured = io.StringIO()
    try:
        with contextlib.redirect_stderr(captured):
            return tyro.cli(
                Command,
                prog="relnet",
                description="Sequence models made of MLPs over pairs of positions, and an exam of what sequence models remember.",
                args=arguments,
                config=(
                    tyro.conf.CascadeSubcommandArgs,
                    tyro.conf.OmitArgPrefixes,
                    tyro.conf.OmitSubcommandPrefixes,
                ),
            )
    except SystemExit as ended:
        if ended.code:
            _complain(_one_line(captured.getvalue()))
        raise


def _one_line(box: str) -> str:
    """What tyro says in a drawn box, as one line: the first row is its title."""
    rows = [re.sub(r"[─│╭╮╰╯]", " ", row).strip() for row in box.splitlines()]
    return " ".join(row for row in rows[1:] if row)


def _complain(message: str) -> None:
    print(f"relnet: {message}", file=sys.stderr)


def _resuming(arguments: Sequence[str], folder: Path) -> str:
    """The same command, told to go on in its folder."""
    words = ["relnet", *arguments]
    words += [] if "--out" in words else ["--out", str(folder)]
    words += [] if "--resume" in words else ["--resume"]
    return shlex.join(words)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: 0, 1 (failed), 2 (a mistake in what was asked), 130 (Ctrl-C).

    With several processes the others help to train and say nothing but why they failed.
    """
    main_process = is_main_process()
    out.quiet = status.quiet = not main_process
    logging.basicConfig(format="relnet: %(message)s", level=logging.WARNING if main_process else logging.ERROR)
    if list(sys.argv[1:] if arguments is None else arguments) == ["--version"]:
        out.print(f"relnet {relnet.__version__}")
        return 0
    command = None
    try:
        command = parse(arguments)
        if main_process or isinstance(command, Train | Compare):
            command()
    except (ValueError, FileNotFoundError, FileExistsError) as error:
        _complain(str(error))
        return 2
    except (OSError, FloatingPointError, NotImplementedError) as error:
        _complain(str(error))
        return 1
    except KeyboardInterrupt as error:
        _complain(str(error) or "stopped")
        if isinstance(command, Train | Compare) and (folder := command.out or run.newest_folder()):
            _complain(f"to go on: {_resuming(sys.argv[1:] if arguments is None else arguments, folder)}")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
