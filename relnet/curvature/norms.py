"""The spectral norm of each sample's matrix from a few products, with a certificate.

Every method ends with a unit v and A v = s u, so s <= ||A||_2. One product more, A^T u, gives sigma = ||A^T u|| with s <= sigma <= ||A||_2.

    exact         all min(m, d) products, the dense matrix's top triplet
    lanczos       n products (symmetric, skew): v = argmax ||A v|| over the Krylov space; kept is u = A v / s, one product further, known
                  for free as the left vector of the (n+1, n) projected matrix ("rectangular Lanczos"). Else on A A^T, 2 n + 2
    golub_kahan   2 n products, the same for any A
    power         n products (symmetric, skew: on A itself) or 2 n (A A^T)

||A u|| >= ||A v|| for normal A, so the left vector is never worse than plain Lanczos's:
||A v||^2 = <v, A^T A v> <= ||A^T A v|| = ||A A v||.
Source: docs/curvature.md, sections 2 and 3.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from relnet.curvature.golub_kahan import golub_kahan
from relnet.curvature.krylov import norm, restarts, solving, top_triplet, unit
from relnet.curvature.lanczos import lanczos
from relnet.curvature.operators import BatchedOperator

Method = Literal["auto", "exact", "lanczos", "golub_kahan", "power"]


@dataclass(frozen=True)
class SpectralResult:
    """What a solver found of each sample's A; no graph.

    sigma (B,): ||A^T u||, a lower bound of ||A||_2, equal to it (to rounding) where `exact`.
    u (B, m), v (B, d): unit vectors with A^T u = sigma v, or 0 where sigma is.
    residual (B,): ||A^T u - s v'|| for the pair A v' = s u, s <= sigma, that the solver ended with; a singular value lies within it of s.
        Not necessarily the largest one: a start orthogonal to that direction cannot see it.
    converged (B,) bool: residual <= tol * sigma. iterations: steps made. matvecs: products spent. method: which one ran.
    """

    sigma: Tensor
    u: Tensor
    v: Tensor
    residual: Tensor
    converged: Tensor
    iterations: int
    matvecs: int
    method: Method
    exact: bool


@dataclass(frozen=True)
class Triplet:
    """A v = s u; u and v are unit, or 0 where s is."""

    s: Tensor
    u: Tensor
    v: Tensor
    iterations: int
    method: Method

    def finish(self, product: Tensor, matvecs: int, tol: float) -> SpectralResult:
        """Return the result, given A^T u."""
        product = product.detach()
        sigma = norm(product)
        residual = norm(product - self.s[:, None] * self.v)
        return SpectralResult(
            sigma,
            self.u,
            unit(product),
            residual,
            residual <= tol * sigma,
            self.iterations,
            matvecs,
            self.method,
            self.method == "exact",
        )


def spectral_norm(
    A: BatchedOperator,
    method: Method = "auto",
    iters: int = 8,
    *,
    v0: Tensor | None = None,
    generator: torch.Generator | None = None,
    tol: float = 1e-3,
) -> SpectralResult:
    """Return a lower bound of each sample's ||A||_2 with its vectors, residual and cost; no graph (`spectral_penalty` has one).

    method: as in the module's table; "auto" takes "exact" where that needs no more products than `iters` steps would, else "lanczos" for
    symmetric and skew A and "golub_kahan" for others. iters: steps; Krylov methods stop when they have all. v0 (B, m): where to start,
    random by default (from `generator`, which lives on A's device); a 0 row starts somewhere fixed. ValueError: an unknown method,
    iters < 1, v0 of another shape.

    >>> from relnet.curvature import from_dense
    >>> result = spectral_norm(from_dense(torch.diag_embed(torch.tensor([[1.0, -3.0, 2.0]])), symmetry="symmetric"))
    >>> result.sigma, result.method, result.matvecs
    (tensor([3.]), 'exact', 4)
    """
    before = A.matvecs
    triplet = top(A, method, iters, v0=v0, generator=generator)
    with torch.no_grad():
        product = A.rmatvec(triplet.u)
    return triplet.finish(product, A.matvecs - before, tol)


def top(
    A: BatchedOperator,
    method: Method,
    iters: int,
    *,
    v0: Tensor | None = None,
    generator: torch.Generator | None = None,
) -> Triplet:
    """Return the triplet that `method` ends with: `spectral_norm` less its last product."""
    if method not in get_args(Method):
        raise ValueError(f"method={method!r}; give one of {', '.join(get_args(Method))}")
    if iters < 1:
        raise ValueError(f"iters={iters}; give at least 1")
    B, m, d = A.shape
    has_symmetry = A.symmetry != "none"
    if method == "auto":
        products = iters if has_symmetry else 2 * iters
        method = "exact" if min(m, d) <= products else "lanczos" if has_symmetry else "golub_kahan"
    if v0 is None:
        v0 = torch.randn(B, m, dtype=A.dtype, device=A.device, generator=generator)
    elif v0.shape != (B, m):
        raise ValueError(f"v0 has shape {tuple(v0.shape)}; give ({B}, {m})")
    v0 = v0.detach().to(A.dtype)
    with solving(A.device):
        if method == "exact":
            return Triplet(*top_triplet(A.to_dense()), min(m, d), method)
        if method == "power":
            start = torch.where((v0 == 0).all(-1, keepdim=True), restarts(1, v0), v0)
            return Triplet(*_power(A, unit(start), iters), iters, method)
        if method == "golub_kahan":
            bases = golub_kahan(A, v0, iters)
            s, u, v = top_triplet(bases.projected)
            return Triplet(s, _combine(u, bases.left), _combine(v, bases.right), bases.right.shape[1], method)
        if has_symmetry:
            space = lanczos(A.matvec, v0, iters, skew=A.symmetry == "skew")
            s, u, v = top_triplet(space.projected)
            return Triplet(s, _combine(u, space.basis), _combine(v, space.basis[:, :-1]), v.shape[1], method)
        space = lanczos(_Gram(A), v0, iters)
        _, u, steps = top_triplet(space.projected)
        v = unit(A.rmatvec(_combine(u, space.basis)))
        image = A.matvec(v)
        return Triplet(norm(image), unit(image), v, steps.shape[1], method)


class _Gram:
    """Products with A A^T, up to a power of two a sample that keeps its square within range."""

    def __init__(self, A: BatchedOperator) -> None:
        self.A = A
        self.exponent: Tensor | None = None

    def __call__(self, u: Tensor) -> Tensor:
        image = self.A.rmatvec(u)
        if self.exponent is None:
            self.exponent = -torch.frexp(image.abs().amax(-1, keepdim=True))[1]
        return torch.ldexp(self.A.matvec(torch.ldexp(image, self.exponent)), self.exponent)


def _power(A: BatchedOperator, u: Tensor, iters: int) -> tuple[Tensor, Tensor, Tensor]:
    image = v = u
    for _ in range(iters):
        v = u if A.symmetry != "none" else unit(A.rmatvec(u))
        image = A.matvec(v)
        u = unit(image)
    return norm(image), u, v


def _combine(coefficients: Tensor, basis: Tensor) -> Tensor:
    """The unit vectors of these coefficients (B, n) in an orthonormal basis (B, n, d)."""
    return unit((coefficients[:, None] @ basis)[:, 0])
