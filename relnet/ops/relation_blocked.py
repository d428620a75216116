"""The relation op over blocks of pairs, in plain PyTorch on any device: forward and backward never hold a (B, S, T, D) tensor.

A block is a few batch rows, targets and sources whose pairs fit a processor's cache (BLOCK_ELEMENTS floats). With x = p_i + q_j
(centred), s = rms(x)^-1, z = s x, E = psi(z), g = dL/dy_j / |V_j|:

    forward    y_j |V_j| = sum_i psi(z)
    backward   dz = g psi'(z)      c = sum_h dz_h x_h      dx = s (dz - c s^2 x / d)      dp_i = sum_j dx      dq_j = sum_i dx

Without a pair norm dx = dz. Time O(B S T D), memory O(B (S + T) D + BLOCK_ELEMENTS). s comes from the direct sum of x^2: the product form
cancels exactly at the pairs that matter. Blocks depend on shapes and arguments only. Higher derivatives recompute `pair_sum` by blocks.
Source: docs/mathematics.md, sections 2 and 3.
"""

import math
from collections.abc import Iterator
from functools import partial

import torch
from torch import Tensor

from relnet.ops.kernel import Kernel, Settings
from relnet.ops.pairs import Pairs
from relnet.ops.prepare import enter, leave, merge_heads, pair_norm, split_heads
from relnet.ops.recompute import recomputed, vector_jacobian_product
from relnet.ops.relation_reference import ACTIVATIONS, pair_sum

# 1 MiB of float32 a temporary, of which the backward pass holds three: measured best on server cores with 2 MiB of L2 cache.
BLOCK_ELEMENTS = 1 << 18
# Few targets a block waste little above the diagonal of a causal block; 8 is within 5 % of the best from T = 34 to 258.
BLOCK_TARGETS = 8
# Derivatives of second and higher order are dominated by the number of blocks, not by what a block wastes.
BLOCK_TARGETS_HIGHER = 32

# (batch rows, heads, targets, sources, window)
Block = tuple[slice, slice, slice, slice, int]


