"""Extreme eigenvalues of symmetric matrices by Lanczos: the largest in modulus, the algebraically largest, the smallest.

Ritz pairs of the square part of T (Parlett 1998, chapter 13): value theta_i, vector Q z_i, residual beta_n |z_i's last entry|, for free.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from relnet.curvature.krylov import solving
from relnet.curvature.lanczos import lanczos
from relnet.curvature.operators import BatchedOperator

Which = Literal["LM", "LA", "SA"]


@dataclass(frozen=True)
class Eigenpairs:
    """values (B, k), vectors (B, k, d) with vectors[:, i] the unit vector of values[:, i], residuals (B, k) = ||A q - theta q||.

    An eigenvalue lies within each residual of its value. The most outstanding pair stands first. A vector's largest entry is positive.
    """

    values: Tensor
    vectors: Tensor
    residuals: Tensor
    matvecs: int


def extreme_eigs(
    A: BatchedOperator,
    which: Which = "LM",
    k: int = 1,
    iters: int = 16,
    *,
    v0: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Eigenpairs:
    """Return k extreme eigenpairs of each sample's symmetric A from min(iters, d) products; no graph.

    which: "LM" largest modulus, "LA" algebraically largest, "SA" smallest (most negative). "LA" values are lower bounds of the true ones,
    "SA" values upper bounds. For a derivative, v^T A v with the vector found, in grad mode, has the eigenvalue's gradient where the
    residual is 0; elsewhere v, held fixed, is not the eigenvector.
    ValueError: A not symmetric, an unknown `which`, k > min(iters, d), v0 of another shape.

    >>> from relnet.curvature import from_dense
    >>> A = from_dense(torch.diag_embed(torch.tensor([[1.0, -3.0, 2.0]])), symmetry="symmetric")
    >>> pairs = extreme_eigs(A, which="SA", k=2, iters=3)
    >>> pairs.values.round(decimals=3), pairs.vectors[:, 0].round(decimals=3).abs()
    (tensor([[-3.,  1.]]), tensor([[0., 1., 0.]]))
    """
    B, d, _ = A.shape
    if A.symmetry != "symmetric":
        raise ValueError(f"symmetry={A.symmetry!r}; eigenvalues are found of symmetric A only: use spectral_norm")
    if which not in get_args(Which):
        raise ValueError(f"which={which!r}; give one of {', '.join(get_args(Which))}")
    n = min(iters, d)
    if not 1 <= k <= n:
        raise ValueError(f"k={k} eigenvalues from {n} steps of {d} x {d} matrices; give 1 <= k <= min(iters, d)")
    if v0 is None:
        v0 = torch.randn(B, d, dtype=A.dtype, device=A.device, generator=generator)
    elif v0.shape != (B, d):
        raise ValueError(f"v0 has shape {tuple(v0.shape)}; give ({B}, {d})")
    before = A.matvecs
    with solving(A.device):
        space = lanczos(A.matvec, v0.to(A.dtype), n)
        square, beta = space.projected[:, :n], space.projected[:, n, n - 1]
        scale = square.abs().amax((1, 2))
        finite = scale.isfinite()
        scale = torch.where(finite & (scale > 0), scale, 1.0)
        values, small = torch.linalg.eigh(torch.where(finite[:, None, None], square, 0.0) / scale[:, None, None])
        outstanding = {"LM": values.abs(), "LA": values, "SA": -values}[which]
        order = outstanding.argsort(-1, descending=True)[:, :k]
        values = torch.where(finite[:, None], values.gather(1, order) * scale[:, None], torch.nan)
        small = small.gather(2, order[:, None].expand(B, n, k)).mT
        vectors = small @ space.basis[:, :n]
        largest = vectors.gather(2, vectors.abs().argmax(-1, keepdim=True))
        return Eigenpairs(values, vectors * largest.sign(), (beta[:, None] * small[..., -1]).abs(), A.matvecs - before)
