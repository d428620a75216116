"""The training loop: sample, forward, backward, clip, update, log, save; and the same again after a kill.

    n   updates done, from 0                R   processes
    B   strings an update (batch_size)      k   micro-batches of a process an update (accumulate)

Update n trains on items n B to (n + 1) B - 1 of the task; process r of R takes its r-th share of them, in k pieces.
The loss is the cross-entropy averaged over all targets of the B strings, so neither R nor k changes it beyond rounding; a penalty is
averaged over the strings.
Where a run stands is therefore n, the weights, the optimiser, torch's generators and the meter: a checkpoint.
"""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from relnet.tasks import IGNORE, TrainingTask
from relnet.train.checkpoint import (
    Checkpoint,
    checkpoint_tensors,
    copy_weights,
    load_weights,
    save_checkpoint,
    save_weights,
    to_resume,
)
from relnet.train.config import TrainConfig, TrainResult, check_settings, settings
from relnet.train.engine import Engine
from relnet.train.folder import check_folder, locked
from relnet.train.gradients import add_gradients
from relnet.train.interrupt import CtrlC, StopTrainingError
from relnet.train.log import (
    RESULT_FORMAT,
    ClassValidation,
    StepLog,
    StepRecord,
    Validation,
    commit,
    machine,
    read_log,
    read_result,
    versions,
    write_result,
)
from relnet.train.meter import Meter
from relnet.train.optim import learning_rate, make_optimiser, optimiser_tensors, restore_optimiser
from relnet.train.penalty import Penalty

GIVEN_UP_BELOW = 0.5


def train(
    model: nn.Module,
    task: TrainingTask,
    config: TrainConfig,
    folder: str | Path,
    *,
    device: str = "auto",
    on_start: Callable[[], None] | None = None,
    on_step: Callable[[StepRecord], None] | None = None,
    validate: Callable[[], Validation | ClassValidation] | None = None,
    penalty: Penalty | None = None,
    trackers: Sequence[Any] = (),
    resume: bool = False,
) -> TrainResult:
    """Train `model` in place on `task` and keep in `folder` the log, checkpoints, final weights and result.

    model: called as `logits, state = model(ids)`, ids (B, S) int64, logits (B, S, vocabulary), or as `logits = model(inputs)`, logits
        (B, classes), for targets (B,); the caller has initialised it. It is left in training mode, torch's generators as they were.
    folder: new, or with `resume=True` one that a run like this left: it goes on after the newest good checkpoint, from
        the start where nothing was done, and returns the result at once where it is finished.
    device: "auto", "cpu", "cuda", "mps" or one GPU such as "cuda:1".
    on_start: called on the main process once nothing more is refused, before anything is computed or written; not
        where the run is finished.
    on_step: called with a `StepRecord` after each update, on the main process; where it raises StopTrainingError, that is a first Ctrl-C.
    validate: measures the model on data that are not trained on, on the main process: after each `config.validate_every` updates and after
        the last; it leaves the model and torch's generators as they are.
    penalty: of model, inputs and targets of a micro-batch: what is added to its loss, the mean over its strings, e.g.
        `CurvaturePenalty`; its repr is one of the run's settings.
    trackers: accelerate's, by name or as objects.

    ValueError: a folder that already holds a run or that a run trains in, another task or other settings than the
    run's, no usable checkpoint for the updates in the log, a batch that cannot be shared out, an unknown device or
    tracker. FloatingPointError: a loss or gradient that is not finite. OSError: no room on the disk. KeyboardInterrupt:
    at the first Ctrl-C after finishing the update and saving a checkpoint, at the second at once. The last checkpoint
    survives all of them.

    >>> import tempfile, torch
    >>> from relnet.tasks import Copying
    >>> class Bigram(torch.nn.Embedding):
    ...     def forward(self, ids):
    ...         return super().forward(ids), None
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     result = train(Bigram(29, 29), Copying(length=4), TrainConfig(steps=2), folder, device="cpu")
    >>> result.steps, result.stopped
    (2, 'limit')
    """
    folder = Path(folder)
    engine = Engine(device, trackers, folder)
    engine.share(config.batch_size, config.accumulate)
    check_folder(folder, resume)
    engine.wait()  # No process may take what another one has just begun to write for an earlier run.
    told = settings(task, config, penalty)
    if resume and (result := read_result(folder)):
        check_settings(folder, result.settings, told)
        load_weights(model.to(engine.device), folder / "model.safetensors")
        return result
    with locked(folder) if engine.is_main else nullcontext():
        checkpoint = to_resume(folder, model, told, engine.surroundings()) if resume else None
        with engine.tracking(told):
            if on_start and engine.is_main:
                on_start()
            with engine.seeded(config.seed):
                return _Training(model, config, told, folder, engine, penalty).run(task, checkpoint, on_step, validate)


