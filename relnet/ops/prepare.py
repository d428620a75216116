"""Bring p and q into the form that the backends take: arithmetic dtype, masked sources at 0, heads."""

from torch import Tensor

from relnet.ops.norm import arithmetic_dtype, plain_norm


def prepare(source: Tensor, target: Tensor, key_mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Cast both to the dtype of the arithmetic and set masked sources to 0, whatever stands there (NaN too)."""
    dtype = arithmetic_dtype(source.dtype)
    source = source.to(dtype)
    if key_mask is not None:
        source = source.masked_fill(~key_mask[..., None], 0.0)
    return source, target.to(dtype)


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(B, T, D) -> (B, H, T, d)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge_heads(x: Tensor) -> Tensor:
    """(B, H, S, d) -> (B, S, D)."""
    return x.transpose(1, 2).flatten(-2)


def normalise_heads(x: Tensor, heads: int) -> Tensor:
    """Layer-normalise each head's channels of (B, T, D) by themselves."""
    return plain_norm(x.unflatten(-1, (heads, -1))).flatten(-2)
