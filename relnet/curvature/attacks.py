"""Accuracy under attack, by adversarial-robustness-toolbox (the extra "attacks"): PGD, an AutoAttack ensemble, black-box Square.

    robust    a sample that is classified rightly, and still is after the attack's best try within eps of it and within [0, 1]

So accuracy is the clean one at eps = 0 and never rises with eps, and an attack that oversteps eps counts for nothing.
Sources: Madry et al. 2018 (PGD); Croce and Hein 2020 (AutoAttack); Andriushchenko et al. 2020 (Square); Athalye et al. 2018 (masking).
"""

import copy
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

AttackName = Literal["pgd", "auto", "square"]
NormName = Literal["linf", "l2"]


@dataclass(frozen=True)
class AttackResult:
    """Accuracy of one attack at one eps.

    accuracy: share of samples that are robust; zero_gradients: share of samples at which the loss has no gradient at all by the input,
    where "pgd" and part of "auto" cannot work.
    """

    attack: AttackName
    norm: NormName
    eps: float
    samples: int
    accuracy: float
    zero_gradients: float


def evaluate_attacks(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    *,
    eps: Sequence[float] = (0.0, 2 / 255, 4 / 255, 8 / 255),
    attacks: Sequence[AttackName] = ("pgd", "square"),
    norm: NormName = "linf",
    steps: int = 20,
    restarts: int = 1,
    queries: int = 1000,
    batch_size: int = 256,
    seed: int = 0,
) -> list[AttackResult]:
    """Return a result for each attack and eps, on samples x (B, *in) in [0, 1] with labels y (B,) int64.

    model: returns logits (B, classes); a copy of it is attacked, in eval mode, float32 and without gradients of parameters.
    pgd: `steps` steps of 2 eps / steps from a random start, the worst of `restarts`. square: `queries` queries, no gradient. auto: APGD on
    cross-entropy and on the logit ratio, DeepFool and Square in turn, on what still stands (standard strength: steps=100, restarts=5,
    queries=5000; at least 4 classes). The random numbers are the seed's, and the global ones are left as they were.
    ValueError: x outside [0, 1], labels that do not fit, eps < 0, an unknown attack or norm, auto or square without images (B, C, H, W).
    ModuleNotFoundError: the extra is not installed.
    """
    _check(x, y, eps, attacks, norm, steps, restarts, queries)
    frozen = copy.deepcopy(model).eval().float().requires_grad_(False)
    inputs, labels = x.detach().float().cpu(), y.detach().cpu()
    device = next((parameter.device for parameter in frozen.parameters()), x.device)
    logits = _logits(frozen, inputs, batch_size, device)
    if "auto" in attacks and logits.shape[1] < 4:
        raise ValueError(
            f"attack 'auto' on {logits.shape[1]} classes; its logit ratio needs at least 4: use 'pgd' and 'square'"
        )
    if int(labels.max()) >= logits.shape[1]:
        raise ValueError(
            f"y holds label {int(labels.max())}; the model knows {logits.shape[1]} classes, 0 to {logits.shape[1] - 1}"
        )
    right = logits.argmax(-1) == labels
    zero = _zero_gradients(frozen, inputs, labels, batch_size, device)
    results = []
    for name in attacks:
        robust, accuracy = right.clone(), {}
        # What is fooled within a ball is fooled within any larger one: only what still stands is attacked there.
        for radius in sorted(set(eps)):
            if radius > 0 and robust.any():
                standing, goals = inputs[robust], labels[robust]
                with _seeded(seed):
                    attack = _attack(
                        name,
                        frozen,
                        logits.shape[1],
                        inputs.shape[1:],
                        norm,
                        radius,
                        steps,
                        restarts,
                        queries,
                        batch_size,
                    )
                    tried = torch.from_numpy(attack.generate(standing.numpy(), goals.numpy()))
                fooled = _logits(frozen, tried, batch_size, device).argmax(-1) != goals
                robust[robust.clone()] = ~(fooled & _within(tried, standing, norm, radius))
            accuracy[radius] = float(robust.double().mean())
        results += [AttackResult(name, norm, radius, len(x), accuracy[radius], zero) for radius in eps]
    return results


def masked_at(results: Iterable[AttackResult], margin: float = 0.01) -> list[float]:
    """Return the eps at which robustness seems to come from masked gradients.

    That is where Square, which sees none, leaves an accuracy lower by more than `margin` than PGD, or where more than `margin` of the
    samples have no gradient. An empty list proves nothing; raise restarts and queries.

    >>> pgd, square = (AttackResult(name, "linf", 0.1, 100, accuracy, 0.0) for name, accuracy in (("pgd", 0.8), ("square", 0.3)))
    >>> masked_at([pgd, square])
    [0.1]
    """
    by_eps: dict[float, dict[str, AttackResult]] = {}
    for result in results:
        by_eps.setdefault(result.eps, {})[result.attack] = result
    return [
        eps
        for eps, found in by_eps.items()
        if eps > 0
        and (
            any(result.zero_gradients > margin for result in found.values())
            or ({"pgd", "square"} <= found.keys() and found["square"].accuracy < found["pgd"].accuracy - margin)
        )
    ]


