"""Adam and the learning rate: lr(n) = lr n / warmup_steps during the warm-up, then constant, linear or cosine.

n counts the updates done, so the first update has learning rate 0 where there is a warm-up, as in the paper
(Cui 2024): it fills Adam's moments and moves no weight.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from relnet.train.config import TrainConfig


def learning_rate(config: TrainConfig, step: int) -> float:
    """Learning rate of update number `step`, counted from 0.

    >>> [learning_rate(TrainConfig(lr=1.0, warmup_steps=4, steps=8, schedule="linear"), step) for step in range(9)]
    [0.0, 0.25, 0.5, 0.75, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    if step < config.warmup_steps:
        return config.lr * step / config.warmup_steps
    if config.schedule == "constant":
        return config.lr
    progress = min(1.0, (step - config.warmup_steps) / max(1, config.steps - config.warmup_steps))
    remaining = 1 - progress if config.schedule == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return config.final_lr + (config.lr - config.final_lr) * remaining


def make_optimiser(model: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """Adam over the trainable parameters, with decoupled decay of those of two dimensions and more."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    decayed = {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": config.weight_decay}
    others = {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0}
    return torch.optim.AdamW([decayed, others], lr=config.lr, betas=(config.beta1, config.beta2))


def optimiser_tensors(optimiser: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """State of `optimiser` as "PARAMETER.KEY" -> tensor, by the model's own parameter names."""
    named = [(name, optimiser.state[p]) for name, p in model.named_parameters() if p in optimiser.state]
    return {f"{name}.{key}": tensor for name, state in named for key, tensor in state.items()}


def restore_optimiser(optimiser: torch.optim.Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Give `optimiser` the state that `optimiser_tensors` took."""
    parameters = dict(model.named_parameters())
    optimiser.state.clear()
    for full_name, tensor in tensors.items():
        name, _, key = full_name.rpartition(".")
        # Adam keeps its step count on the CPU, whatever the device of the parameter.
        device = "cpu" if key == "step" else parameters[name].device
        optimiser.state[parameters[name]][key] = tensor.to(device, copy=True)
