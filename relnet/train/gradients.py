"""Forward and backward of a micro-batch, and how long an update of them takes."""

import copy
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relnet.tasks import IGNORE, TrainingTask
from relnet.train.config import Precision, TrainConfig
from relnet.train.engine import autocast, choose_device, num_processes
from relnet.train.penalty import Penalty, logits_of

LONG = 2.0


def add_gradients(
    model: nn.Module,
    inputs: Tensor,
    targets: Tensor,
    precision: Precision,
    num_targets: Tensor | int,
    scale: int = 1,
    penalty: Callable[[Tensor, Tensor], Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Add a micro-batch's part to the gradients of the mean cross-entropy over `num_targets` targets, times `scale`.

    inputs: what the model reads; targets: (B, S), or (B,) for one class a row, int64. The model returns logits with one dimension more,
    or a tuple that begins with them. penalty: of inputs and targets, a part () that is added to the mean. Returns the part of the mean in
    nats, (), the penalty's, 0 where there is none, and the most likely tokens or classes, shaped as targets.
    """
    with autocast(inputs.device, precision):
        logits = logits_of(model, inputs)
    # In float32 where the logits are bfloat16.
    exact = logits.float() if logits.dtype == torch.bfloat16 else logits
    total = F.cross_entropy(exact.flatten(0, -2), targets.flatten(), ignore_index=IGNORE, reduction="sum")
    part = total / num_targets
    added = penalty(inputs, targets) if penalty else torch.zeros_like(part)
    # In one backward pass: with several processes each weight's gradient is exchanged once.
    ((part + added) * scale).backward()
    return part.detach(), added.detach(), logits.argmax(-1)


def seconds_per_step(
    model: nn.Module, task: TrainingTask, config: TrainConfig, device: str = "auto", penalty: Penalty | None = None
) -> float:
    """Estimate the seconds of an update from one micro-batch: data, forward and backward, penalty, on a copy of the model.

    The model and torch's generators stay as they are. ValueError for an unknown device.
    """
    place = choose_device(device)
    model = copy.deepcopy(model).to(place).train()
    seconds = 0.0
    with torch.random.fork_rng(devices=[place] if place.type == "cuda" else []):
        for _ in range(2):
            began = time.perf_counter()
            batch = task.sample(config.batch_size // (num_processes() * config.accumulate), config.seed, 0).to(place)
            num_targets = int((batch.targets != IGNORE).sum())
            added = partial(penalty, model) if penalty else None
            loss = add_gradients(model, batch.inputs, batch.targets, config.precision, num_targets, penalty=added)[0]
            # Reading it waits for the device.
            loss.item()
            seconds = time.perf_counter() - began
            # The first time is longer by what is set up once; of a long one that is a small part.
            if seconds > LONG:
                break
    return seconds * config.accumulate
