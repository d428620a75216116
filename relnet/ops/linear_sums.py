"""Running maxima and sums of exponentials in plain PyTorch: any device and dtype, derivatives of every order.

    sum_{i<=j} exp(p_i) = exp(m_j) S_j          m_j the running maximum of p, S_j = sum_i exp(p_i - m_j)

m and S stay apart: at |p| of 1e4 m + log S would cost four digits of a mean. S_j = exp(m_{j-1} - m_j) S_{j-1} + exp(p_j - m_j) is a
recurrence with a decay in [0, 1]; the maximum is only a reference point, so no gradient flows through the decay. The recurrence is an op of
its own (`relnet::decayed_cumsum`), whose backward is the same op in reverse: derivatives of every order. Time O(B T D), memory O(B T D).
Source: docs/mathematics.md, section 6.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from relnet.ops.pairs import Pairs


class LinearRelationState(NamedTuple):
    """What a causal linear relation remembers: log_sum (B, D) = log sum_i exp(p_i), -inf before the first source; count (B,) int64."""

    log_sum: Tensor
    count: Tensor


@torch.library.custom_op("relnet::decayed_cumsum", mutates_args=())
def decayed_cumsum(decay: Tensor, x: Tensor) -> Tensor:
    """Return y_t = decay_t * y_{t-1} + x_t along dimension 1, y_{-1} = 0; decay and x (B, T, D).

    Two levels: all chunks of about sqrt(T) positions step by step at once, then the chunks' last values one after another.
    `decay` is a constant of the derivative.
    """
    rows, length, width = x.shape
    chunk = max(1, math.isqrt(length))
    num_chunks = -(-length // chunk)
    padded = (rows, num_chunks * chunk, width)
    y, carried = x.new_zeros(padded), decay.new_zeros(padded)
    y[:, :length], carried[:, :length] = x, decay
    y, carried = y.view(rows, num_chunks, chunk, width), carried.view(rows, num_chunks, chunk, width)
    for step in range(1, chunk):
        y[:, :, step].addcmul_(carried[:, :, step], y[:, :, step - 1])
        carried[:, :, step].mul_(carried[:, :, step - 1])
    # Copied: read while y's own last positions are rewritten below.
    last = y[:, :, -1].clone()
    for index in range(1, num_chunks):
        last[:, index].addcmul_(carried[:, index, -1], last[:, index - 1])
    y[:, 1:].addcmul_(carried[:, 1:], last[:, :-1, None])
    return y.view(padded)[:, :length].contiguous()


@decayed_cumsum.register_fake
def _(decay: Tensor, x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def _keep_decay(ctx, inputs, output) -> None:
    ctx.save_for_backward(inputs[0])


def _decayed_cumsum_backward(ctx, grad: Tensor):
    (decay,) = ctx.saved_tensors
    # u_t = g_t + decay_{t+1} u_{t+1}: the same recurrence, reversed.
    following = torch.cat([decay[:, 1:], torch.zeros_like(decay[:, :1])], dim=1)
    return None, decayed_cumsum(following.flip(1), grad.flip(1)).flip(1)


decayed_cumsum.register_autograd(_decayed_cumsum_backward, setup_context=_keep_decay)


@torch.library.custom_op("relnet::running_maximum", mutates_args=())
def running_maximum(x: Tensor) -> Tensor:
    """Return the maximum over positions up to each one, along dimension 1 of (B, T, D); NaN from the first NaN on.

    In two levels as `decayed_cumsum`: torch.cummax reads one number a time along this dimension.
    """
    rows, length, width = x.shape
    chunk = max(1, math.isqrt(length))
    num_chunks = -(-length // chunk)
    padded = x.new_full((rows, num_chunks * chunk, width), -torch.inf)
    padded[:, :length] = x
    y = padded.view(rows, num_chunks, chunk, width)
    for step in range(1, chunk):
        torch.maximum(y[:, :, step], y[:, :, step - 1], out=y[:, :, step])
    last = y[:, :, -1].clone()
    for index in range(1, num_chunks):
        torch.maximum(last[:, index], last[:, index - 1], out=last[:, index])
    torch.maximum(y[:, 1:], last[:, :-1, None], out=y[:, 1:])
    return padded[:, :length].contiguous()


@running_maximum.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape)


def _finite_reference(maximum: Tensor) -> Tensor:
    """Replace an infinite maximum by 0: inf - inf is NaN where exp(inf) = inf is meant."""
    return torch.where(maximum.isinf(), 0.0, maximum)


def running_sums(source: Tensor, key_mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return (m, S), each (B, T, D): at each position the maximum of p so far and sum exp(p_i - m); (0, 0) before any real source."""
    visible = source.detach()
    if key_mask is not None:
        visible = visible.masked_fill(~key_mask[..., None], -torch.inf)
    maximum = running_maximum(visible)
    reference = _finite_reference(maximum)
    before = torch.cat([torch.full_like(maximum[:, :1], -torch.inf), maximum[:, :-1]], dim=1)
    # From an infinite source on the sum is infinite, whatever is carried; a decay of inf would turn it into NaN.
    decay = torch.where(maximum == torch.inf, 1.0, (before - reference).exp())
    term = source - reference
    if key_mask is None:
        return reference, decayed_cumsum(decay, term.exp())
    pad = ~key_mask[..., None]
    return reference, decayed_cumsum(decay, term.masked_fill(pad, 0.0).exp().masked_fill(pad, 0.0))