def _check(
    x: Tensor,
    y: Tensor,
    eps: Sequence[float],
    attacks: Sequence[AttackName],
    norm: NormName,
    steps: int,
    restarts: int,
    queries: int,
) -> None:
    if len(x) == 0 or not bool(((x >= 0) & (x <= 1)).all()):
        raise ValueError(f"x is {tuple(x.shape)} from {float(x.min()) if len(x) else None}; give samples in [0, 1]")
    if y.shape != x.shape[:1] or y.dtype != torch.long or int(y.min()) < 0:
        raise ValueError(f"y is {tuple(y.shape)} {y.dtype}; give a label >= 0 a sample, ({len(x)},) int64")
    if any(not 0 <= radius < float("inf") for radius in eps):
        raise ValueError(f"eps={tuple(eps)}; give numbers >= 0")
    for kind, given, known in (("attack", attacks, AttackName), ("norm", (norm,), NormName)):
        if unknown := set(given) - set(get_args(known)):
            raise ValueError(f"{kind} {min(unknown)!r}; give one of {', '.join(get_args(known))}")
    if x.dim() != 4 and set(attacks) != {"pgd"}:
        raise ValueError(f"x is {tuple(x.shape)}; only 'pgd' attacks what is no image (B, C, H, W)")
    if min(steps, restarts, queries) < 1:
        raise ValueError(f"steps={steps}, restarts={restarts}, queries={queries}; give at least 1 of each")


def _attack(
    name: AttackName,
    model: nn.Module,
    classes: int,
    shape: torch.Size,
    norm: NormName,
    eps: float,
    steps: int,
    restarts: int,
    queries: int,
    batch_size: int,
) -> Any:
    try:
        from art.attacks import evasion
        from art.estimators.classification import PyTorchClassifier
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{error}; attacks need an extra: pip install 'relnet[attacks]'") from None
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    classifier = PyTorchClassifier(
        model,
        nn.CrossEntropyLoss(),
        tuple(shape),
        classes,
        clip_values=(0.0, 1.0),
        device_type="gpu" if device.type == "cuda" else "cpu",
    )
    ball = {"norm": np.inf if norm == "linf" else 2, "eps": eps}
    quiet = {"batch_size": batch_size, "verbose": False}
    # A step is never longer than eps.
    step = min(eps, 2 * eps / steps)

    def square() -> Any:
        return evasion.SquareAttack(classifier, **ball, max_iter=queries, nb_restarts=restarts, **quiet)

    if name == "square":
        return square()
    if name == "pgd":
        return evasion.ProjectedGradientDescentPyTorch(
            classifier, **ball, eps_step=step, max_iter=steps, num_random_init=restarts, **quiet
        )
    parts = [
        evasion.AutoProjectedGradientDescent(
            classifier,
            **ball,
            eps_step=step,
            max_iter=steps,
            nb_random_init=restarts,
            loss_type=loss,
            **quiet,
        )
        for loss in ("cross_entropy", "difference_logits_ratio")
    ]
    parts += [evasion.DeepFool(classifier, max_iter=steps, nb_grads=min(10, classes), **quiet), square()]
    # It would end its search at a try that oversteps eps by 1e-4, which then counts for nothing.
    ball["eps"] = (1 - 1e-4) * _reach(eps)
    return evasion.AutoAttack(classifier, **ball, eps_step=step, attacks=parts, batch_size=batch_size)


def _within(tried: Tensor, inputs: Tensor, norm: NormName, eps: float) -> Tensor:
    """Which tries lie within eps of their inputs and within [0, 1], to float32's rounding."""
    change = (tried - inputs).flatten(1).double()
    length = change.abs().amax(-1) if norm == "linf" else change.norm(dim=-1)
    inside = ((tried >= 0) & (tried <= 1)).flatten(1).all(-1)
    return inside & (length <= _reach(eps))


def _reach(eps: float) -> float:
    return eps * (1 + 1e-5) + 1e-6


def _logits(model: nn.Module, inputs: Tensor, batch_size: int, device: torch.device) -> Tensor:
    with torch.no_grad():
        return torch.cat([model(part.to(device)).cpu() for part in inputs.split(batch_size)])


def _zero_gradients(model: nn.Module, inputs: Tensor, labels: Tensor, batch_size: int, device: torch.device) -> float:
    """Share of samples whose loss has a gradient of exactly 0 by the input."""
    zeros = 0
    for part, label in zip(inputs.split(batch_size), labels.split(batch_size), strict=True):
        part = part.to(device).requires_grad_()
        loss = F.cross_entropy(model(part), label.to(device), reduction="sum")
        (gradient,) = torch.autograd.grad(loss, part, allow_unused=True, materialize_grads=True)
        zeros += int((gradient.flatten(1) == 0).all(-1).sum())
    return zeros / len(inputs)


@contextmanager
def _seeded(seed: int) -> Generator[None]:
    """The toolbox draws from numpy's and torch's global generators."""
    state = np.random.get_state()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        np.random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(state)
