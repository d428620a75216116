"""Plain layer norms: no affine part, eps = 0, and a row of zero variance gives exactly 0 with a zero gradient.

    centre(x)      x - mean(x)                         exactly 0 where all channels are equal and finite
    inverse_rms(x) mean(x^2)^-1/2                      0 where the computed mean square is <= 0
    plain_norm(x)  centre(x) * inverse_rms(centre(x))

`F.layer_norm(eps=0)` gives NaN on constant rows, and one NaN at a padded position poisons every weight gradient.
All functions work on the last dimension, keep the dtype, compute bfloat16 in float32 and have derivatives of every order.
Source: docs/mathematics.md, section 1.
"""

import torch
from torch import Tensor

from relnet.ops import norm_cpu
from relnet.ops.checks import check_dtype
from relnet.ops.reference_mode import in_reference, is_plain


def arithmetic_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype that sums and exponentials of `dtype` are computed in: float32 for bfloat16."""
    return torch.float32 if dtype == torch.bfloat16 else dtype


def centre(x: Tensor) -> Tensor:
    """Subtract the mean of the last dimension; a row whose entries are all equal and finite gives exactly 0."""
    # Seen from its first entry, a row of equal ones is exactly 0, and a row far from 0 has a mean as small as its spread: a mean of 1e4
    # would carry an error of 1e-3. The centre does not depend on that entry, nor does the derivative.
    x = x - x.detach()[..., :1]
    return x - x.mean(-1, keepdim=True)


def inverse_rms(x: Tensor) -> Tensor:
    """Return mean(x^2)^-1/2 over the last dimension, kept; 0 with a zero gradient where the mean square is <= 0."""
    mean_square = x.square().mean(-1, keepdim=True)
    # "<= 0 ? 0 : 1 / sqrt", never "> 0 ? 1 / sqrt : 0": a NaN must stay NaN. Not rsqrt, whose derivative cubes: it overflows
    # from a mean square of 2e-26.
    zero = mean_square <= 0
    return torch.where(zero, 0.0, torch.where(zero, 1.0, mean_square).sqrt().reciprocal())


class _FusedNorm(torch.autograd.Function):
    """The norm and its gradient by the kernels; higher derivatives by the definition."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return norm_cpu.norm(x)

    @staticmethod
    def backward(ctx, *grads: Tensor) -> Tensor:
        (grad,), (x,) = grads, ctx.saved_tensors
        if not torch.is_grad_enabled() and is_plain(grad):
            return norm_cpu.gradient(grad, x)
        dtype = x.dtype
        x, grad = x.to(arithmetic_dtype(dtype)), grad.to(arithmetic_dtype(dtype))
        x = centre(x)
        inverse = inverse_rms(x)
        y = x * inverse
        return (inverse * (centre(grad) - y * (grad * y).mean(-1, keepdim=True))).to(dtype)


def plain_norm(x: Tensor) -> Tensor:
    """Layer norm over the last dimension without affine part and with eps = 0.

    x: (..., D), float32, float64 or bfloat16. Returns the same shape and dtype. Raises ValueError for other dtypes and for D = 0.

    >>> plain_norm(torch.tensor([[1.0, 2.0, 3.0], [5.0, 5.0, 5.0]]))
    tensor([[-1.2247,  0.0000,  1.2247],
            [ 0.0000,  0.0000,  0.0000]])
    """
    check_dtype("x", x)
    if x.dim() == 0 or x.shape[-1] == 0:
        raise ValueError(f"x has shape {tuple(x.shape)}; a norm needs a last dimension of at least 1")
    if is_plain(x) and not in_reference() and norm_cpu.refuses(x) is None:
        # An autograd function costs a decoding step more than the norm itself.
        return _FusedNorm.apply(x) if torch.is_grad_enabled() and x.requires_grad else norm_cpu.norm(x)
    dtype = x.dtype
    x = centre(x.to(arithmetic_dtype(dtype)))
    return (x * inverse_rms(x)).to(dtype)
