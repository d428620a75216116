"""relnet train."""

import contextlib
import dataclasses
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from relnet import recipes, report, run
from relnet.commands.console import out, status
from relnet.commands.resuming import check_resumable
from relnet.curvature.penalties import Norm
from relnet.progress import PreparingProgress, TrainingProgress
from relnet.run import RunConfig
from relnet.train import CurvaturePenalty, seconds_per_step


def _brief(function) -> str:
    """First paragraphs of a recipe's docstring, without its arguments."""
    return (inspect.getdoc(function) or "").partition("Args:")[0].strip()


def described(name: str, function) -> object:
    """A recipe as a subcommand, described by its docstring."""
    return tyro.conf.subcommand(name, constructor=function, description=_brief(function))


TrainRecipe = (
    Annotated[RunConfig, described("copying", recipes.copying)]
    | Annotated[RunConfig, described("paper-copying", recipes.paper_copying)]
    | Annotated[RunConfig, described("long-copying", recipes.long_copying)]
    | Annotated[RunConfig, described("text", recipes.text)]
    | Annotated[RunConfig, described("paper-text", recipes.paper_text)]
    | Annotated[RunConfig, described("images", recipes.images)]
    | Annotated[RunConfig, described("paper-images", recipes.paper_images)]
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
    jacobian_weight: float = 0.0
    """In the loss, of the squared norm of the logits' Jacobian by the embedded input; the log's `penalty` is what it adds."""
    hessian_weight: float = 0.0
    """Of the squared norm of the Hessian of a string's mean cross-entropy by the embedded input."""
    penalty_norm: Norm = "spectral"
    """spectral: the largest singular value; frobenius: all of them."""
    penalty_iters: int = 4
    """Solver steps (spectral) or random probes (frobenius) of a penalty."""

    def __call__(self) -> None:
        """Run the command."""
        if self.resume:
            check_resumable(self.out)
        with PreparingProgress(status) as preparing:
            (config,) = run.prepared([self._penalised()], preparing)
        task, settings = config.task, config.train

        def start(_: RunConfig, model: run.AnyModel) -> None:
            status.print(
                f"{config.name} on {task.name}, {task.rows}: {model.num_parameters:,} weights without "
                f"embeddings, at most {settings.steps} steps of {settings.batch_size}; run folder: {folder}"
            )
            seconds = seconds_per_step(model, task, settings, self.device, config.penalty)
            status.print(f"about {seconds:.2f} s a step: at most {report.duration(seconds * settings.steps)}")
            shown.enter_context(progress)

        progress = TrainingProgress(config.name, settings.steps, status)
        with run.run_folder(self.out, f"{config.name}-{task.label}") as folder:
            with contextlib.ExitStack() as shown:
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

    def _penalised(self) -> RunConfig:
        weights = (self.jacobian_weight, self.hessian_weight)
        # 0 is no penalty; whatever else is given, CurvaturePenalty takes or refuses.
        penalty = CurvaturePenalty(*weights, self.penalty_norm, self.penalty_iters) if any(weights) else None
        return dataclasses.replace(self.recipe, penalty=penalty)