class _Training:
    """Where a run stands, and how it goes one update further, is saved and is restored."""

    def __init__(
        self,
        model: nn.Module,
        config: TrainConfig,
        told: Mapping[str, Any],
        folder: Path,
        engine: Engine,
        penalty: Penalty | None,
    ):
        self.model, self.config, self.told, self.folder, self.engine = model.train(), config, told, folder, engine
        self.penalty = penalty
        self.began = time.perf_counter()
        self.prepared = engine.prepare(model)
        self.optimiser = make_optimiser(model, config)
        self.meter = Meter(config.stop_accuracy, config.stay)
        self.step = 0

    def run(
        self,
        task: TrainingTask,
        checkpoint: Checkpoint | None,
        on_step: Callable[[StepRecord], None] | None,
        validate: Callable[[], Validation | ClassValidation] | None,
    ) -> TrainResult:
        """Train to the end, from `checkpoint` or from the start."""
        with CtrlC() as ctrl_c:
            if checkpoint:
                self.restore(checkpoint)
            else:
                self.save()
            with self.open_log() as log:
                while not self.done:
                    record, pressed_anywhere = self.update(task, ctrl_c.pressed)
                    if log:
                        if validate and self.validates:
                            measured = validate()
                            record = dataclasses.replace(record, **dataclasses.asdict(measured))
                        log.write(record)
                        self.engine.track(record.values(), record.step)
                        if on_step:
                            try:
                                on_step(record)
                            except StopTrainingError:
                                ctrl_c.pressed = True
                    stop = pressed_anywhere or (ctrl_c.pressed and self.engine.num_processes == 1)
                    if self.step % self.config.checkpoint_every == 0 or self.done or stop:
                        if log:
                            log.sync()
                        self.save()
                    if stop and not self.done:
                        raise KeyboardInterrupt(
                            f"stopped after update {self.step}; resume the run in {self.folder} to go on"
                        )
            result = self.finish()
            if ctrl_c.pressed:
                raise KeyboardInterrupt(f"the run in {self.folder} was finished all the same")
        return result

    @property
    def done(self) -> bool:
        return self.meter.stayed is not None or self.step == self.config.steps or self.given_up

    @property
    def given_up(self) -> bool:
        """Whether this is the update at which a run must have learnt something, and it has not."""
        return self.step == self.config.give_up_after and self.meter.mean < GIVEN_UP_BELOW

    @property
    def validates(self) -> bool:
        """Whether this update is followed by a validation."""
        every = self.config.validate_every
        return self.done or (every is not None and self.step % every == 0)

    def open_log(self) -> AbstractContextManager[StepLog | None]:
        """The log on the main process, None on the others."""
        if not self.engine.is_main:
            return nullcontext()
        return StepLog(self.folder / "log.jsonl", self.step)

    def update(self, task: TrainingTask, pressed: bool) -> tuple[StepRecord, bool]:
        """Do one update; returns its record, and whether Ctrl-C had been `pressed` on any process."""
        began = time.perf_counter()
        config, engine = self.config, self.engine
        share = engine.share(config.batch_size, config.accumulate)
        batch = task.sample(share, config.seed, self.step * config.batch_size + engine.process * share)
        num_targets = engine.sum(int((batch.targets != IGNORE).sum()))
        on_device = batch.to(engine.device)
        pieces = zip(*(ids.chunk(config.accumulate) for ids in (on_device.inputs, on_device.targets)), strict=True)
        loss, added = torch.zeros(2, device=engine.device)
        predictions = []
        self.optimiser.zero_grad()
        for piece, (inputs, targets) in enumerate(pieces, start=1):
            with engine.accumulating(self.prepared, last=piece == config.accumulate):
                # The processes' gradients are averaged, and it is their sum that belongs to the mean over all targets.
                part, penalty, predicted = add_gradients(
                    self.prepared,
                    inputs,
                    targets,
                    config.precision,
                    num_targets,
                    scale=engine.num_processes,
                    penalty=self.share_of_penalty if self.penalty else None,
                )
            loss += part
            added += penalty
            predictions.append(predicted)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), config.clip)
        # All in one transfer, since each makes the CPU wait for the device. Token ids are exact in float32.
        measured = torch.cat([torch.stack([loss, added, norm]), torch.cat(predictions).flatten()]).float().cpu()
        share_of_loss, share_of_penalty, grad_norm = measured[:3].tolist()
        if not all(map(math.isfinite, (share_of_loss, share_of_penalty, grad_norm))):
            told = f"penalty {share_of_penalty}, " if self.penalty else ""
            raise FloatingPointError(
                f"update {self.step + 1} in {self.folder}: loss {share_of_loss}, {told}gradient norm {grad_norm}; nothing was "
                "changed by it, and the last checkpoint is good. Try a lower lr, more warmup_steps or float32"
            )
        lr = learning_rate(config, self.step)
        for group in self.optimiser.param_groups:
            group["lr"] = lr
        self.optimiser.step()
        self.step += 1

        accuracies = task.accuracy(measured[3:].view(batch.targets.shape).long(), batch.targets)
        figures = torch.tensor([share_of_loss, share_of_penalty, float(pressed)], dtype=torch.float64)
        everywhere = engine.gather(torch.cat([figures, accuracies.double()]))
        strings = everywhere[:, 3:].flatten().tolist()
        record = StepRecord(
            step=self.step,
            loss=float(everywhere[:, 0].sum()),
            accuracy=math.fsum(strings) / len(strings),
            window_accuracy=self.meter.add(strings),
            lr=lr,
            grad_norm=grad_norm,
            seconds=time.perf_counter() - began,
            samples=self.step * config.batch_size,
            penalty=float(everywhere[:, 1].sum()) if self.penalty else None,
        )
        return record, bool(everywhere[:, 2].any())

    def share_of_penalty(self, inputs: Tensor, targets: Tensor) -> Tensor:
        """A micro-batch's part of the penalty's mean over all strings of an update."""
        assert self.penalty is not None
        # Not through what exchanges gradients: the one pass through that is the loss's.
        return self.penalty(self.model, inputs, targets) / (self.engine.num_processes * self.config.accumulate)

    def save(self) -> None:
        rng = self.engine.rng_states()
        if not self.engine.is_main:
            return
        tensors = checkpoint_tensors(self.model, optimiser=optimiser_tensors(self.optimiser, self.model), rng=rng)
        facts = {
            "step": self.step,
            "wall_seconds": time.perf_counter() - self.began,
            "meter": self.meter.content(),
            "settings": self.told,
            "surroundings": self.engine.surroundings(),
        }
        save_checkpoint(self.folder / "checkpoints", Checkpoint(tensors, facts), self.config.keep)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Stand where `checkpoint` was saved."""
        copy_weights(self.model, checkpoint.part("model"))
        restore_optimiser(self.optimiser, self.model, checkpoint.part("optimiser"))
        self.engine.restore_rng(checkpoint.part("rng"))
        self.meter.restore(checkpoint.facts["meter"])
        self.step = checkpoint.facts["step"]
        self.began -= checkpoint.facts["wall_seconds"]

    def finish(self) -> TrainResult:
        """Write the final weights, then the result, which is what marks the run as finished."""
        if self.engine.is_main:
            save_weights(self.model, self.folder / "model.safetensors")
            lines = read_log(self.folder / "log.jsonl")
            seconds = [line["seconds"] for line in lines]
            last = lines[-1] if lines else {}
            result = TrainResult(
                format=RESULT_FORMAT,
                steps=self.step,
                steps_to_accuracy=self.meter.reached,
                steps_to_stay=self.meter.stayed,
                final_accuracy=self.meter.mean,
                seconds_per_step=statistics.median(seconds) if seconds else None,
                wall_seconds=time.perf_counter() - self.began,
                num_parameters=_num_parameters(self.model),
                stopped="accuracy" if self.meter.stayed is not None else "given up" if self.given_up else "limit",
                device=str(self.engine.device),
                machine=machine(self.engine.device),
                versions=versions(),
                settings=dict(self.told),
                commit=commit(),
                bits_per_byte=last.get("bits_per_byte"),
                perplexity=last.get("perplexity"),
                test_loss=last.get("test_loss"),
                test_accuracy=last.get("test_accuracy"),
            )
            write_result(self.folder, result)
        self.engine.wait()
        result = read_result(self.folder)
        assert result is not None
        return result


def _num_parameters(model: nn.Module) -> int:
    """As the model itself counts them (`num_parameters`: say, without embeddings), else all."""
    counted = getattr(model, "num_parameters", None)
    return counted if isinstance(counted, int) else sum(parameter.numel() for parameter in model.parameters())
