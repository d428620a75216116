"""What every sequence mixer shares: its contract, its configuration, its treatment of padding, its initialisation.

A causal mixer is called as y, state = mixer(x, state=None, mask=None), a bidirectional one as y = mixer(x, mask=None);
x (B, S, width), mask (B, S) bool, True = real token, with pads on the left, on the right or inside. At pads x is set to 0 first,
whatever stands there, and y is exactly 0: no bit of an output or gradient at a real token depends on a pad.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from relnet.nn.state import Cache, State
from relnet.ops.checks import check_floating, check_heads, check_mask

# Standard deviation of every weight matrix at the start (CausalRN, appendix D).
WEIGHT_STD = 0.02


def check_size(name: str, value: object) -> None:
    """Refuse what is not an integer of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name}={value!r}; give an integer of at least 1")


def width_of_heads(width: int, heads: int, head_width: int | None) -> int:
    """Return the channels a head: head_width, or width shared out; ValueError where that does not come out even."""
    if head_width is None:
        check_heads("width", width, heads)
        head_width = width // heads
    check_size("heads", heads)
    check_size("head_width", head_width)
    return head_width


class Mixer(nn.Module):
    """Base of all mixers; `out` is the linear layer that writes to the residual stream.

    A causal mixer names the kind of its state, and under `state_sizes` the sizes of each of its fields, (batch, length) left out.
    """

    causal: bool = True
    state_kind: ClassVar[type[State]]
    state_sizes: dict[str, tuple[int, ...]]

    def __init__(self, width: int) -> None:
        super().__init__()
        check_size("width", width)
        self.width = width

    def enter(self, x: Tensor, mask: Tensor | None, state: State | None = None) -> Tensor:
        """Check x, mask and state (ValueError) and set x to 0 at pads."""
        check_floating("x", x, 3, "(batch, length, width)")
        if x.shape[-1] != self.width:
            raise ValueError(f"x has width {x.shape[-1]}; this {type(self).__name__} was built for {self.width}")
        check_mask("mask", mask, x.shape[0], x.shape[1], x.device)
        kind = x.device.type
        casting = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
        if casting and torch.get_autocast_dtype(kind) == torch.float16:
            raise ValueError(
                f"autocast to float16, whose range exp leaves at 11; use torch.autocast({kind!r}, torch.bfloat16)"
            )
        if state is not None:
            self.check_state(state, x.shape[0])
        return x if mask is None else x.masked_fill(~mask[..., None], 0.0)

    def check_state(self, state: State, rows: int) -> None:
        """Raise ValueError for a state that this mixer cannot go on from with so many rows."""
        name = type(self).__name__
        if not self.causal:
            raise ValueError(f"a bidirectional {name} has no state; call mixer(x, mask)")
        if not isinstance(state, self.state_kind):
            if isinstance(state, Tensor):
                raise ValueError(
                    f"a tensor stands where the state belongs; a mask goes by name: {name}(...)(x, mask=mask)"
                )
            raise ValueError(
                f"the state is a {type(state).__name__} and {name} goes on from a {self.state_kind.__name__}; "
                "give the one that its last call returned"
            )
        for field, sizes in self.state_sizes.items():
            value: Tensor | Cache = getattr(state, field)
            shape = tuple(value.shape)
            if shape[0] != rows:
                raise ValueError(
                    f"the state has {shape[0]} rows and x has {rows}; take rows of it with state.select(rows)"
                )
            found = shape[2:] if isinstance(value, Cache) else shape[1:]
            if found != sizes:
                raise ValueError(
                    f"the state's {field} is of size {found} and this {name} needs {sizes}; give the state that its last call returned"
                )

    def leave(self, y: Tensor, mask: Tensor | None) -> Tensor:
        """Set y to exactly 0 at pads."""
        return y if mask is None else y.masked_fill(~mask[..., None], 0.0)


@dataclass(frozen=True)
class MixerConfig:
    """A mixer's arguments but its width. Adding a mixer: one module, one such class, one name in the union of `model.py`."""

    mixer: ClassVar[type[Mixer]]

    def build(self, width: int) -> Mixer:
        """Return the mixer for this width; ValueError where the arguments do not fit."""
        arguments: dict[str, Any] = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return self.mixer(width, **arguments)


def initialise(module: nn.Module, num_additions: int = 1) -> None:
    """Draw all weights: matrices N(0, 0.02^2), those named `out` divided by sqrt(num_additions), biases 0, embeddings N(0, 1).

    num_additions: how often something is added to the residual stream (depth for relation models, 2 depth with MLPs).
    LSTM cells keep PyTorch's initialisation. Source: CausalRN, appendix D.
    """
    for name, part in module.named_modules():
        if isinstance(part, nn.Linear):
            std = WEIGHT_STD / math.sqrt(num_additions) if name.rpartition(".")[2] == "out" else WEIGHT_STD
            nn.init.normal_(part.weight, std=std)
            if part.bias is not None:
                nn.init.zeros_(part.bias)
        elif isinstance(part, nn.Embedding):
            nn.init.normal_(part.weight)


def join_masks(past: Tensor | None, past_length: int, new: Tensor | None, x: Tensor) -> Tensor | None:
    """Return the mask of past and new tokens, (B, T) bool, a copy that nobody else writes to, or None where neither had one."""
    if past is None and new is None:
        return None
    rows, length = x.shape[:2]
    past = torch.ones(rows, past_length, dtype=torch.bool, device=x.device) if past is None else past
    new = torch.ones(rows, length, dtype=torch.bool, device=x.device) if new is None else new
    return torch.cat([past, new], dim=1)
