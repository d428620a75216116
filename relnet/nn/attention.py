"""Softmax attention, the Transformer's mixer, with four ways to know positions.

    y_j = W_out concat_h softmax_i( q_j . k_i / sqrt(d) + bias_ij ) v_i

No biases in the linear layers (CausalRN, appendix D).
"""

import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relnet import ops
from relnet.nn.mixer import Mixer, MixerConfig, initialise, join_masks, width_of_heads
from relnet.nn.positions import alibi_bias, rotate
from relnet.nn.state import Cache, State
from relnet.ops.checks import check_choice
from relnet.ops.pairs import Pairs
from relnet.ops.prepare import merge_heads, split_heads

AttentionPositions = Literal["none", "rope", "alibi", "hard_alibi"]
_explicit_depth = 0


@contextmanager
def explicit_attention() -> Generator[None]:
    """Write out the softmax of every Attention inside the block, as explicit=True does: derivatives of every order. Process-wide.

    >>> mixer, x = Attention(16, heads=2), torch.randn(2, 5, 16, requires_grad=True)
    >>> with explicit_attention():
    ...     y, _ = mixer(x)
    >>> (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    >>> gradient.sum().backward()
    """
    global _explicit_depth
    _explicit_depth += 1
    try:
        yield
    finally:
        _explicit_depth -= 1


@dataclass(frozen=True)
class AttentionState(State):
    """Keys (rotated, with RoPE) and values of every past token, and which of them are real (None: all)."""

    key: Cache
    value: Cache
    mask: Tensor | None


class Attention(Mixer):
    """Multi-head softmax attention.

    width: of x, divisible by heads unless head_width is given; positions: "none", "rope", "alibi" or "hard_alibi";
    windows: with "hard_alibi", the number M of masked heads, head m of them sees the last m real tokens, the current one included
    (default heads // 2); causal: y, state = mixer(x, state, mask), else y = mixer(x, mask);
    explicit: softmax written out, which has derivatives of every order (the fused kernel has the first only); slower, O(S T) memory.
    State: keys and values, 2 heads * head_width numbers a token. Raises ValueError for arguments that do not fit.

    >>> mixer = Attention(16, heads=2, positions="rope")
    >>> y, state = mixer(torch.randn(2, 5, 16))
    >>> y.shape, state.nbytes
    (torch.Size([2, 5, 16]), 1280)
    """

    state_kind = AttentionState

    def __init__(
        self,
        width: int,
        heads: int = 1,
        head_width: int | None = None,
        positions: AttentionPositions = "none",
        windows: int | None = None,
        causal: bool = True,
        explicit: bool = False,
    ) -> None:
        super().__init__(width)
        head_width = width_of_heads(width, heads, head_width)
        check_choice("positions", positions, ("none", "rope", "alibi", "hard_alibi"))
        if positions == "rope" and head_width % 2:
            raise ValueError(f"head_width {head_width} is odd; RoPE turns channels in pairs, give an even one")
        if windows is not None and positions != "hard_alibi":
            raise ValueError(f"windows={windows!r} with positions={positions!r}; only 'hard_alibi' has masked heads")
        if positions == "hard_alibi":
            if not causal:
                raise ValueError("positions='hard_alibi' needs causal=True: its masked heads see the last tokens")
            windows = heads // 2 if windows is None else windows
            if not isinstance(windows, int) or not 0 <= windows <= heads:
                raise ValueError(f"windows={windows!r}; give how many of the {heads} heads are masked, 0 to {heads}")
        self.heads, self.positions, self.causal, self.explicit = heads, positions, causal, explicit
        self.limits = tuple(range(1, windows + 1)) + (0,) * (heads - windows) if windows else ()
        inner = heads * head_width
        self.query_key_value = nn.Linear(width, 3 * inner, bias=False)
        self.out = nn.Linear(inner, width, bias=False)
        self.state_sizes = {"key": (inner,), "value": (inner,)}
        initialise(self)

    def extra_repr(self) -> str:
        return f"heads={self.heads}, positions={self.positions}, causal={self.causal}, explicit={self.explicit}"

    def bias(self, pairs: Pairs, real: Tensor, dtype: torch.dtype, targets: slice | None = None) -> Tensor | None:
        """Return what is added to the scores of a block of targets, all when None, (B or 1, H or 1, J, T): -inf at invalid pairs.

        None where there is nothing to add.
        """
        targets = targets or slice(0, pairs.num_targets)
        bias = None
        if self.positions == "alibi":
            bias = alibi_bias(self.heads, real[:, pairs.offset :][:, targets], real, dtype)
        invalid = pairs.invalid_by_head(targets)
        if invalid is None:
            return bias
        # A pad target without a real source attends to all: finite, and set to 0 in the end.
        invalid = invalid & ~invalid.all(-1, keepdim=True)
        bias = torch.zeros(1, 1, 1, 1, dtype=dtype, device=pairs.device) if bias is None else bias
        return bias.masked_fill(invalid, -math.inf)

    def forward(self, x: Tensor, state: AttentionState | None = None, mask: Tensor | None = None):
        """Return (y, state) when causal, else y. A bidirectional layer is called with x and mask only."""
        if not self.causal and isinstance(state, Tensor):
            # The bidirectional contract: y = mixer(x, mask).
            state, mask = None, state
        x = self.enter(x, mask, state)
        query, key, value = self.query_key_value(x).chunk(3, -1)
        past_mask, past_length = (None, 0) if state is None else (state.mask, state.key.length)
        seen = join_masks(past_mask, past_length, mask, x)
        pairs = Pairs(x.shape[1], past_length + x.shape[1], self.causal, seen, self.limits, x.device)
        # Pads may stand at position -1; they count for nothing.
        real = pairs.rank() - 1
        query = split_heads(query, self.heads)
        if self.positions == "rope":
            query = rotate(query, real[:, pairs.offset :])
            key = merge_heads(rotate(split_heads(key, self.heads), real[:, pairs.offset :]))
        keys = Cache(key, key.shape[1]) if state is None else state.key.append(key)
        values = Cache(value, value.shape[1]) if state is None else state.value.append(value)
        y = self._attend(
            query, split_heads(keys.entries, self.heads), split_heads(values.entries, self.heads), pairs, real
        )
        y = self.leave(self.out(merge_heads(y)), mask)
        return (y, AttentionState(keys, values, seen)) if self.causal else y

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, pairs: Pairs, real: Tensor) -> Tensor:
        square = (
            pairs.causal
            and pairs.offset == 0
            and pairs.key_mask is None
            and not self.limits
            and self.positions != "alibi"
        )
        if self.explicit or _explicit_depth or ops.in_reference():
            scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
            bias = self.bias(pairs, real, scores.dtype)
            return (scores if bias is None else scores + bias).softmax(-1) @ value
        if square:
            # A constant, also for one target, which sees itself: compiled for any length, a comparison would be no bool.
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=self.bias(pairs, real, query.dtype))


@dataclass(frozen=True)
class AttentionConfig(MixerConfig):
    """Arguments of Attention: heads, head width (None: width / heads), positions, masked heads of Hard-ALiBi, causal, explicit softmax."""

    heads: int = 1
    head_width: int | None = None
    positions: AttentionPositions = "none"
    windows: int | None = None
    causal: bool = True
    explicit: bool = False
    mixer: ClassVar[type[Mixer]] = Attention
