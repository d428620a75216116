"""Jacobians and Hessians with respect to a network's input, one matrix a sample, known by their products only.

    B samples, A one (m, d) matrix a sample     A^T u    Jacobian: one vector-Jacobian product
    v (B, d), u (B, m) flat vectors              A v      Jacobian: the derivative of A^T w by w; Hessian: of the gradient

A product costs a few passes through the network and O(B (m + d)) memory beside the network's graph; no matrix is formed. Products carry
a graph when grad mode is on (the network's next derivative) and none under torch.no_grad(). Everything is torch.autograd.grad in reverse
mode: torch.func and forward mode do not pass through every custom kernel, and backward(create_graph=True) leaks.
Source: Cui, Yan, Liu and Lu 2022, arXiv 2212.00311, section 3; the double-backward product: docs/curvature.md, section 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from relnet.curvature.krylov import full_precision

Symmetry = Literal["none", "symmetric", "skew"]
Product = Callable[[Tensor], Tensor]


class BatchedOperator:
    """One (m, d) matrix a sample, given by its products: `matvec` (B, d) -> (B, m), `rmatvec` (B, m) -> (B, d).

    shape (B, m, d); symmetry: "none", or "symmetric" / "skew" (square; rmatvec may then be left out); matvecs: products with this operator
    and its transpose so far. Supports A + B, A - B, -A, c * A with a number or a (B,) tensor, A.T and `to_dense`.
    ValueError: vectors or operators that do not fit.

    >>> A = from_dense(torch.tensor([[[0.0, 2.0, 0.0], [1.0, 0.0, 0.0]]]))
    >>> A.matvec(torch.tensor([[1.0, 1.0, 1.0]])), (3 * A).T.to_dense().shape, A.matvecs
    (tensor([[2., 1.]]), torch.Size([1, 3, 2]), 3)
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        matvec: Product,
        rmatvec: Product | None = None,
        *,
        dtype: torch.dtype,
        device: torch.device,
        symmetry: Symmetry = "none",
    ) -> None:
        if symmetry != "none" and shape[1] != shape[2]:
            raise ValueError(f"symmetry={symmetry!r} of {shape[1]} x {shape[2]} matrices; only square ones have one")
        if rmatvec is None:
            if symmetry == "none":
                raise ValueError("symmetry='none' needs rmatvec, the product with the transpose")
            sign = -1 if symmetry == "skew" else 1
            rmatvec = lambda u: sign * matvec(u)  # noqa: E731
        self.shape, self.dtype, self.device, self.symmetry = shape, dtype, device, symmetry
        self.matvecs = 0
        self._matvec, self._rmatvec = matvec, rmatvec
        # What this is the transpose of, so that A - A.T is known to be skew. One way only: a cycle would keep the network's graph alive.
        self._transpose_of: BatchedOperator | None = None

    def matvec(self, v: Tensor) -> Tensor:
        """Return A v, (B, m), of v (B, d)."""
        self._check("v", v, self.shape[2])
        self.matvecs += 1
        with full_precision(self.device):
            return self._matvec(v)

    def rmatvec(self, u: Tensor) -> Tensor:
        """Return A^T u, (B, d), of u (B, m)."""
        self._check("u", u, self.shape[1])
        self.matvecs += 1
        with full_precision(self.device):
            return self._rmatvec(u)

    def _check(self, name: str, vector: Tensor, size: int) -> None:
        if vector.shape != (self.shape[0], size) or vector.dtype != self.dtype:
            raise ValueError(
                f"{name} is {tuple(vector.shape)} {vector.dtype}; the {self.shape[1]} x {self.shape[2]} matrices of {self.shape[0]} "
                f"samples take ({self.shape[0]}, {size}) {self.dtype}"
            )

    @property
    def T(self) -> BatchedOperator:  # noqa: N802
        """The transposes; products with them count as this operator's."""
        if self._transpose_of is not None:
            return self._transpose_of
        B, m, d = self.shape
        transposed = self._like((B, d, m), self.rmatvec, self.matvec, self.symmetry)
        transposed._transpose_of = self
        return transposed

    def __add__(self, other: BatchedOperator) -> BatchedOperator:
        return self._combine(other, 1)

    def __sub__(self, other: BatchedOperator) -> BatchedOperator:
        return self._combine(other, -1)

    def __neg__(self) -> BatchedOperator:
        return -1 * self

    def __mul__(self, scale: float | Tensor) -> BatchedOperator:
        factor = scale
        if isinstance(scale, Tensor):
            if scale.shape not in ((), self.shape[:1]):
                raise ValueError(
                    f"scale has shape {tuple(scale.shape)}; give a number or one a sample, ({self.shape[0]},)"
                )
            factor = scale.to(self.dtype)[..., None]
        matvec, rmatvec = self.matvec, self.rmatvec
        return self._like(self.shape, lambda v: factor * matvec(v), lambda u: factor * rmatvec(u), self.symmetry)

    __rmul__ = __mul__

    def to_dense(self) -> Tensor:
        """Return the matrices, (B, m, d), by min(m, d) products; differentiable in grad mode."""
        B, m, d = self.shape
        by_rows = m <= d
        product, size = (self.rmatvec, m) if by_rows else (self.matvec, d)
        unit = torch.eye(size, dtype=self.dtype, device=self.device)
        return torch.stack([product(unit[i].expand(B, size)) for i in range(size)], 1 if by_rows else 2)

    def _combine(self, other: BatchedOperator, sign: int) -> BatchedOperator:
        if other.shape != self.shape or other.dtype != self.dtype:
            raise ValueError(f"operators of {self.shape} {self.dtype} and {other.shape} {other.dtype} do not add up")
        symmetry: Symmetry = self.symmetry if self.symmetry == other.symmetry else "none"
        if other._transpose_of is self or self._transpose_of is other:
            symmetry = "symmetric" if sign == 1 else "skew"
        return self._like(
            self.shape,
            lambda v: self.matvec(v) + sign * other.matvec(v),
            lambda u: self.rmatvec(u) + sign * other.rmatvec(u),
            symmetry,
        )

    def _like(
        self, shape: tuple[int, int, int], matvec: Product, rmatvec: Product, symmetry: Symmetry
    ) -> BatchedOperator:
        return BatchedOperator(shape, matvec, rmatvec, dtype=self.dtype, device=self.device, symmetry=symmetry)


