"""Targets: what a Jacobian or Hessian A is drawn towards. A target takes A and returns the operator A - A0.

A0 is known by its products as A is, may be any function of A, and gradients flow through it. Any callable of this kind is a target:
`lambda A: A - other`. Whatever a target draws or computes (signs, row sums) it does once a call: A - A0 is one fixed operator
for all products of a solver. Square A only, except for zero, constant and operator.
Source: Cui et al. 2022, arXiv 2212.00311, section 4; signed row sums: docs/curvature.md, section 4.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from relnet.curvature.operators import BatchedOperator, from_dense

Target = Callable[[BatchedOperator], BatchedOperator]


def zero() -> Target:
    """A0 = 0: the penalty is on A itself."""
    return lambda A: A


def constant(matrices: Tensor) -> Target:
    """A0 = given matrices, (B, m, d) or one (m, d) for all samples.

    >>> A = from_dense(torch.eye(2)[None])
    >>> constant(torch.ones(2, 2))(A).to_dense()
    tensor([[[ 0., -1.],
             [-1.,  0.]]])
    """

    def target(A: BatchedOperator) -> BatchedOperator:
        if matrices.shape not in (A.shape, A.shape[1:]):
            raise ValueError(f"the target has shape {tuple(matrices.shape)}; give {A.shape} or {A.shape[1:]}")
        return A - from_dense(matrices.to(A.dtype).expand(A.shape))

    return target


def identity(scale: float | Tensor = 1.0) -> Target:
    """A0 = scale * I, with a number or a (B,) tensor: an isometry for a Jacobian, a curvature for a Hessian."""
    return lambda A: A - scale * _diagonal(A, torch.ones(A.shape[2], dtype=A.dtype, device=A.device))


def diagonal(values: Tensor) -> Target:
    """A0 = diag(values), (B, d) or one (d,) for all samples."""
    return lambda A: A - _diagonal(A, values)


def operator(other: BatchedOperator | Callable[[], BatchedOperator]) -> Target:
    """A0 = another operator, such as another network's Jacobian at the same x; or what a function returns, asked at each call."""
    return lambda A: A - (other if isinstance(other, BatchedOperator) else other())


def transpose() -> Target:
    """A0 = A^T: A - A^T is 0 where A is symmetric (a conservative field, for a Jacobian); it is skew, and a product costs two of A's."""

    def target(A: BatchedOperator) -> BatchedOperator:
        _check_square(A)
        return A - A.T

    return target


def row_sums() -> Target:
    """A0 = diag(A 1), the paper's target for diagonal A; one product more a call.

    Theorem 1: ||A - A0||_F^2 / d <= sum of A_ij^2 over i != j <= ||A - A0||_F^2. Rows whose entries agree in sign weigh up to d times more
    than others: `signed_row_sums` has no such bias.
    """
    return lambda A: (
        A - _diagonal(A, A.matvec(torch.ones(A.shape[0], _check_square(A), dtype=A.dtype, device=A.device)))
    )


def signed_row_sums(generator: torch.Generator | None = None) -> Target:
    """A0 = diag(s o (A s)) with random signs s (B, d), drawn once a call: E ||A - A0||_F^2 = 2 * sum of A_ij^2 over i != j, exactly.

    An identity of the Frobenius norm; the spectral norm has none such. generator: on A's device; default torch's own.
    """

    def target(A: BatchedOperator) -> BatchedOperator:
        signs = draw_signs((A.shape[0], _check_square(A)), A, generator)
        return A - _diagonal(A, signs * A.matvec(signs))

    return target


def diag_exact() -> Target:
    """A0 = the diagonal of A itself, by d products a call."""

    def target(A: BatchedOperator) -> BatchedOperator:
        _check_square(A)
        return A - _diagonal(A, A.to_dense().diagonal(dim1=1, dim2=2))

    return target


def draw_signs(shape: tuple[int, ...], A: BatchedOperator, generator: torch.Generator | None) -> Tensor:
    """Return independent +1 and -1 of A's dtype and device."""
    return torch.randint(2, shape, generator=generator, device=A.device).to(A.dtype) * 2 - 1


def _diagonal(A: BatchedOperator, values: Tensor) -> BatchedOperator:
    B, d = A.shape[0], _check_square(A)
    if values.shape not in ((B, d), (d,)):
        raise ValueError(f"the diagonal has shape {tuple(values.shape)}; give ({B}, {d}) or ({d},)")
    values = values.to(A.dtype).expand(B, d)
    return BatchedOperator(A.shape, lambda v: values * v, dtype=A.dtype, device=A.device, symmetry="symmetric")


def _check_square(A: BatchedOperator) -> int:
    if A.shape[1] != A.shape[2]:
        raise ValueError(
            f"matrices of {A.shape[1]} x {A.shape[2]} have neither diagonal nor symmetry; this target needs square ones"
        )
    return A.shape[2]
