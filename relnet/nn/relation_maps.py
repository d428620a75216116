"""Relation maps: how strongly each source i enters each target j of a mixer.

    strength    n_ij / sum over valid i of n_ij, n_ij = || psi(mu(p_i + q_j)) || over the channels of a head; of attention its weights
    scale       s_ij = 1 / rms(centre(p_i) + centre(q_j)), by which the exact pair norm multiplies a pair: large where they cancel

What a map is of is the mixer's real input in a forward pass, norm included (`mixer_inputs`). Pairs are gone through in blocks: memory
O(S T) for the map and O(BLOCK) for the pairs, never S T D. Time O(S T D).
Source: CausalRN, appendix C and figure 8 (strength); docs/mathematics.md, section 1 (scale).
"""

from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from relnet.nn.attention import Attention
from relnet.nn.linear_attention import LinearAttention
from relnet.nn.mixer import Mixer
from relnet.nn.positions import rotate
from relnet.nn.relation import BiRN, CausalRN, LinearBiRN, LinearCausalRN
from relnet.ops.checks import check_choice, check_mask
from relnet.ops.linear_attention import features
from relnet.ops.norm import inverse_rms, plain_norm
from relnet.ops.pairs import Pairs
from relnet.ops.prepare import enter, split_heads
from relnet.ops.relation_reference import ACTIVATIONS

Quantity = Literal["strength", "scale"]
QUANTITIES: tuple[Quantity, ...] = get_args(Quantity)
# Numbers of pairs in memory at once.
BLOCK = 2**22
RELATIONS = (CausalRN, BiRN, LinearCausalRN, LinearBiRN)


def mixer_inputs(model: nn.Module, *arguments: Any, **options: Any) -> list[tuple[Mixer, Tensor, Tensor | None]]:
    """Call a model and return each of its mixers, from the first block on, with what it was given: x (B, T, width) and the mask.

    >>> from relnet.nn import BiRNConfig, ImageModel, ImageModelConfig
    >>> model = ImageModel(ImageModelConfig(10, 16, 12, width=8, depth=2, mixer=BiRNConfig()))
    >>> [x.shape for _, x, _ in mixer_inputs(model, torch.randn(3, 16, 12))]
    [torch.Size([3, 17, 8]), torch.Size([3, 17, 8])]
    """
    found: list[tuple[Mixer, Tensor, Tensor | None]] = []

    def note(mixer: Mixer, given: tuple[Any, ...]) -> None:
        # A causal mixer is called with x, state and mask, a bidirectional one with x and mask.
        found.append((mixer, given[0], given[-1]))

    hooks = [part.register_forward_pre_hook(note) for part in model.modules() if isinstance(part, Mixer)]
    try:
        with torch.no_grad():
            model(*arguments, **options)
    finally:
        for hook in hooks:
            hook.remove()
    return found


def quantities(mixer: Mixer) -> tuple[Quantity, ...]:
    """Return what there is to see of a mixer: nothing of an LSTM, the scale of exact and RMS pair norms only.

    >>> quantities(CausalRN(16)), quantities(LinearCausalRN(16))
    (('strength', 'scale'), ('strength',))
    """
    if not isinstance(mixer, (*RELATIONS, Attention, LinearAttention)):
        return ()
    return QUANTITIES if getattr(mixer, "pair_norm", None) in ("exact", "rms") else ("strength",)


def relation_map(
    mixer: Mixer,
    x: Tensor,
    mask: Tensor | None = None,
    *,
    sources: Tensor | None = None,
    targets: slice = slice(None),
    quantity: Quantity = "strength",
) -> Tensor:
    """Return how strongly each source enters each target, (B, H, S, T), 0 where a source does not count.

    x (B, T, width), mask (B, T) bool: what the mixer is given. sources: (B, T) bool, which ones to look at, True = wanted; the strengths
    of those sum to 1. targets: which positions, in steps of 1; only theirs are computed. ValueError for an LSTM, which has no pairs, for
    "scale" of a mixer without an exact or RMS pair norm, for other steps, and for masks that do not fit.

    >>> from relnet.nn import CausalRN
    >>> relation_map(CausalRN(16), torch.randn(1, 3, 16)).sum(-1).round(decimals=3)
    tensor([[[1., 1., 1.]]])
    """
    check_choice("quantity", quantity, QUANTITIES)
    if quantity not in (there := quantities(mixer)):
        what = (
            f"no {quantity} of a pair; ask for its strength"
            if there
            else "no pairs of positions, so there is no map of it"
        )
        raise ValueError(f"this {type(mixer).__name__} has {what}")
    check_mask("sources", sources, x.shape[0], x.shape[1], x.device)
    first, last, step = targets.indices(x.shape[1])
    if step != 1:
        raise ValueError(f"targets in steps of {step}; give a slice in steps of 1")
    targets = slice(first, max(first, last))
    with torch.no_grad():
        x = mixer.enter(x, mask)
        if isinstance(mixer, RELATIONS):
            values = _relation(mixer, x, mask, targets, quantity)
        else:
            values = (_attention if isinstance(mixer, Attention) else _linear_attention)(mixer, x, mask, targets)
        invalid = _invalid(mixer, x, mask, targets)
        if sources is not None:
            invalid = invalid | ~sources[:, None, None]
        if quantity == "scale":
            return values.masked_fill(invalid, 0.0)
        values = values.masked_fill(invalid, -torch.inf)
        # A target without any source has no shares, not 0 / 0.
        return values.softmax(-1).masked_fill(values.isneginf(), 0.0)