def from_dense(matrices: Tensor, symmetry: Symmetry = "none") -> BatchedOperator:
    """Return the operator of given matrices (B, m, d), float32 or float64; gradients flow to them. ValueError: others, empty ones."""
    if matrices.dim() != 3 or matrices.numel() == 0 or matrices.dtype not in (torch.float32, torch.float64):
        raise ValueError(
            f"matrices are {tuple(matrices.shape)} {matrices.dtype}; give (B, m, d), none of them 0, float32 or float64"
        )
    B, m, d = matrices.shape
    return BatchedOperator(
        (B, m, d),
        lambda v: (matrices @ v[..., None])[..., 0],
        lambda u: (u[:, None] @ matrices)[:, 0],
        dtype=matrices.dtype,
        device=matrices.device,
        symmetry=symmetry,
    )


def jacobian(f: Callable[[Tensor], Tensor], x: Tensor) -> BatchedOperator:
    """Return the Jacobians of y = f(x) with respect to x, one a sample.

    x: (B, *in), d = prod(in); f returns (B, *out), m = prod(out), and couples no samples (`check_model` finds whether it does). f is called
    once, outside autocast. A product with the transpose is the cheaper one. ValueError: float16, no batch dimension, another batch size.

    >>> A = jacobian(lambda x: x[:, :1] * x, torch.tensor([[2.0, 3.0]]))
    >>> A.to_dense().detach()
    tensor([[[4., 0.],
             [3., 2.]]])
    """
    x = _input(x)
    with torch.enable_grad(), full_precision(x.device):
        return jacobian_from_outputs(f(x), x)


def jacobian_from_outputs(y: Tensor, x: Tensor) -> BatchedOperator:
    """Return the Jacobians of outputs y (B, *out) that were computed from x (B, *in), which required grad then.

    Saves the forward pass of `jacobian`; but where y was computed under autocast, so are the products. ValueError also for an x or y that
    requires no grad.
    """
    _check_tensor("y", y)
    _check_tensor("x", x)
    _check_graph(x, "y", y)
    B = x.shape[0]
    if y.shape[0] != B:
        raise ValueError(f"y has shape {tuple(y.shape)} for x of {tuple(x.shape)}; the first dimension is the sample")
    flat = y.reshape(B, -1)
    dtype = torch.promote_types(x.dtype, torch.float32)
    # A^T w at w = 0, with the graph that makes A v of it. Built once, when the first A v is asked for.
    linear: list[tuple[Tensor, Tensor]] = []

    def rmatvec(u: Tensor) -> Tensor:
        return _derivative(flat, x, u).reshape(B, -1).to(dtype)

    def matvec(v: Tensor) -> Tensor:
        if not linear:
            with torch.enable_grad():
                w = torch.zeros_like(flat, requires_grad=True)
                linear.append((_derivative(flat, x, w), w))
        transposed, w = linear[0]
        return _derivative(transposed, w, v).to(dtype)

    return BatchedOperator((B, flat.shape[1], x[0].numel()), matvec, rmatvec, dtype=dtype, device=x.device)


