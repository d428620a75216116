"""Bring p and q into the form that sums over pairs take, and gradients back: arithmetic dtype, masked sources at 0, heads, centring."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from relnet.ops.norm import arithmetic_dtype, centre, plain_norm


def without_autocast(device: torch.device) -> AbstractContextManager:
    """Keep the dtypes of the arithmetic inside a torch.autocast block."""
    kind = device.type
    casting = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.autocast(kind, enabled=False) if casting else nullcontext()


def pair_norm(norm: str) -> str:
    """Return what is left of a pair norm for centred rows: "rms" or "none"."""
    return "rms" if norm in ("exact", "rms") else "none"


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, D) -> (B, H, T, d)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, H, S, d) -> (B, S, D)."""
    return x.transpose(1, 2).flatten(-2)


def arithmetic(source: Tensor, target: Tensor, key_mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Cast both to the dtype of the arithmetic and set masked sources to 0, whatever stands there (NaN too)."""
    dtype = arithmetic_dtype(source.dtype)
    source = source.to(dtype)
    if key_mask is not None:
        source = source.masked_fill(~key_mask[..., None], 0.0)
    return source, target.to(dtype)


def enter(source: Tensor, target: Tensor, key_mask: Tensor | None, norm: str, heads: int) -> tuple[Tensor, Tensor]:
    """Return p (B, H, T, d) and q (B, H, S, d), centred for the norm "exact": a linear map of source and target."""
    p, q = (split_heads(x, heads) for x in arithmetic(source, target, key_mask))
    # The mean of a pair is the sum of the means: centred once a row, a pair needs only its scale.
    return (centre(p), centre(q)) if norm == "exact" else (p, q)


def leave(grad: Tensor, norm: str, dtype: torch.dtype) -> Tensor:
    """Return a gradient (B, H, T, d) of entered rows as one of the rows themselves, (B, T, D): the transpose of `enter`."""
    return merge_heads(centre(grad) if norm == "exact" else grad).to(dtype)


def normalise_heads(x: Tensor, heads: int) -> Tensor:
    """Layer-normalise each head's channels of (B, T, D) by themselves."""
    return plain_norm(x.unflatten(-1, (heads, -1))).flatten(-2)