def blocks(source: Tensor, pairs: Pairs, block_targets: int) -> Iterator[Block]:
    """Yield blocks that cover every pair some target can see; heads with the same window share blocks."""
    num_rows, num_heads, _, width = source.shape
    groups = [(slice(0, num_heads), 0)]
    if pairs.windows:
        groups = [(slice(head, head + 1), window) for head, window in enumerate(pairs.windows)]
    for heads, window in groups:
        for first in range(0, pairs.num_targets, block_targets):
            last = min(first + block_targets, pairs.num_targets)
            low, high = pairs.source_range(window, first, last)
            pair_elements = (last - first) * (heads.stop - heads.start) * width
            block_sources = max(1, min(high - low, BLOCK_ELEMENTS // pair_elements))
            block_rows = max(1, BLOCK_ELEMENTS // (pair_elements * block_sources))
            for start in range(low, high, block_sources):
                sources = slice(start, min(start + block_sources, high))
                for row in range(0, num_rows, block_rows):
                    yield slice(row, min(row + block_rows, num_rows)), heads, slice(first, last), sources, window


def _rows(tensor: Tensor | None, rows: slice) -> Tensor | None:
    """Take batch rows of a mask whose batch dimension may be 1."""
    return tensor if tensor is None or tensor.shape[0] == 1 else tensor[rows]


def _zero_invalid(pairs: Tensor, invalid: Tensor | None) -> None:
    """Set every channel of the invalid pairs to 0 in place, whatever stands there."""
    if invalid is None:
        return
    # "and" with all ones or zeros: NaN becomes 0 too, in an eighth of masked_fill_'s time with a mask that is broadcast.
    bits = torch.int64 if pairs.dtype == torch.float64 else torch.int32
    pairs.view(bits).bitwise_and_((~invalid).to(bits).neg_()[..., None])


def _scaled_pairs(source: Tensor, target: Tensor, norm: str) -> tuple[Tensor, Tensor | None]:
    """Return x and s, of invalid pairs too: nothing crosses from pair to pair before the sums."""
    x = source[:, :, None, :, :] + target[:, :, :, None, :]
    if norm == "none":
        return x, None
    # vector_norm reads x once; squares of the smallest floats vanish in it as they do in a mean of squares.
    mean_square = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1])
    # A NaN stays NaN: "<= 0 ? 0 : rsqrt".
    return x, mean_square.rsqrt().masked_fill_(mean_square <= 0, 0.0)


def _activate(z: Tensor, activation: str) -> Tensor:
    return z.exp_() if activation == "exp" else ACTIVATIONS[activation](z)


def _derivative(z: Tensor, activation: str) -> Tensor:
    """Return psi'(z); z may be overwritten."""
    if activation == "exp":
        return z.exp_()
    if activation == "relu":
        # 1 at NaN, as in torch's own derivative.
        return (z <= 0).logical_not_().to(z.dtype)
    if activation == "elu":
        return z.clamp_(max=0.0).exp_()
    density = z.square().mul_(-0.5).exp_().mul_(1 / math.sqrt(2 * math.pi))
    return torch.special.erf(z / math.sqrt(2)).add_(1).mul_(0.5).addcmul_(z, density)


def mean_over_pairs(source: Tensor, target: Tensor, pairs: Pairs, activation: str, norm: str) -> Tensor:
    """Return the mean over valid sources; source (B, H, T, d), target (B, H, S, d) -> (B, H, S, d)."""
    total = torch.zeros(target.shape, dtype=target.dtype, device=target.device)
    for rows, heads, targets, sources, window in blocks(source, pairs, BLOCK_TARGETS):
        invalid = _rows(pairs.invalid(window, targets, sources), rows)
        x, s = _scaled_pairs(source[rows, heads, sources], target[rows, heads, targets], norm)
        value = _activate(x if s is None else x.mul_(s), activation)
        _zero_invalid(value, invalid)
        total[rows, heads, targets] += value.sum(-2)
    return total.div_(pairs.counts().clamp(min=1)[..., None])


def gradients_over_pairs(
    grad: Tensor, source: Tensor, target: Tensor, pairs: Pairs, activation: str, norm: str
) -> tuple[Tensor, Tensor]:
    """Return the gradients of <grad, mean_over_pairs(source, target)> for source and target."""
    grad_source = torch.zeros(source.shape, dtype=source.dtype, device=source.device)
    grad_target = torch.zeros(target.shape, dtype=target.dtype, device=target.device)
    grad = grad / pairs.counts().clamp(min=1)[..., None]
    for rows, heads, targets, sources, window in blocks(source, pairs, BLOCK_TARGETS):
        invalid = _rows(pairs.invalid(window, targets, sources), rows)
        x, s = _scaled_pairs(source[rows, heads, sources], target[rows, heads, targets], norm)
        dz = _derivative(x.clone() if s is None else x * s, activation).mul_(grad[rows, heads, targets, None])
        if s is not None:
            # c s^2 / d as (c s) s / d: s^3 would overflow from a variance of 2e-26.
            weight = torch.linalg.vecdot(dz, x)[..., None].mul_(s).mul_(s).div_(x.shape[-1])
            dz.addcmul_(x, weight, value=-1).mul_(s)
        _zero_invalid(dz, invalid)
        grad_source[rows, heads, sources] += dz.sum(-3)
        grad_target[rows, heads, targets] += dz.sum(-2)
    return grad_source, grad_target


def differentiable_backward(
    cotangent_source: Tensor,
    cotangent_target: Tensor,
    grad: Tensor,
    source: Tensor,
    target: Tensor,
    pairs: Pairs,
    activation: str,
    norm: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of <cotangents, gradients_over_pairs(grad, source, target)> for grad, source and target.

    Composed of differentiable PyTorch operations, so that every higher derivative exists; any backend's second derivative.
    """
    counts = pairs.counts().clamp(min=1)[..., None]
    grad = grad / counts
    totals = [torch.zeros(t.shape, dtype=t.dtype, device=t.device) for t in (grad, source, target)]
    for rows, heads, targets, sources, window in blocks(source, pairs, BLOCK_TARGETS_HIGHER):
        invalid = _rows(pairs.invalid(window, targets, sources), rows)

        def block_sum(p: Tensor, q: Tensor, invalid: Tensor | None = invalid) -> tuple[Tensor]:
            return (pair_sum(p, q, invalid, activation, norm),)

        block_source, block_target = (rows, heads, sources), (rows, heads, targets)
        # The backward of a block as a function of (p, q, g); its own product with the cotangents is what is asked for.
        block_backward = partial(vector_jacobian_product, block_sum, 2)
        product = partial(vector_jacobian_product, block_backward, 3)
        grad_p, grad_q, grad_g = recomputed(
            product,
            *(source[block_source], target[block_target], grad[block_target]),
            *(cotangent_source[block_source], cotangent_target[block_target]),
        )
        totals[0][block_target] += grad_g
        totals[1][block_source] += grad_p
        totals[2][block_target] += grad_q
    return totals[0] / counts, totals[1], totals[2]


def _forward(
    source: Tensor, target: Tensor, key_mask: Tensor | None, settings: Settings, keep: bool
) -> tuple[Tensor, Tensor]:
    p, q = enter(source, target, key_mask, settings.norm, settings.heads)
    y = mean_over_pairs(p, q, settings.pairs(source, target, key_mask), settings.activation, pair_norm(settings.norm))
    return merge_heads(y).to(source.dtype).contiguous(), source.new_empty(0, dtype=torch.float32)


def _backward(
    grad: Tensor, source: Tensor, target: Tensor, key_mask: Tensor | None, kept: Tensor, settings: Settings
) -> tuple[Tensor, Tensor]:
    p, q = enter(source, target, key_mask, settings.norm, settings.heads)
    pairs, norm = settings.pairs(source, target, key_mask), pair_norm(settings.norm)
    grads = gradients_over_pairs(split_heads(grad.to(p.dtype), settings.heads), p, q, pairs, settings.activation, norm)
    grad_source, grad_target = (leave(part, settings.norm, source.dtype).contiguous() for part in grads)
    return grad_source, grad_target


KERNEL = Kernel(
    name="blocked",
    what="plain PyTorch over blocks of pairs, backward recomputed",
    forward=_forward,
    backward=_backward,
    kept_shape=lambda source, target, settings, keep: (0,),
)