def hessian(f: Callable[[Tensor], Tensor], x: Tensor) -> BatchedOperator:
    """Return the Hessians of s = f(x) with respect to x, one symmetric (d, d) matrix a sample.

    x: (B, *in), d = prod(in); f returns one number a sample, (B,) or (B, 1): a loss without reduction, one logit, an energy. f is called
    once, outside autocast. A product has the network's second derivative, its gradient the third. ValueError as for `jacobian`.

    >>> A = hessian(lambda x: x[:, 0] * x[:, 1] ** 2, torch.tensor([[2.0, 3.0]]))
    >>> A.to_dense().detach(), A.symmetry
    (tensor([[[0., 6.],
             [6., 4.]]]), 'symmetric')
    """
    x = _input(x)
    with torch.enable_grad(), full_precision(x.device):
        return hessian_from_scalar(f(x), x)


def hessian_from_scalar(s: Tensor, x: Tensor) -> BatchedOperator:
    """Return the Hessians of s (B,) or (B, 1), computed from x (B, *in), which required grad then; see `hessian`."""
    _check_tensor("s", s)
    _check_tensor("x", x)
    B = x.shape[0]
    if s.shape not in ((B,), (B, 1)):
        raise ValueError(
            f"s has shape {tuple(s.shape)}; a Hessian needs one number a sample, ({B},): a loss or one logit"
        )
    _check_graph(x, "s", s)
    with torch.enable_grad(), full_precision(x.device):
        gradient = _derivative(s, x, torch.ones_like(s))
    dtype = torch.promote_types(x.dtype, torch.float32)
    d = x[0].numel()

    def matvec(v: Tensor) -> Tensor:
        return _derivative(gradient, x, v).reshape(B, -1).to(dtype)

    return BatchedOperator((B, d, d), matvec, dtype=dtype, device=x.device, symmetry="symmetric")


def _derivative(output: Tensor, variable: Tensor, weights: Tensor) -> Tensor:
    """Derivative of <output, weights> by `variable`, of variable's shape, with a graph where grad mode is on; 0 where there is none."""
    if not output.requires_grad:
        return torch.zeros_like(variable)
    return torch.autograd.grad(
        output,
        variable,
        weights.reshape(output.shape).to(output.dtype),
        retain_graph=True,
        create_graph=torch.is_grad_enabled(),
        allow_unused=True,
        materialize_grads=True,
    )[0]


def _input(x: Tensor) -> Tensor:
    """x itself where it requires grad (it may depend on parameters), else a leaf that does."""
    _check_tensor("x", x)
    if torch.is_inference_mode_enabled():
        raise ValueError("inside torch.inference_mode there are no derivatives; torch.no_grad is no hindrance")
    if x.requires_grad:
        return x
    return (x.clone() if x.is_inference() else x.detach()).requires_grad_()


def _check_graph(x: Tensor, name: str, output: Tensor) -> None:
    if not x.requires_grad or not output.requires_grad:
        raise ValueError(
            f"requires_grad is {x.requires_grad} for x, {output.requires_grad} for {name}; call x.requires_grad_() before the network, "
            "which must not be constant, nor work under no_grad or detach"
        )


def _check_tensor(name: str, tensor: Tensor) -> None:
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} is a {type(tensor).__name__}; give a tensor (of a tuple the part, by a lambda)")
    if tensor.dtype not in (torch.float32, torch.float64, torch.bfloat16):
        why = "its derivatives under- or overflow" if tensor.dtype == torch.float16 else "it has no derivative"
        raise ValueError(f"{name} is {tensor.dtype}; {why}: use float32, float64 or bfloat16")
    if tensor.dim() == 0 or tensor.numel() == 0:
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}; the first dimension is the sample, and none may be empty"
        )
