"""Attention with a feature map in place of the softmax, linear in length in time and memory.

    y_j = ( sum_{i in V_j} phi(q_j).phi(k_i) v_i ) / ( sum_{i in V_j} phi(q_j).phi(k_i) )          phi = elu + 1

Causal: equal chunks of at most C = max(CHUNK, e) tokens; inside a chunk all pairs, and from the chunks before it only the sums of
phi(k) v^T and phi(k). Memory O(B H T (d + C) + B H d e T / C). Keys and values at pads are left out of numerator AND normaliser.
Source: Katharopoulos et al. 2020, "Transformers are RNNs", eq. 9 to 12.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from relnet.ops.checks import check_floating, check_mask, check_same
from relnet.ops.norm import arithmetic_dtype
from relnet.ops.prepare import without_autocast
from relnet.ops.reference_mode import in_reference, is_plain

CHUNK = 64


class LinearAttentionState(NamedTuple):
    """What causal linear attention remembers: key_value (B, H, d, e) = sum phi(k_i) v_i^T and key (B, H, d) = sum phi(k_i)."""

    key_value: Tensor
    key: Tensor


def _by_hand(*inputs: Tensor) -> bool:
    """Return True where our own derivatives are worth an autograd function: plain training."""
    wanted = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    return wanted and is_plain(*inputs) and not in_reference()


class _Features(torch.autograd.Function):
    """The features and their derivative, exp(min(x, 0)) = min(phi, 1): nothing is kept but the result, which products keep anyway."""

    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        y = x.clamp(max=0.0).exp_().add_(F.relu(x))
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, *grads: Tensor) -> Tensor:
        (grad,), (y,) = grads, ctx.saved_tensors
        return grad * y.clamp(max=1.0)


def features(x: Tensor) -> Tensor:
    """phi: elu(x) + 1 without the cancellation: elu(-17) + 1 is 0 in float32, exp(-17) is not."""
    return _Features.apply(x) if _by_hand(x) else x.clamp(max=0.0).exp() + F.relu(x)


class _Quotient(torch.autograd.Function):
    """numerator / normaliser with derivatives in two passes over the numerator instead of PyTorch's five; the result is what is kept."""

    @staticmethod
    def forward(ctx, numerator: Tensor, normaliser: Tensor) -> Tensor:
        y = numerator / normaliser
        ctx.save_for_backward(y, normaliser)
        return y

    @staticmethod
    def backward(ctx, *grads: Tensor) -> tuple[Tensor, Tensor]:
        (grad,), (y, normaliser) = grads, ctx.saved_tensors
        grad = grad / normaliser
        return grad, -(grad * y).sum(-1, keepdim=True)


def _divide(numerator: Tensor, normaliser: Tensor) -> Tensor:
    """0 where nothing is attended to, not 0 / 0."""
    # There the numerator is 0 as well.
    normaliser = torch.where(normaliser == 0, 1.0, normaliser)
    return _Quotient.apply(numerator, normaliser) if _by_hand(numerator, normaliser) else numerator / normaliser


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
        if key_mask is not None:
            pad = ~key_mask[:, None, :, None]
            # phi(-inf) = 0. Before phi, not after: a NaN there would come back in the derivative, as 0 * NaN.
            key, value = key.masked_fill(pad, -torch.inf), value.masked_fill(pad, 0.0)
        query, key = features(query), features(key)
        if not causal:
            y = _divide(query @ (key.transpose(-1, -2) @ value), query @ key.sum(-2)[..., None])
            return y.to(dtype), None
        length = query.shape[-2]
        # The sums carried from chunk to chunk cost a token as much as e more keys: of wide values a chunk has as many tokens.
        num_chunks = 1 if in_reference() else -(-length // max(CHUNK, value.shape[-1]))
        inputs, parts = (query, key, value), []
        chunks = (x.split(-(-length // num_chunks), -2) for x in inputs)
        # A split's derivative is a copy, even of one chunk.
        for q, k, v in (inputs,) if num_chunks == 1 else zip(*chunks, strict=True):
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
