"""Batched Lanczos for symmetric and skew matrices, with full reorthogonalisation.

    A Q_n = Q_{n+1} T     Q orthonormal columns (rows of `basis`), T (n+1, n): diagonal alpha (0 where skew), below it beta, above it +-beta

Cost: n products, O(B n^2 d) arithmetic and O(B n d) memory. Without reorthogonalisation rounding makes copies of the top eigenvalue.
Sources: Paige 1972; Cui et al. 2022, arXiv 2212.00311, algorithm 1; what differs here: docs/curvature.md, section 2.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from relnet.curvature.krylov import extend, norm, restarts, solving, unit


@dataclass(frozen=True)
class Lanczos:
    """The basis (B, n + 1, d) and the projected matrix T (B, n + 1, n)."""

    basis: Tensor
    projected: Tensor


def lanczos(matvec: Callable[[Tensor], Tensor], v0: Tensor, iters: int, *, skew: bool = False) -> Lanczos:
    """Run n = min(iters, d) steps from v0 (B, d), one matrix a sample; no graph, and no value is looked at on the host.

    matvec: (B, d) -> (B, d), of symmetric matrices, or of skew ones with skew=True. A sample whose Krylov space is exhausted goes on in
    another invariant space with beta = 0, so that T is true all the same; the last row of the basis is 0 where n = d.
    ValueError: iters < 1.

    >>> values = torch.tensor([[3.0, -1.0, 2.0]])
    >>> T = lanczos(lambda v: values * v, torch.ones(1, 3), iters=3).projected[:, :3]
    >>> torch.linalg.eigvalsh(T).round(decimals=4)
    tensor([[-1.,  2.,  3.]])
    """
    if iters < 1:
        raise ValueError(f"iters={iters}; give at least 1")
    B, d = v0.shape
    n = min(iters, d)
    with solving(v0.device):
        fresh = restarts(n + 1, v0)
        basis, projected = v0.new_zeros(B, n + 1, d), v0.new_zeros(B, n + 1, n)
        basis[:, 0] = unit(torch.where(norm(v0)[:, None] == 0, fresh[n], v0))
        scale = v0.new_zeros(B)
        for k in range(n):
            w = matvec(basis[:, k])
            if not skew:
                projected[:, k, k] = (w * basis[:, k]).sum(-1)
            basis[:, k + 1], beta, scale = extend(w, basis[:, : k + 1], fresh[k], scale)
            projected[:, k + 1, k] = beta
            if k + 1 < n:
                projected[:, k, k + 1] = -beta if skew else beta
    return Lanczos(basis, projected)
