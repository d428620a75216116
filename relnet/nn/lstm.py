"""The LSTM as a mixer: PyTorch's cell between the residual stream and an output layer, correct under padding.

Source: Hochreiter and Schmidhuber 1997; torch.nn.LSTM.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from relnet.nn.mixer import Mixer, MixerConfig, check_size, initialise
from relnet.nn.state import State, trackable


@dataclass(frozen=True)
class LSTMState(State):
    """Hidden and cell vectors, (B, hidden) each: constant in length."""

    hidden: Tensor
    cell: Tensor


class LSTM(Mixer):
    """One LSTM layer and an output layer; pads are skipped, wherever they stand.

    width: of x; hidden: of the cell (default: width). y, state = mixer(x, state, mask) with x (B, S, width). State: 2 hidden numbers.
    Raises ValueError for arguments that do not fit.

    >>> y, state = LSTM(16)(torch.randn(2, 5, 16))
    >>> y.shape, state.cell.shape
    (torch.Size([2, 5, 16]), torch.Size([2, 16]))
    """

    state_kind = LSTMState

    def __init__(self, width: int, hidden: int | None = None) -> None:
        super().__init__(width)
        hidden = width if hidden is None else hidden
        check_size("hidden", hidden)
        self.cell = nn.LSTM(width, hidden, batch_first=True)
        self.out = nn.Linear(hidden, width)
        self.state_sizes = {"hidden": (hidden,), "cell": (hidden,)}
        initialise(self)

    def forward(
        self, x: Tensor, state: LSTMState | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, LSTMState]:
        x = self.enter(x, mask, state)
        if state is None:
            nothing = x.new_zeros(x.shape[0], self.cell.hidden_size)
            state = LSTMState(nothing, nothing)
        past = (trackable(state.hidden)[None].to(x.dtype), trackable(state.cell)[None].to(x.dtype))
        if mask is None:
            y, (hidden, cell) = self.cell(x, past)
            return self.out(y), LSTMState(hidden[0], cell[0])
        # Real tokens to the front, in order; the cell sees them only; then back to where they stood.
        order = mask.logical_not().sort(dim=1, stable=True).indices
        lengths = mask.sum(1)
        packed = pack_padded_sequence(
            x.gather(1, order[..., None].expand_as(x)),
            lengths.clamp(min=1).cpu(),
            batch_first=True,
            enforce_sorted=False,
        )
        y, (hidden, cell) = self.cell(packed, past)
        y, _ = pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])
        y = torch.zeros_like(y).scatter(1, order[..., None].expand_as(y), y)
        # A row of pads alone was run on one of them, for pack_padded_sequence needs a token: its state stays.
        some = (lengths > 0)[:, None]
        new = LSTMState(torch.where(some, hidden[0], past[0][0]), torch.where(some, cell[0], past[1][0]))
        return self.leave(self.out(y), mask), new


@dataclass(frozen=True)
class LSTMConfig(MixerConfig):
    """Arguments of LSTM: hidden width of the cell (None: the model's width)."""

    hidden: int | None = None
    mixer: ClassVar[type[Mixer]] = LSTM
