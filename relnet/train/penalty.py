"""A curvature penalty in the training loop: what is added to the loss, for any model that says where its continuous input enters.

    x, f = model.embedded(inputs)         x (B, *in) the embedded input, f(x) the logits, (B, S, vocabulary) or (B, classes)
    J     of those logits of f that have a target, by x          H     of each string's mean cross-entropy, by x
    added = jacobian_weight ||J||^2 + hessian_weight ||H||^2,    the mean over strings

A model without `embedded` takes inputs that are continuous themselves: x is they, f is the model. Gradients reach the
embedding as well, through x. All of it is in float32 (float64), outside autocast.
Source: Cui, Yan, Liu and Lu 2022, arXiv 2212.00311; the norms: relnet.curvature.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relnet.curvature import HessianRegularizer, JacobianRegularizer, check_model
from relnet.curvature.check_model import untouched
from relnet.curvature.penalties import Norm
from relnet.tasks import IGNORE

# Where a derivative is taken, and a model's logits as a function of it.
Entry = tuple[Tensor, Callable[[Tensor], Tensor]]
# penalty(model, inputs, targets) -> what is added to the loss of these strings, (): their mean.
Penalty = Callable[[nn.Module, Tensor, Tensor], Tensor]
# Reverse mode alone is used, within one forward pass: these findings of check_model spoil nothing here.
HARMLESS = {"forward_mode", "random", "dropout"}
HESSIAN_ONLY = {"no_third_derivative", "zero_hessian"}


@dataclass(frozen=True)
class CurvaturePenalty:
    """Weights of ||J||^2 and ||H||^2 in the loss, J and H those of the module's formulas; `train` calls it on each micro-batch.

    norm: "spectral", the largest singular value, from below by `iters` solver steps from a random start; "frobenius", all of them,
    unbiased from `iters` random probes. Random numbers are torch's own, so that a resumed run draws the same.
    ValueError: weights that are negative, infinite or both 0, iters < 1, an unknown norm.

    >>> class Bigram(nn.Embedding):
    ...     def embedded(self, ids):
    ...         return self(ids), torch.sin
    >>> model, ids = Bigram(5, 5), torch.tensor([[3, 1], [2, 2]])
    >>> CurvaturePenalty(jacobian_weight=0.1)(model, ids, ids).backward()
    >>> model.weight.grad.shape
    torch.Size([5, 5])
    """

    jacobian_weight: float = 0.0
    hessian_weight: float = 0.0
    norm: Norm = "spectral"
    iters: int = 4

    def __post_init__(self) -> None:
        weights = (self.jacobian_weight, self.hessian_weight)
        if not all(0 <= weight < float("inf") for weight in weights) or not any(weights):
            raise ValueError(
                f"jacobian_weight={weights[0]}, hessian_weight={weights[1]}; give numbers >= 0, at least one above 0"
            )
        if self.iters < 1 or self.norm not in get_args(Norm):
            raise ValueError(f"iters={self.iters}, norm={self.norm!r}; give iters >= 1 and spectral or frobenius")

    def __call__(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        """Return the weighted penalties, (), on inputs (B, ...) with targets (B, S), or (B,) classes; IGNORE where there is none."""
        with torch.autocast(inputs.device.type, enabled=False):
            x, f = _entry(model, inputs)
            total = torch.zeros((), device=x.device)
            if self.jacobian_weight:
                regulariser = JacobianRegularizer(self.norm, iters=self.iters, probes=self.iters)
                total = total + self.jacobian_weight * regulariser(partial(_trained_logits, f, targets), x)
            if self.hessian_weight:
                regulariser = HessianRegularizer(self.norm, iters=self.iters, probes=self.iters)
                total = total + self.hessian_weight * regulariser(partial(_losses, f, targets), x)
        return total

    def check(self, model: nn.Module, inputs: Tensor, targets: Tensor) -> None:
        """Raise ValueError with what `check_model` finds in the way of these penalties, on at least 2 strings; changes nothing."""
        # The way to x may draw random numbers and move running statistics as well.
        with untouched(model, inputs.device):
            x, f = _entry(model, inputs)
            checked = []
            if self.jacobian_weight:
                checked.append(("jacobian_weight", partial(_trained_logits, f, targets), HARMLESS | HESSIAN_ONLY))
            if self.hessian_weight:
                checked.append(("hessian_weight", partial(_losses, f, targets), HARMLESS))
            for name, function, harmless in checked:
                findings = [found for found in check_model(function, x, module=model) if found.name not in harmless]
                # Batch norm on the way to x spoils nothing; behind x it couples samples, and is then the reason why.
                if any(found.name != "batch_norm" for found in findings):
                    raise ValueError(f"{name} cannot be had of this model: {'; '.join(map(str, findings))}")


def _entry(model: nn.Module, inputs: Tensor) -> Entry:
    """Return where derivatives of this model on these inputs are taken."""
    # A module's attributes may be anything, to a type checker.
    embedded: Any = getattr(model, "embedded", None)
    if embedded is not None:
        return embedded(inputs)
    if not inputs.is_floating_point():
        raise ValueError(
            f"inputs are {inputs.dtype} and {type(model).__name__} has no method `embedded`; a derivative needs a continuous input: "
            "give it one that returns the embedded input and the function from there to the logits"
        )
    return inputs, partial(logits_of, model)


def logits_of(model: nn.Module, inputs: Tensor) -> Tensor:
    """Return what the model says of its inputs, where it says a tuple what that begins with."""
    said = model(inputs)
    return said[0] if isinstance(said, tuple) else said


def _trained_logits(f: Callable[[Tensor], Tensor], targets: Tensor, x: Tensor) -> Tensor:
    """Logits, 0 where no target asks for them, so that what is not trained is not penalised."""
    return f(x).masked_fill((targets == IGNORE)[..., None], 0.0)


def _losses(f: Callable[[Tensor], Tensor], targets: Tensor, x: Tensor) -> Tensor:
    """Each string's mean cross-entropy over its targets, (B,); 0 where it has none."""
    losses = F.cross_entropy(f(x).movedim(-1, 1), targets, ignore_index=IGNORE, reduction="none")
    return losses.reshape(len(losses), -1).sum(1) / (targets != IGNORE).reshape(len(targets), -1).sum(1).clamp(min=1)