def _pairs(mixer: Any, x: Tensor, mask: Tensor | None) -> Pairs:
    # Attention's windows are called limits.
    windows = tuple(window or 0 for window in getattr(mixer, "windows", None) or getattr(mixer, "limits", ()))
    return Pairs(x.shape[1], x.shape[1], mixer.causal, mask, windows, x.device)


def _invalid(mixer: Any, x: Tensor, mask: Tensor | None, targets: slice) -> Tensor:
    """The pairs that do not count, (B or 1, H or 1, targets, T) or (1, 1, 1, 1) bool."""
    invalid = _pairs(mixer, x, mask).invalid_by_head(targets)
    return torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=x.device) if invalid is None else invalid


def _relation(mixer: Any, x: Tensor, mask: Tensor | None, targets: slice, quantity: Quantity) -> Tensor:
    """log n_ij, or s_ij, of every pair: (B, H, S, T)."""
    norm, heads = mixer.pair_norm, mixer.heads
    source, target = enter(mixer.source(x), mixer.target(x)[:, targets], mask, norm, heads)
    if norm == "approximate":
        source, target = plain_norm(source), plain_norm(target)
    activation = "exp" if isinstance(mixer, (LinearBiRN, LinearCausalRN)) else mixer.activation

    def pairs(source: Tensor, target: Tensor) -> Tensor:
        pair = source[:, :, None] + target[:, :, :, None]
        if norm in ("exact", "rms"):
            scale = inverse_rms(pair)
            if quantity == "scale":
                return scale[..., 0]
            pair = scale * pair
        # exp of 20 and more, squared and summed, is over float32's range; its logarithm is not.
        return (2 * pair).logsumexp(-1) / 2 if activation == "exp" else ACTIVATIONS[activation](pair).norm(dim=-1).log()

    return _in_blocks(pairs, source, target)


def _in_blocks(pairs: Callable[[Tensor, Tensor], Tensor], source: Tensor, target: Tensor) -> Tensor:
    rows, heads, num_targets, width = target.shape
    num_sources = source.shape[2]
    step = max(1, BLOCK // (rows * heads * width))
    at_once = min(num_sources, step)
    values = target.new_empty(rows, heads, num_targets, num_sources)
    for j in range(0, num_targets, max(1, step // at_once)):
        targets = slice(j, j + max(1, step // at_once))
        for i in range(0, num_sources, at_once):
            sources = slice(i, i + at_once)
            values[:, :, targets, sources] = pairs(source[:, :, sources], target[:, :, targets])
    return values


def _attention(mixer: Any, x: Tensor, mask: Tensor | None, targets: slice) -> Tensor:
    """The scores: their softmax is what attention weighs values by."""
    query, key, _ = (split_heads(part, mixer.heads) for part in mixer.query_key_value(x).chunk(3, -1))
    query = query[:, :, targets]
    pairs = _pairs(mixer, x, mask)
    real = pairs.rank() - 1
    if mixer.positions == "rope":
        query, key = rotate(query, real[:, targets]), rotate(key, real)
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
    bias = mixer.bias(pairs, real, scores.dtype, targets)
    return scores if bias is None else scores + bias


def _linear_attention(mixer: Any, x: Tensor, mask: Tensor | None, targets: slice) -> Tensor:
    """The logarithm of phi(q) . phi(k), by which linear attention weighs values before they are divided by its sum."""
    query, key, _ = (split_heads(part, mixer.heads) for part in mixer.query_key_value(x).chunk(3, -1))
    return (features(query[:, :, targets]) @ features(key).transpose(-1, -2)).log()
