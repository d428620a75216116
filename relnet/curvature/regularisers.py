"""Penalties as modules for a training loop: one line at construction, one in the loop."""

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor, nn

from relnet.curvature.norms import Method, SpectralResult
from relnet.curvature.operators import BatchedOperator, hessian, jacobian
from relnet.curvature.penalties import Norm, penalty, spectral_penalty
from relnet.curvature.targets import Target, zero
from relnet.curvature.warm_start import WarmStart


class _Regularizer(nn.Module):
    operator: ClassVar[Callable[[Callable[[Tensor], Tensor], Tensor], BatchedOperator]]

    def __init__(
        self,
        norm: Norm = "spectral",
        target: Target | None = None,
        *,
        method: Method = "auto",
        iters: int = 4,
        probes: int = 1,
        warm_start: WarmStart | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        if norm == "frobenius" and (warm_start is not None or method not in ("auto", "exact")):
            raise ValueError(
                f"norm='frobenius' with method={method!r}, warm_start={warm_start}; these are the spectral norm's"
            )
        self.norm, self.target, self.method, self.iters, self.probes = norm, target or zero(), method, iters, probes
        self.warm_start, self.generator = warm_start, generator
        self.last: SpectralResult | None = None

    def extra_repr(self) -> str:
        return f"norm={self.norm!r}, method={self.method!r}, iters={self.iters}, probes={self.probes}"

    def forward(self, f: Callable[[Tensor], Tensor], x: Tensor, index: Tensor | None = None) -> Tensor:
        """Return the penalty at x (B, *in), a scalar with a graph to f's parameters; index (B,): the samples' numbers, for a warm start."""
        table, start = self.warm_start, None
        if (table is None) != (index is None):
            raise ValueError(
                f"index={index} with warm_start={table}; a warm start needs the samples' numbers, (B,) int64"
            )
        A = type(self).operator(f, x)
        if self.norm != "spectral":
            exact = self.method == "exact"
            return penalty(A, self.target, self.norm, probes=self.probes, exact=exact, generator=self.generator)
        if table is not None and index is not None:
            start = table.start(A, index, self.generator)
        loss, self.last = spectral_penalty(
            A, self.target, method=self.method, iters=self.iters, v0=start, generator=self.generator
        )
        if table is not None and index is not None:
            table.keep(index, self.last.u)
        return loss


class JacobianRegularizer(_Regularizer):
    """Penalty on the Jacobian of f at x: `loss = cross_entropy(model(x), y) + weight * regularizer(model, x)`.

    norm: "spectral" or "frobenius"; target: default zero(); method, iters: the solver's (spectral; `iters` may be set during training,
    as an IterationSchedule says); probes: of the Frobenius estimate, exact with method="exact"; warm_start: a WarmStart, spectral only.
    After a spectral call `last` holds the solver's SpectralResult. Arguments that do not fit raise ValueError.

    >>> model = nn.Sequential(nn.Linear(8, 16), nn.Softplus(), nn.Linear(16, 3))
    >>> regularizer = JacobianRegularizer()
    >>> regularizer(model, torch.randn(5, 8)).backward()
    >>> regularizer.last.method, model[0].weight.grad.shape
    ('exact', torch.Size([16, 8]))
    """

    operator = staticmethod(jacobian)


class HessianRegularizer(_Regularizer):
    """Penalty on the Hessian of f at x, where f returns one number a sample; arguments as of JacobianRegularizer.

    For a classifier: `regularizer(lambda x: cross_entropy(model(x), y, reduction="none"), x)`. Its gradient is a third derivative of the
    network, and zero for ReLU's part: use Softplus, GELU or SiLU (`check_model` says so).

    >>> energy = nn.Sequential(nn.Linear(8, 16), nn.Softplus(), nn.Linear(16, 1))
    >>> regularizer = HessianRegularizer(iters=2)
    >>> regularizer(energy, torch.randn(5, 8)).backward()
    >>> regularizer.last.method, regularizer.last.matvecs
    ('lanczos', 3)
    """

    operator = staticmethod(hessian)
