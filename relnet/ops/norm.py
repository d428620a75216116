"""Plain layer norms: no affine part, eps = 0, and a row of zero variance gives exactly 0 with a zero gradient.

    centre(x)      x - mean(x)                         exactly 0 where all channels are equal and finite
    inverse_rms(x) mean(x^2)^-1/2                      0 where the computed mean square is <= 0
    plain_norm(x)  centre(x) * inverse_rms(centre(x))

`F.layer_norm(eps=0)` gives NaN on constant rows, and one NaN at a padded position poisons every weight gradient.
All functions work on the last dimension, keep the dtype, compute bfloat16 in float32 and have derivatives of every order.
Source: docs/mathematics.md, section 1.
"""

import math

import torch
from torch import Tensor

from relnet.ops.checks import check_dtype
from relnet.ops.reference_mode import in_reference, is_plain, transform


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


# The smallest positive float as eps changes no variance that is a normal number, and makes 0 of 0 instead of NaN; and the inverse root
# that tells it.
_LEAST = {
    dtype: (eps := torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps, 0.9 / math.sqrt(eps))
    for dtype in (torch.float32, torch.float64)
}


def _fused_norm(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the norm, the inverse root of the variance and where that is 0, in three passes over x, by PyTorch's CPU kernel."""
    eps, dead_from = _LEAST[x.dtype]
    y, _, inverse = torch.native_layer_norm(x - x[..., :1], x.shape[-1:], None, None, eps)
    # A variance of 0, seen in eps: the row counts as 0 even where tiny entries are left. NaN is not dead.
    dead = inverse >= dead_from
    return y.masked_fill_(dead, 0.0), inverse, dead


class _FusedNorm(torch.autograd.Function):
    """The derivative of `_fused_norm` in five passes over x; higher derivatives by the definition."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        y, inverse, dead = _fused_norm(x)
        ctx.save_for_backward(x, y, inverse.masked_fill_(dead, 0.0))
        return y

    @staticmethod
    def backward(ctx, *grads: Tensor) -> Tensor:
        (grad,) = grads
        x, y, inverse = ctx.saved_tensors
        if torch.is_grad_enabled():
            x = centre(x)
            inverse = inverse_rms(x)
            y = x * inverse
            return inverse * (centre(grad) - y * (grad * y).mean(-1, keepdim=True))
        # autocast would take the products of a float32 norm in bfloat16.
        with torch.autocast(x.device.type, enabled=False):
            moment = torch.linalg.vecdot(grad, y)[..., None] / x.shape[-1]
        return (grad - grad.mean(-1, keepdim=True)).addcmul_(y, moment, value=-1).mul_(inverse)


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
    dtype = x.dtype
    x = x.to(arithmetic_dtype(dtype))
    # A mode that looks on (selective checkpointing) must not see writes in place to what it has kept.
    if x.device.type == "cpu" and not in_reference() and is_plain(x) and transform() is None:
        # An autograd function costs a decoding step more than the norm itself.
        differentiable = torch.is_grad_enabled() and x.requires_grad
        return (_FusedNorm.apply(x) if differentiable else _fused_norm(x)[0]).to(dtype)
    x = centre(x)
    return (x * inverse_rms(x)).to(dtype)