def total_sums(source: Tensor, key_mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return (m, S), each (B, 1, D), over all real sources."""
    if key_mask is None:
        reference = _finite_reference(source.detach().amax(dim=1, keepdim=True))
        return reference, (source - reference).exp().sum(1, keepdim=True)
    pad = ~key_mask[..., None]
    reference = _finite_reference(source.detach().masked_fill(pad, -torch.inf).amax(dim=1, keepdim=True))
    return reference, (source - reference).masked_fill(pad, 0.0).exp().masked_fill(pad, 0.0).sum(1, keepdim=True)


def mean_by_sums(source: Tensor, target: Tensor, pairs: Pairs) -> Tensor:
    """Return the mean of exp(p_i + q_j) over valid sources; source (B, T, D), target (B, S, D) -> (B, S, D)."""
    reference, total = (running_sums if pairs.causal else total_sums)(source, pairs.key_mask)
    if pairs.causal:
        reference, total = reference[:, pairs.offset :], total[:, pairs.offset :]
    counts = pairs.counts()[:, 0, :, None]
    if pairs.key_mask is not None:
        # Before exp: an overflow there would give the target a gradient of 0 * inf.
        target = torch.where(counts > 0, target, 0.0)
    return (target + reference).exp() * (total / counts.clamp(min=1))


def _with_past(source: Tensor, key_mask: Tensor | None, state: LinearRelationState) -> tuple[Tensor, Tensor, Tensor]:
    """Put the past in front as one more source, p = its log sum, there only where it holds a real token.

    Returns the sources, their mask, and (B,) how many real tokens of the past that one source stands for beside itself.
    """
    seen = state.count > 0
    past = torch.where(seen[:, None], state.log_sum, 0.0).to(source.dtype)
    if key_mask is None:
        key_mask = torch.ones(source.shape[:2], dtype=torch.bool, device=source.device)
    key_mask = torch.cat([seen[:, None], key_mask], dim=1)
    return torch.cat([past[:, None], source], dim=1), key_mask, state.count - seen.long()


def log_sums(source: Tensor, pairs: Pairs) -> Tensor:
    """Return log sum_i exp(p_i) at every source (causal: (B, T, D)) or over all (B, 1, D); -inf where there is no real source."""
    reference, total = (running_sums if pairs.causal else total_sums)(source, pairs.key_mask)
    if pairs.key_mask is None:
        return reference + total.log()
    rank = pairs.rank()[..., None]
    empty = (rank if pairs.causal else rank[:, -1:]) == 0
    return torch.where(empty, -torch.inf, reference + torch.where(empty, 1.0, total).log())


def log_sums_reference(source: Tensor, pairs: Pairs) -> Tensor:
    """Return the same by the definition, over all pairs at once: O(B T^2 D) memory."""
    rows, length, width = source.shape
    everywhere = slice(0, length)
    square = Pairs(length, length, pairs.causal, pairs.key_mask, (), source.device)
    invalid = square.invalid(0, everywhere, everywhere)
    x = source[:, None].expand(rows, length if pairs.causal else 1, length, width)
    if invalid is None:
        return x.logsumexp(2)
    invalid = invalid[:, 0, : x.shape[1], :, None]
    empty = invalid.all(2)
    # A row that is -inf throughout gives NaN in the derivative of logsumexp: leave it as it is, and drop it after.
    x = x.masked_fill(invalid & ~empty[:, :, None], -torch.inf)
    return x.logsumexp(2).masked_fill(empty, -torch.inf)


def log_mean_by(
    log_sums: Callable[[Tensor, Pairs], Tensor],
    p: Tensor,
    q: Tensor,
    key_mask: Tensor | None,
    state: LinearRelationState | None,
    causal: bool,
) -> tuple[Tensor, LinearRelationState | None]:
    """Return the log-means of sources (B, T, D) and targets (B, S, D) and the new state, by one of the two functions above."""
    beside = None
    if state is not None:
        p, key_mask, beside = _with_past(p, key_mask, state)
    pairs = Pairs(q.shape[1], p.shape[1], causal, key_mask, (), p.device)
    sums, counts = log_sums(p, pairs), pairs.counts()[:, 0]
    if beside is not None:
        counts = counts + beside[:, None]
    new_state = None
    if causal:
        # A view of the last position would keep all of them.
        new_state = LinearRelationState(sums[:, -1].clone(), counts[:, -1].expand(p.shape[0]).clone())
        sums = sums[:, pairs.offset :]
    log_mean = q + sums - counts.clamp(min=1).to(q.dtype).log()[..., None]
    if key_mask is not None:
        log_mean = log_mean.masked_fill((counts == 0)[..., None], -torch.inf)
    return log_mean, new_state
