"""What a kernel of the relation op is: a forward and a backward over whole tensors, and what they are told."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from relnet.ops.pairs import Pairs


class Settings(NamedTuple):
    """What is computed: psi, mu ("exact", "rms" or "none"), causality, heads, and a window a head (0 = no limit; [] = no head has one)."""

    activation: str
    norm: str
    causal: bool
    heads: int
    windows: list[int]

    def pairs(self, source: Tensor, target: Tensor, key_mask: Tensor | None) -> Pairs:
        """Return the valid pairs of source (B, T, D) and target (B, S, D)."""
        return Pairs(target.shape[1], source.shape[1], self.causal, key_mask, tuple(self.windows), source.device)


@dataclass(frozen=True)
class Kernel:
    """One way to compute the relation op: source (B, T, D), target (B, S, D), key_mask (B, T) or None.

    forward(source, target, key_mask, settings, keep) -> y and what the backward pass needs beside the inputs, if `keep`;
    backward(grad, source, target, key_mask, kept, settings) -> gradients of source and target;
    kept_shape(source, target, settings, keep) -> shape of the float32 tensor that is kept, (0,) for nothing;
    missing() -> why this machine does not have it, or None; refuses(source) -> why it does not take such a tensor, or None.
    """

    name: str
    what: str
    forward: Callable[[Tensor, Tensor, Tensor | None, Settings, bool], tuple[Tensor, Tensor]]
    backward: Callable[[Tensor, Tensor, Tensor, Tensor | None, Tensor, Settings], tuple[Tensor, Tensor]]
    kept_shape: Callable[[Tensor, Tensor, Settings, bool], tuple[int, ...]]
    missing: Callable[[], str | None] = lambda: None
    refuses: Callable[[Tensor], str | None] = lambda source: None
