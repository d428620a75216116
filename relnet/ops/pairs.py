"""Which pairs of positions count: causality, masks and windows in one place.

A pair (target j, source i) is valid when
    causal          i <= j + T - S   (the last target sits at the last source)
    key_mask        source i is a real token
    window w        fewer than w real sources lie after i, up to target j
The count of target j is its number of valid sources; both are per batch row and head, and depend on no tensor's values but the mask's.
Source: docs/mathematics.md, section 1.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Pairs:
    """The valid pairs of S targets and T sources.

    key_mask: (B, T) bool, True = real token, or None.
    windows: one entry a head, 0 = no limit; empty = no head has a limit.
    """

    num_targets: int
    num_sources: int
    causal: bool
    key_mask: Tensor | None
    windows: tuple[int, ...]
    device: torch.device

    @property
    def offset(self) -> int:
        """Source position that target 0 sits at."""
        return self.num_sources - self.num_targets

    def rank(self) -> Tensor:
        """Return the number of real sources up to and including each source: (B or 1, T) int64."""
        if self.key_mask is None:
            return torch.arange(1, self.num_sources + 1, device=self.device)[None]
        return self.key_mask.long().cumsum(-1)

    def counts(self) -> Tensor:
        """Return the number of valid sources of each target: (B or 1, H or 1, S) int64."""
        rank = self.rank()
        counts = rank[:, self.offset :] if self.causal else rank[:, -1:].expand(-1, self.num_targets)
        counts = counts[:, None]
        if any(self.windows):
            limits = torch.tensor([window or self.num_sources for window in self.windows], device=self.device)
            counts = torch.minimum(counts, limits[None, :, None])
        return counts

    def source_range(self, window: int, first: int, last: int) -> tuple[int, int]:
        """Return the half-open range of sources that targets first..last-1 can see, by shapes and arguments alone."""
        if not self.causal:
            return 0, self.num_sources
        # With a mask the last `window` real tokens may lie anywhere before.
        low = max(0, first + self.offset - window + 1) if window and self.key_mask is None else 0
        return low, last + self.offset

    def invalid_by_head(self, targets: slice | None = None) -> Tensor | None:
        """Return the invalid pairs of all targets, or of a block, (B or 1, H or 1, J, T) bool; None where all are valid by shape."""
        targets = targets or slice(0, self.num_targets)
        masks = [self.invalid(window, targets, slice(0, self.num_sources)) for window in self.windows or (0,)]
        found = [mask for mask in masks if mask is not None]
        if not found:
            return None
        shape = (max(mask.shape[0] for mask in found), 1, targets.stop - targets.start, self.num_sources)
        nothing = torch.zeros(1, 1, 1, 1, dtype=torch.bool, device=self.device)
        return torch.cat([(nothing if mask is None else mask).expand(shape) for mask in masks], dim=1)

    def invalid(self, window: int, targets: slice, sources: slice) -> Tensor | None:
        """Return the invalid pairs of a block, (B or 1, 1, J, I) bool, or None where every pair is valid by shape."""
        key_mask = None if self.key_mask is None else self.key_mask[:, None, None, sources]
        if not self.causal:
            return None if key_mask is None else ~key_mask
        everything_before = sources.stop <= targets.start + self.offset + 1
        everything_within = not window or (
            self.key_mask is None and sources.start > targets.stop - 1 + self.offset - window
        )
        if key_mask is None and everything_before and everything_within:
            return None
        at = torch.arange(targets.start, targets.stop, device=self.device) + self.offset
        i = torch.arange(sources.start, sources.stop, device=self.device)
        invalid = (i[None, :] > at[:, None])[None, None]
        if key_mask is not None:
            invalid = invalid | ~key_mask
        if window:
            rank = self.rank()[:, None]
            invalid = invalid | (rank[:, :, at][..., :, None] - rank[:, :, sources][..., None, :] >= window)
        return invalid
