"""The state of a relnet model as a transformers Cache: it holds a value, and replaces it."""

from typing import Any

import torch
from transformers import Cache

from relnet import nn


class RelnetCache(Cache):
    """The state after `length` positions, pads included; a call of the model moves it on.

    Two caches may hold one state: `RelnetCache(cache.state, cache.length)` is a copy that costs nothing, since states are values.
    What transformers does with keys and values (update, crop, ...) is refused: NotImplementedError.
    """

    def __init__(self, state: nn.ModelState | None = None, length: int = 0) -> None:
        super().__init__(layers=[])
        self.state, self.length = state, length

    def __repr__(self) -> str:
        return f"RelnetCache(length={self.length}, nbytes={0 if self.state is None else self.state.nbytes})"

    def __deepcopy__(self, memo: Any) -> "RelnetCache":
        # States are values; tensors that a gradient went through cannot be copied.
        return RelnetCache(self.state, self.length)

    def __len__(self) -> int:
        return 0 if self.state is None else len(self.state.mixers)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of positions so far, pads included."""
        return self.length

    def get_max_length(self, layer_idx: int | None = None) -> int:
        """Return -1: the state sets no limit."""
        return -1

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        """Return the positions that a mask of so many new tokens speaks of, and where they begin."""
        return self.length + query_length, 0

    def reset(self) -> None:
        """Forget everything."""
        self.state, self.length = None, 0

    def reorder_cache(self, beam_idx: torch.LongTensor) -> None:
        """Take these rows, in this order."""
        if self.state is not None:
            self.state = self.state.select(beam_idx)

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Take these rows, in this order."""
        if self.state is not None:
            self.state = self.state.select(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Have each row so many times."""
        if self.state is not None:
            rows = torch.arange(self.batch_size).repeat_interleave(repeats)
            self.state = self.state.select(rows)

    @property
    def batch_size(self) -> int:
        """Rows of the state, -1 before the first call."""
        if self.state is None:
            return -1
        leaf: Any = next(iter(vars(self.state.mixers[0]).values()))
        return len(leaf.entries if isinstance(leaf, nn.Cache) else leaf)

    @property
    def is_initialized(self) -> bool:
        """True after the first call."""
        return self.state is not None

    @property
    def is_compileable(self) -> bool:
        """False: transformers would compile with a cache of constant shapes."""
        return False

    @property
    def is_croppable(self) -> bool:
        """False: a state has no way back."""
        return False

    @property
    def is_linear(self) -> list[bool]:
        """One False: the cache counts its positions, which is what transformers asks for by this."""
        return [False]

    def update(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Refuse keys and values."""
        raise NotImplementedError(
            "a RelnetCache holds a model's state, no keys and values; the model moves it on itself"
        )

    def crop(self, tokens_to_remove: int) -> None:
        """Refuse to go back."""
        raise NotImplementedError(
            "a RelnetCache cannot go back; keep RelnetCache(cache.state, cache.length) from before"
        )

    def activate_past_recording(self) -> None:
        """Refuse to go back."""
        self.crop(0)
