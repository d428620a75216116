"""Batched Golub-Kahan bidiagonalisation with full reorthogonalisation: Lanczos for a Jacobian without squaring its condition.

    A V_n = U_{n+1} C     U, V orthonormal columns (rows of `left`, `right`), C (n+1, n): diagonal alpha, below it beta

Cost: 2 n products, O(B n^2 (m + d)) arithmetic and O(B n (m + d)) memory.
Source: Golub and Kahan 1965; Paige and Saunders 1982 (the lower bidiagonal form).
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from relnet.curvature.krylov import extend, norm, restarts, solving, unit
from relnet.curvature.operators import BatchedOperator


@dataclass(frozen=True)
class GolubKahan:
    """Left basis (B, n + 1, m), right basis (B, n, d) and the projected matrix C (B, n + 1, n)."""

    left: Tensor
    right: Tensor
    projected: Tensor


def golub_kahan(A: BatchedOperator, u0: Tensor, iters: int) -> GolubKahan:
    """Run n = min(iters, m, d) steps from u0 (B, m); no graph, no value looked at on the host, breakdown as in `lanczos`.

    ValueError: iters < 1.

    >>> from relnet.curvature import from_dense
    >>> A = from_dense(torch.tensor([[[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]]]))
    >>> torch.linalg.svdvals(golub_kahan(A, torch.ones(1, 2), iters=2).projected).round(decimals=4)
    tensor([[4., 3.]])
    """
    if iters < 1:
        raise ValueError(f"iters={iters}; give at least 1")
    B, m, d = A.shape
    n = min(iters, m, d)
    with solving(A.device):
        right = u0.new_zeros(B, n, d)
        left, projected = u0.new_zeros(B, n + 1, m), u0.new_zeros(B, n + 1, n)
        fresh_left, fresh_right = restarts(n + 1, left), restarts(n, right)
        left[:, 0] = unit(torch.where(norm(u0)[:, None] == 0, fresh_left[n], u0))
        scale = u0.new_zeros(B)
        for k in range(n):
            right[:, k], projected[:, k, k], scale = extend(A.rmatvec(left[:, k]), right[:, :k], fresh_right[k], scale)
            left[:, k + 1], projected[:, k + 1, k], scale = extend(
                A.matvec(right[:, k]), left[:, : k + 1], fresh_left[k], scale
            )
    return GolubKahan(left, right, projected)
