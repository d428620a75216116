"""Linear attention, the Linear Transformer's mixer: features elu + 1 of queries and keys in place of the softmax.

Source: Katharopoulos et al. 2020, "Transformers are RNNs"; linear in length here, in time and memory (`ops.linear_attention`).
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from relnet import ops
from relnet.nn.mixer import Mixer, MixerConfig, initialise, width_of_heads
from relnet.nn.state import State, trackable
from relnet.ops.norm import arithmetic_dtype
from relnet.ops.prepare import merge_heads, split_heads


@dataclass(frozen=True)
class LinearAttentionState(State):
    """sum phi(k) v^T, (B, H, d, d), and sum phi(k), (B, H, d): constant in length."""

    key_value: Tensor
    key: Tensor


class LinearAttention(Mixer):
    """Multi-head linear attention, no biases.

    width: of x, divisible by heads unless head_width is given; causal: y, state = mixer(x, state, mask), else y = mixer(x, mask).
    State: heads * head_width * (head_width + 1) numbers, whatever the length. Raises ValueError for arguments that do not fit.

    >>> import torch
    >>> y, state = LinearAttention(16, heads=2)(torch.randn(2, 5, 16))
    >>> y.shape, state.key_value.shape
    (torch.Size([2, 5, 16]), torch.Size([2, 2, 8, 8]))
    """

    state_kind = LinearAttentionState

    def __init__(self, width: int, heads: int = 1, head_width: int | None = None, causal: bool = True) -> None:
        super().__init__(width)
        head_width = width_of_heads(width, heads, head_width)
        self.heads, self.causal = heads, causal
        self.query_key_value = nn.Linear(width, 3 * heads * head_width, bias=False)
        self.out = nn.Linear(heads * head_width, width, bias=False)
        self.state_sizes = {"key_value": (heads, head_width, head_width), "key": (heads, head_width)}
        initialise(self)

    def extra_repr(self) -> str:
        return f"heads={self.heads}, causal={self.causal}"

    def forward(self, x: Tensor, state: LinearAttentionState | None = None, mask: Tensor | None = None):
        """Return (y, state) when causal, else y. A bidirectional layer is called with x and mask only."""
        if not self.causal and isinstance(state, Tensor):
            # The bidirectional contract: y = mixer(x, mask).
            state, mask = None, state
        x = self.enter(x, mask, state)
        query, key, value = (split_heads(part, self.heads) for part in self.query_key_value(x).chunk(3, -1))
        past = None
        if state is not None:
            dtype = arithmetic_dtype(query.dtype)
            past = ops.LinearAttentionState(trackable(state.key_value).to(dtype), trackable(state.key).to(dtype))
        y, new = ops.linear_attention(query, key, value, causal=self.causal, key_mask=mask, state=past)
        y = self.leave(self.out(merge_heads(y)), mask)
        return y if new is None else (y, LinearAttentionState(new.key_value, new.key))


@dataclass(frozen=True)
class LinearAttentionConfig(MixerConfig):
    """Arguments of LinearAttention: heads, head width (None: width / heads), causal."""

    heads: int = 1
    head_width: int | None = None
    causal: bool = True
    mixer: ClassVar[type[Mixer]] = LinearAttention
