"""Penalties on each sample's A - A0, to be added to a training loss: spectral and Frobenius, and the two that the paper applies.

    spectral    mean over samples of ||u^T (A - A0)||^2, u found without graph and then held fixed
    Frobenius   mean over samples of ||A - A0||_F^2, exactly or by random probes (Hutchinson)

||A||_2^2 <= ||A||_F^2 <= rank(A) ||A||_2^2. For the true top u the gradient is that of sigma^2 (envelope theorem, where the top value is
simple); for another u it is the gradient of a lower bound. Squares, not roots: at A = 0 the gradient is 0, not NaN.
Source: Cui et al. 2022, arXiv 2212.00311, sections 3 and 4.
"""

from typing import Literal, get_args

import torch
from torch import Tensor

from relnet.curvature.norms import Method, SpectralResult, top
from relnet.curvature.operators import BatchedOperator
from relnet.curvature.targets import Target, draw_signs, row_sums, signed_row_sums, transpose, zero

Distribution = Literal["rademacher", "gaussian"]
Norm = Literal["spectral", "frobenius"]


def spectral_penalty(
    A: BatchedOperator,
    target: Target | None = None,
    *,
    method: Method = "auto",
    iters: int = 8,
    v0: Tensor | None = None,
    generator: torch.Generator | None = None,
    tol: float = 1e-3,
) -> tuple[Tensor, SpectralResult]:
    """Return the batch mean of ||u^T (A - A0)||^2, a lower bound of ||A - A0||_2^2 (equal to it where exact), and the solver's result.

    target: default zero(). The other arguments are those of `spectral_norm`; result.u is the next call's v0 for a warm start, and
    result.matvecs counts the products with A, those of the target's included. ValueError as there.

    >>> from relnet.curvature import jacobian
    >>> weight = torch.tensor([[2.0, 0.0], [0.0, 1.0]], requires_grad=True)
    >>> loss, result = spectral_penalty(jacobian(lambda x: x @ weight, torch.ones(3, 2)))
    >>> loss.backward()
    >>> result.sigma, weight.grad
    (tensor([2., 2., 2.]), tensor([[4., 0.],
            [0., 0.]]))
    """
    before = A.matvecs
    difference = (target or zero())(A)
    triplet = top(difference, method, iters, v0=v0, generator=generator)
    product = difference.rmatvec(triplet.u)
    return product.square().sum(-1).mean(), triplet.finish(product, A.matvecs - before, tol)


def frobenius_penalty(
    A: BatchedOperator,
    target: Target | None = None,
    *,
    probes: int = 1,
    distribution: Distribution = "rademacher",
    exact: bool = False,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return the batch mean of ||A - A0||_F^2: unbiased from `probes` random products a sample, or exactly by min(m, d) of them.

    distribution: entries of a probe, "rademacher" (+1 or -1: exact for diagonal A A^T) or "gaussian". ValueError: probes < 1, an unknown
    distribution.

    >>> from relnet.curvature import from_dense
    >>> frobenius_penalty(from_dense(torch.tensor([[[1.0, 2.0], [0.0, 2.0]]])), exact=True)
    tensor(9.)
    """
    if probes < 1 or distribution not in get_args(Distribution):
        raise ValueError(f"probes={probes}, distribution={distribution!r}; give probes >= 1 and rademacher or gaussian")
    difference = (target or zero())(A)
    if exact:
        return difference.to_dense().square().sum((1, 2)).mean()
    shape = A.shape[:2]
    total = torch.zeros((), dtype=A.dtype, device=A.device)
    for _ in range(probes):
        if distribution == "rademacher":
            probe = draw_signs(shape, A, generator)
        else:
            probe = torch.randn(shape, dtype=A.dtype, device=A.device, generator=generator)
        total = total + difference.rmatvec(probe).square().sum(-1).mean()
    return total / probes


def symmetry_penalty(
    A: BatchedOperator, norm: Norm = "spectral", *, generator: torch.Generator | None = None, **solver
) -> Tensor:
    """Return the batch mean of ||A - A^T||^2 in the given norm: 0 where a Jacobian is that of a conservative field.

    norm "spectral": a lower bound, as of `spectral_penalty`; "frobenius": exact or unbiased. solver: further arguments of
    `spectral_penalty` or `frobenius_penalty`. A - A^T is skew, so a step of its Lanczos costs two products with A. ValueError: A not
    square, an unknown norm.

    >>> from relnet.curvature import from_dense
    >>> symmetry_penalty(from_dense(torch.tensor([[[1.0, 3.0], [1.0, 1.0]]])), "frobenius", exact=True)
    tensor(8.)
    """
    return penalty(A, transpose(), norm, generator=generator, **solver)


def diagonality_penalty(
    A: BatchedOperator, norm: Norm = "frobenius", *, generator: torch.Generator | None = None, **solver
) -> Tensor:
    """Return how far A is from a diagonal matrix, the batch mean.

    norm "frobenius": unbiased for the sum of A_ij^2 over i != j (signed row sums, whose expectation is twice that, halved). "spectral":
    a lower bound, as of `spectral_penalty`, of ||A - diag(A 1)||_2^2, the paper's: 0 for diagonal A only, by Theorem 1 (`row_sums`).
    solver: as for `symmetry_penalty`, and so is ValueError.

    >>> from relnet.curvature import from_dense
    >>> diagonality_penalty(from_dense(torch.tensor([[[5.0, 3.0], [1.0, 7.0]]])), exact=True)
    tensor(10.)
    """
    if norm == "frobenius":
        return penalty(A, signed_row_sums(generator), norm, generator=generator, **solver) / 2
    return penalty(A, row_sums(), norm, generator=generator, **solver)


def penalty(A: BatchedOperator, target: Target, norm: Norm, **solver) -> Tensor:
    """Return the penalty of the norm's name, without the solver's result."""
    if norm not in get_args(Norm):
        raise ValueError(f"norm={norm!r}; give spectral or frobenius")
    return spectral_penalty(A, target, **solver)[0] if norm == "spectral" else frobenius_penalty(A, target, **solver)
