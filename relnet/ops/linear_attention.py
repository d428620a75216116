"""Attention with a feature map in place of the softmax, linear in length in time and memory.

    y_j = ( sum_{i in V_j} phi(q_j).phi(k_i) v_i ) / ( sum_{i in V_j} phi(q_j).phi(k_i) )          phi = elu + 1

Causal: chunks of CHUNK tokens; inside a chunk all pairs, and from the chunks before it only the sums of phi(k) v^T and phi(k).
Memory O(B H T (d + CHUNK) + B H d^2 T / CHUNK). Keys and values at pads are left out of numerator AND normaliser.
Source: Katharopoulos et al. 2020, "Transformers are RNNs", eq. 9 to 12.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from relnet.ops.checks import check_floating, check_mask, check_same
from relnet.ops.norm import arithmetic_dtype
from relnet.ops.prepare import without_autocast
from relnet.ops.reference_mode import in_reference

CHUNK = 64


class LinearAttentionState(NamedTuple):
    """What causal linear attention remembers: key_value (B, H, d, e) = sum phi(k_i) v_i^T and key (B, H, d) = sum phi(k_i)."""

    key_value: Tensor
    key: Tensor


def features(x: Tensor) -> Tensor:
    """phi: elu(x) + 1 without the cancellation: elu(-17) + 1 is 0 in float32, exp(-17) is not."""
    return x.clamp(max=0.0).exp() + F.relu(x)


def _divide(numerator: Tensor, normaliser: Tensor) -> Tensor:
    """0 where nothing is attended to, not 0 / 0."""
    empty = normaliser == 0
    return torch.where(empty, 0.0, numerator / torch.where(empty, 1.0, normaliser))


def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    causal: bool = True,
    key_mask: Tensor | None = None,
    state: LinearAttentionState | None = None,
) -> tuple[Tensor, LinearAttentionState | None]:
    """Attend with features elu + 1, normalised by their sum; return (B, H, T, e) and, when causal, the state after the last key.

    query, key: (B, H, T, d); value: (B, H, T, e); key_mask: (B, T) bool, True = real token. bfloat16 is computed in float32.
    A query without a real key gets 0. Raises ValueError for shapes, dtypes (float16), masks and states that do not fit, and for a state
    with causal=False.

    >>> query, key, value = torch.randn(3, 1, 2, 10, 4).unbind(0)
    >>> y, state = linear_attention(query, key, value)
    >>> y.shape, state.key_value.shape
    (torch.Size([1, 2, 10, 4]), torch.Size([1, 2, 4, 4]))
    """
    _check(query, key, value, causal, key_mask, state)
    dtype = value.dtype
    with without_autocast(query.device):
        query, key, value = (x.to(arithmetic_dtype(dtype)) for x in (query, key, value))
        query, key = features(query), features(key)
        if key_mask is not None:
            pad = ~key_mask[:, None, :, None]
            key, value = key.masked_fill(pad, 0.0), value.masked_fill(pad, 0.0)
        if not causal:
            y = _divide(query @ (key.transpose(-1, -2) @ value), query @ key.sum(-2)[..., None])
            return y.to(dtype), None
        length = query.shape[-2]
        chunk = length if in_reference() else CHUNK
        parts = []
        for q, k, v in zip(query.split(chunk, -2), key.split(chunk, -2), value.split(chunk, -2), strict=True):
            weights = (q @ k.transpose(-1, -2)).tril()
            numerator, normaliser = weights @ v, weights.sum(-1, keepdim=True)
            new = LinearAttentionState(k.transpose(-1, -2) @ v, k.sum(-2))
            if state is not None:
                numerator = numerator + q @ state.key_value
                normaliser = normaliser + q @ state.key[..., None]
                new = LinearAttentionState(state.key_value + new.key_value, state.key + new.key)
            parts.append(_divide(numerator, normaliser))
            state = new
        return (parts[0] if len(parts) == 1 else torch.cat(parts, dim=-2)).to(dtype), state


def _check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    causal: bool,
    key_mask: Tensor | None,
    state: LinearAttentionState | None,
) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        check_floating(name, tensor, 4, "(batch, heads, length, width)")
    check_same("query", query, "key", key, dims=(0, 1, 2, 3) if causal else (0, 1, 3))
    check_same("key", key, "value", value, dims=(0, 1, 2))
    check_mask("key_mask", key_mask, key.shape[0], key.shape[2], key.device)
    if state is None:
        return
    if not causal:
        raise ValueError("a state needs causal=True: bidirectional attention sees all keys at once")
    shapes = (tuple(state.key_value.shape), tuple(state.key.shape))
    wanted = ((*key.shape[:2], key.shape[3], value.shape[3]), (*key.shape[:2], key.shape[3]))
    if shapes != wanted:
        raise ValueError(
            f"the state has key_value {shapes[0]} and key {shapes[1]}; for these keys give {wanted[0]} and {wanted[1]}"
        )
