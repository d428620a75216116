"""What would spoil a Jacobian or Hessian penalty of a network, found before training starts.

A dozen passes over a small batch. Parameters, buffers, training flags, gradients and random numbers are left as they were.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from relnet.curvature.krylov import norm, unit

# Relative step of the central differences, and how far they may lie from a derivative and from one another.
STEP, DISAGREE, AGREE = 1e-2, 0.1, 0.05


NO_HALF = "Second derivatives under- and overflow in float16: use float32, or bfloat16 autocast around the loss only."
AT_ZERO = "Look for sqrt, norm or pow at 0."


@dataclass(frozen=True)
class Finding:
    """name: what is wrong, for a program; message: what was seen and where; cure: what to do."""

    name: str
    message: str
    cure: str

    def __str__(self) -> str:
        return f"{self.name}: {self.message}. {self.cure}"


def check_model(model: Callable[[Tensor], Tensor], x: Tensor, *, module: nn.Module | None = None) -> list[Finding]:
    """Return what would make penalties on `model`'s input derivatives wrong, zero or unstable; an empty list if nothing is found.

    model: a module or function, called in the state (training or not) in which it will be trained. x: (B, *in), B >= 2 of the samples it
    will see, where they will be. module: the one behind a `model` that is a function, whose layers are then named and whose buffers are
    put back, as a module's own are. Names: float16, batch_norm, dropout, not_finite, no_gradient, random, coupled_samples,
    no_second_derivative, no_third_derivative, wrong_second_derivative, zero_hessian, forward_mode. After float16, not_finite or
    no_gradient nothing more can be checked. Findings up to wrong_second_derivative concern both penalties; no_third_derivative (none,
    or not finite at x) and zero_hessian the Hessian's. A network is told what holds in its present state: batch norm in training mode
    curves with the batch's statistics, so zero_hessian for a ReLU behind it is found only after eval(). Check again after each cure.
    ValueError: B < 2, x not floating point, inference mode, a model that does not return one tensor, (B, *out).

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    >>> [finding.name for finding in check_model(model, torch.randn(3, 4))]
    ['batch_norm', 'coupled_samples']
    >>> [finding.name for finding in check_model(model.eval(), torch.randn(3, 4))]
    ['zero_hessian']
    """
    if x.dim() == 0 or len(x) < 2 or not x.is_floating_point():
        raise ValueError(f"x is {tuple(x.shape)} {x.dtype}; give at least 2 samples of floating point, (B, *in)")
    if torch.is_inference_mode_enabled():
        raise ValueError("inside torch.inference_mode there are no derivatives; torch.no_grad is no hindrance")
    if module is None and isinstance(model, nn.Module):
        module = model
    half = list(_half(module, x))
    findings = [*half, *_layers(module)]
    if half:
        return findings
    with untouched(module, x.device), torch.enable_grad():
        x = x.detach().clone().requires_grad_()
        y = model(x)
        if not isinstance(y, Tensor) or y.shape[:1] != x.shape[:1]:
            what = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
            raise ValueError(f"the model returns {what}; give one that returns a tensor, ({len(x)}, *out)")
        dtypes = _dtypes(y)
        if torch.float16 in dtypes:
            return [*findings, Finding("float16", "the forward pass goes through float16", NO_HALF)]
        if not y.isfinite().all():
            return [
                *findings,
                Finding("not_finite", "the output holds NaN or inf", "Mend the model or its input first."),
            ]
        weights = torch.randn(y.shape, dtype=y.dtype if y.is_floating_point() else None, device=y.device)
        first = _grad(y, x, weights)
        if not first.isfinite().all():
            return [*findings, Finding("not_finite", "the first derivative holds NaN or inf", AT_ZERO)]
        if not (first != 0).any():
            cure = "Look for detach, no_grad, argmax, rounding, or numpy on the way."
            return [*findings, Finding("no_gradient", "the output's derivative by the input is zero everywhere", cure)]
        is_random = not torch.equal(y, model(x))
        if is_random:
            cure = "Penalties differentiate one draw of it; solver steps agree only within one forward pass. Switch it off for them."
            findings.append(Finding("random", "two passes over the same input differ", cure))
        findings += _coupled(y, x, weights)
        higher = list(_higher(model, y, x, weights, is_random))
        findings += higher
        # Two draws of a random model differ anyhow; a wrong second derivative may be what reverse over reverse goes by.
        if not is_random and not any(finding.name == "wrong_second_derivative" for finding in higher):
            findings += _forward_mode(model, y, x, tolerance=0.1 if torch.bfloat16 in dtypes else 0.01)
    return findings


def _half(module: nn.Module | None, x: Tensor) -> Iterator[Finding]:
    parameters = module.parameters() if module is not None else ()
    if x.dtype == torch.float16 or any(parameter.dtype == torch.float16 for parameter in parameters):
        yield Finding("float16", "the input or parameters are float16", NO_HALF)
    device = x.device.type
    if torch.is_autocast_enabled(device) and torch.get_autocast_dtype(device) == torch.float16:
        yield Finding("float16", "autocast to float16 is on", NO_HALF)


def _dtypes(y: Tensor) -> set[torch.dtype]:
    """Those of all tensors between y and what it is differentiated by, autocast's and a closure's included."""
    found, seen, nodes = {y.dtype}, set(), [y.grad_fn]
    while nodes:
        node = nodes.pop()
        if node is not None and node not in seen:
            seen.add(node)
            found |= {output.dtype for output in node._input_metadata}
            nodes += [following for following, _ in node.next_functions]
    return found


def _layers(model: nn.Module | None) -> Iterator[Finding]:
    if model is None:
        return
    named = list(model.named_modules())
    batch_norms = [name for name, module in named if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    batch_norms = [name for name in batch_norms if _uses_batch(model.get_submodule(name))]
    if batch_norms:
        cure = "A sample's Jacobian is then of no one function of it: use GroupNorm or LayerNorm, or freeze it by eval() and check again."
        yield Finding("batch_norm", f"batch statistics in {', '.join(batch_norms)}", cure)
    dropouts = [
        name
        for name, module in named
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.training and module.p > 0
    ]
    if dropouts:
        cure = "Set p = 0 or eval() these layers, at least for the penalty."
        yield Finding("dropout", f"dropout is on in {', '.join(dropouts)}", cure)


def _uses_batch(module: nn.Module) -> bool:
    return module.training or getattr(module, "running_mean", None) is None


def _coupled(y: Tensor, x: Tensor, weights: Tensor) -> Iterator[Finding]:
    """Whether the first or the last sample's output depends on another sample's input; both, for a running sum looks one way only."""
    alone = torch.zeros_like(weights), torch.zeros_like(weights)
    alone[0][0], alone[1][-1] = weights[0], weights[-1]
    if (_grad(y, x, alone[0])[1:] != 0).any() or (_grad(y, x, alone[1])[:-1] != 0).any():
        cure = "Products take one sample's matrix at a time: remove what looks across the batch (batch norm, a batch mean)."
        yield Finding("coupled_samples", "one sample's output depends on another sample's input", cure)


def _higher(
    model: Callable[[Tensor], Tensor], y: Tensor, x: Tensor, weights: Tensor, is_random: bool
) -> Iterator[Finding]:
    """Second and third derivatives: there, right, not all zero."""
    direction = unit(torch.randn_like(x).flatten(1)).view_as(x)
    try:
        gradient = _grad(y, x, weights, create_graph=True)
        second = _grad(gradient, x, direction, create_graph=True)
    except RuntimeError as error:
        yield _missing("second", error)
        return
    if not second.isfinite().all():
        yield Finding("not_finite", "the second derivative holds NaN or inf", AT_ZERO)
        return
    if not is_random and _differs(model, x, weights, direction, gradient, second):
        cure = "A custom or compiled operation differentiates itself wrongly twice: run it uncompiled, or mend its backward."
        yield Finding("wrong_second_derivative", "it disagrees with differences of the first derivative", cure)
        return
    if not (second != 0).any():
        cure = (
            "Piecewise linear: ReLU's curvature is invisible. Use Softplus, GELU or SiLU for a Hessian penalty on it."
        )
        yield Finding("zero_hessian", "the output's second derivative by the input is zero everywhere", cure)
        return
    try:
        third = _grad(second, x, direction)
    except RuntimeError as error:
        yield _missing("third", error)
        return
    if not third.isfinite().all():
        # Not "not_finite": a Jacobian penalty never takes it.
        yield Finding("no_third_derivative", "the third derivative holds NaN or inf", AT_ZERO)


def _missing(which: str, error: RuntimeError) -> Finding:
    uses = "Both penalties need it" if which == "second" else "A Hessian penalty needs it"
    cure = (
        f"{uses}: replace the operation by one written in plain PyTorch (attention: an explicit softmax), uncompiled."
    )
    return Finding(f"no_{which}_derivative", str(error).splitlines()[0].rstrip("."), cure)


def _differs(
    model: Callable[[Tensor], Tensor], x: Tensor, weights: Tensor, direction: Tensor, gradient: Tensor, second: Tensor
) -> bool:
    """Whether two central differences of the gradient agree with each other (so no kink lies between) but not with `second`."""

    def difference(step: Tensor) -> Tensor:
        ends = [(x + sign * step * direction).detach().requires_grad_() for sign in (1, -1)]
        up, down = (_grad(model(end), end, weights) for end in ends)
        return ((up - down) / (2 * step)).flatten(1).double()

    if x.dtype == torch.bfloat16:
        return False
    size = norm(x.detach().flatten(1)).mean()
    step = STEP * torch.where(size == 0, 1.0, size)
    long, short = difference(step), difference(step / 2)
    found = second.detach().flatten(1).double()
    size = short.norm()
    # float32's rounding of the first derivative, divided by the step, bounds what the differences can tell; near it they disagree.
    if size * step <= 1e-7 * gradient.norm():
        return False
    return bool((long - short).norm() < AGREE * size and (found - short).norm() > DISAGREE * size)


def _forward_mode(model: Callable[[Tensor], Tensor], y: Tensor, x: Tensor, tolerance: float) -> Iterator[Finding]:
    """Whether forward mode silently loses a derivative, or a part of one, that reverse mode has."""
    tangent = torch.randn_like(x)
    try:
        forward = torch.func.jvp(model, (x.detach(),), (tangent,))[1]
    except Exception:
        # Whatever it is that it says, it is not silent.
        return
    probe = torch.zeros_like(y, requires_grad=True)
    try:
        reverse = _grad(_grad(y, x, probe, create_graph=True), probe, tangent)
    except RuntimeError:
        return
    if reverse.isfinite().all() and not (forward - reverse).norm() <= tolerance * reverse.norm():
        cure = "relnet.curvature uses reverse mode only and is right; keep torch.func.jvp, jacfwd and hessian away from this model."
        yield Finding("forward_mode", "forward mode silently disagrees with reverse mode", cure)


def _grad(output: Tensor, variable: Tensor, weights: Tensor, create_graph: bool = False) -> Tensor:
    """The derivative, 0 where autograd knows no path."""
    if not output.requires_grad:
        return torch.zeros_like(variable)
    return torch.autograd.grad(
        output,
        variable,
        weights,
        retain_graph=True,
        create_graph=create_graph,
        allow_unused=True,
        materialize_grads=True,
    )[0]


@contextmanager
def untouched(module: nn.Module | None, device: torch.device) -> Generator[None]:
    """Put the module's buffers (running statistics) and random number generators back."""
    buffers = list(module.buffers()) if module is not None else []
    before = [buffer.detach().clone() for buffer in buffers]
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, value in zip(buffers, before, strict=True):
                    buffer.copy_(value)
