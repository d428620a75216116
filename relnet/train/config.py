"""What a training run is told (TrainConfig) and what it answers (TrainResult)."""

import dataclasses
import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

Schedule = Literal["constant", "linear", "cosine"]
Precision = Literal["float32", "bfloat16"]
# How often a run is saved changes nothing in it: these settings may be others at a resumption.
SAVING = ("checkpoint_every", "keep")


@dataclass(frozen=True)
class TrainConfig:
    """Settings of one training run; the defaults are the paper's at batch 64 (Cui 2024, appendix D).

    ValueError names a setting that is out of range and what it may be.

    >>> TrainConfig(steps=100, lr=1e-3).warmup_steps
    50
    """

    steps: int = 300
    """Most updates to do; training stops earlier once `stop_accuracy` has stayed."""
    batch_size: int = 64
    """Strings (of a text: windows) an update, over all processes and micro-batches."""
    accumulate: int = 1
    """Micro-batches an update: more of them need less memory and give the same update up to rounding."""
    lr: float = 5e-4
    """Learning rate after the warm-up."""
    beta1: float = 0.9
    beta2: float = 0.999
    weight_decay: float = 0.0
    """Decoupled decay (AdamW) of the matrices; biases and other vectors are never decayed."""
    warmup_steps: int = 50
    """Updates over which the learning rate rises linearly from 0; the first update has learning rate 0."""
    schedule: Schedule = "constant"
    """How the learning rate goes on after the warm-up."""
    final_lr: float = 0.0
    """Learning rate that the linear and the cosine schedule reach after the last step."""
    clip: float = 1.0
    """Largest global norm of the gradient; a longer one is scaled down to it."""
    precision: Precision = "float32"
    """bfloat16: autocast; weights, optimiser and loss stay float32."""
    seed: int = 0
    """Of the training strings and of dropout; the caller initialises the model."""
    stop_accuracy: float | None = 0.99
    """Stop when the mean accuracy of the last 320 fresh strings has stayed at this (0 to 1); None: never."""
    stay: int = 20
    """Further updates for which it must stay there."""
    give_up_after: int | None = None
    """Stop at this update if the mean accuracy of the last 320 strings is below one half by then; None: never."""
    validate_every: int | None = None
    """Updates between validations, where the task has something to validate on; None: after the last one only."""
    checkpoint_every: int = 50
    """Updates between checkpoints."""
    keep: int = 2
    """Checkpoints to keep, the newest."""

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "accumulate", "checkpoint_every", "keep"):
            self._require(name, getattr(self, name) >= 1, "at least 1")
        for name in ("give_up_after", "validate_every"):
            value = getattr(self, name)
            self._require(name, value is None or value >= 1, "None or at least 1")
        for name in ("warmup_steps", "stay"):
            self._require(name, getattr(self, name) >= 0, "at least 0")
        # Each process seeds torch, which takes 64 bits, with its own number added.
        self._require("seed", 0 <= self.seed < 2**63, "at least 0 and below 2^63")
        for name in ("lr", "clip"):
            self._require(name, 0 < getattr(self, name) < math.inf, "a number above 0")
        for name in ("weight_decay", "final_lr"):
            self._require(name, 0 <= getattr(self, name) < math.inf, "a number of at least 0")
        for name in ("beta1", "beta2"):
            self._require(name, 0 <= getattr(self, name) < 1, "at least 0 and below 1")
        self._require("schedule", self.schedule in get_args(Schedule), f"one of {', '.join(get_args(Schedule))}")
        self._require("precision", self.precision in get_args(Precision), f"one of {', '.join(get_args(Precision))}")
        reachable = self.stop_accuracy is None or 0 < self.stop_accuracy <= 1
        self._require("stop_accuracy", reachable, "None or a share above 0 and at most 1")
        divides = self.batch_size % self.accumulate == 0
        self._require("batch_size", divides, f"a multiple of accumulate={self.accumulate}")

    def _require(self, name: str, holds: bool, what: str) -> None:
        if not holds:
            raise ValueError(f"{name}={getattr(self, name)!r}: must be {what}")


def settings(task: object, config: TrainConfig, penalty: object = None) -> dict[str, Any]:
    """Return all that decides a run, but for the model: the task and the penalty in words and the config's fields.

    >>> from relnet.tasks import Copying
    >>> settings(Copying(length=4), TrainConfig(seed=3))["task"]
    "Copying(length=4, layout='cui2024', min_length=None, max_context=None)"
    """
    words = None if penalty is None else _in_words(penalty)
    return {"task": _in_words(task), "penalty": words, **dataclasses.asdict(config)}


def _in_words(thing: object) -> str:
    if inspect.isroutine(thing):
        return thing.__qualname__
    # A plain object says nothing but its address, which the next process does not have.
    return type(thing).__qualname__ if type(thing).__repr__ is object.__repr__ else repr(thing)


def check_settings(folder: Path, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Raise ValueError where the run in `folder` has other settings than those `wanted` now."""
    for name, now in wanted.items():
        if name not in SAVING and found.get(name) != now:
            raise ValueError(
                f"{name}={now!r}, but the run in {folder} has {found.get(name)!r}: "
                "resume with the settings it has, or use another folder"
            )


@dataclass(frozen=True)
class TrainResult:
    """What result.json holds: how a finished run went.

    `steps` counts the updates done, `steps_to_accuracy` and `steps_to_stay` those until `stop_accuracy` was first
    reached and until it was reached for good (None: never); both are meant as in `Meter`.
    """

    format: int
    steps: int
    steps_to_accuracy: int | None
    steps_to_stay: int | None
    final_accuracy: float
    """Mean accuracy of the last 320 strings, each measured before its own update."""
    seconds_per_step: float | None
    """Median; None where the log was lost."""
    wall_seconds: float
    """Over all resumptions, checkpoints included; what a kill threw away is not counted."""
    num_parameters: int
    """As the model counts them (relnet.nn: without embeddings), else all."""
    stopped: Literal["accuracy", "limit", "given up"]
    device: str
    machine: str
    versions: dict[str, str]
    settings: dict[str, Any]
    """The task in words and every setting of the run."""
    commit: str | None
    """Of the source tree, with -dirty where it differs from it; None where relnet does not run from a git checkout."""
    bits_per_byte: float | None = None
    """Of the whole validation text after the last update; None where the task has none."""
    perplexity: float | None = None
    test_loss: float | None = None
    """Mean cross-entropy in nats of all images held out after the last update; None where the task has none."""
    test_accuracy: float | None = None
