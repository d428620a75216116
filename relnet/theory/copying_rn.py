"""A CausalRN of two blocks that copies every string without a repeated n-gram, with weights set by hand.

Block 1: head m sees the last m tokens and averages their codes; differences of neighbouring heads are the codes of single tokens, written
to the residual stream ("lags"). Block 2: a pair of a source i, whose key is the n tokens before x_i, and a target j, whose query is the
n tokens up to x_j, holds (key - query) kappa beside the one-hot x_i. Where they agree, the pair is one-hot and its exact norm
sqrt(d - 1) at x_i, which exp lifts over everything else; where they do not, kappa drowns the one-hot. No positions, no MLP.

    d1, d2 = channels a head in block 1 and 2; b, a, w: see residual.py

The proof is in docs/theory.md.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from relnet import nn
from relnet.ops.relation import Activation, PairNorm
from relnet.ops.relation_reference import ACTIVATIONS
from relnet.theory.residual import BOS, SEP, Reader, Residual, lag_weights, spread


@dataclass(frozen=True)
class CopyingRN:
    """The settings of the hand-set CausalRN; `build()` makes it.

    n: the n-grams that must not repeat; alphabet: letters a. kappa: gain of the keys; amplitude: A, which pins the norm of every row;
    hot: h, which pins the norm of block 1's hidden rows (None: 7, with other activations than exp 10,000); gain: of the votes;
    head_gain: of the logits; head_widths: d1 and d2, None for the least that is needed but 64 at least.

    Ablations: windows=False: block 1's heads see everything; delimiter_heads=False: the first n - 1 letters after <SEP> have no head
    of their own; gate=False: those heads answer everywhere; amplitude=0; hot=0; pair_norm, of block 2; activation, of both blocks.
    ValueError for what does not fit.

    >>> model = CopyingRN(n=3).build()
    >>> model.blocks[0].mixer.windows, model.blocks[1].mixer.heads
    ((1, 2, 3, 4), 3)
    """

    n: int
    alphabet: int = 26
    kappa: float = 100.0
    amplitude: float = 1e4
    hot: float | None = None
    gain: float = 1e3
    head_gain: float = 1e3
    head_widths: tuple[int, int] | None = None
    activation: Activation = "exp"
    pair_norm: PairNorm = "exact"
    windows: bool = True
    delimiter_heads: bool = True
    gate: bool = True

    def __post_init__(self) -> None:
        if not self.kappa > 0:
            raise ValueError(f"kappa={self.kappa!r}; give a number over 0")
        least = self._least_widths()
        for name, width, needed in zip(("d1", "d2"), self.widths, least, strict=True):
            if width < needed:
                raise ValueError(f"head_widths={self.head_widths}: {name} must be at least {needed} here")

    def _least_widths(self) -> tuple[int, int]:
        bits = self.residual.bits
        return 2 * bits + 3, self.n * bits + self.alphabet + 3

    @property
    def residual(self) -> Residual:
        """The channels of the residual stream."""
        return Residual(self.n, self.alphabet, self.amplitude)

    @property
    def widths(self) -> tuple[int, int]:
        """Channels a head, d1 and d2."""
        if self.head_widths is not None:
            return self.head_widths
        first, second = self._least_widths()
        return max(64, first), max(64, second)

    @property
    def config(self) -> nn.ModelConfig:
        """The model's shape."""
        first, second = self.widths
        heads = self.n + 1
        windows = tuple(range(1, heads + 1)) if self.windows else None
        gather = nn.CausalRNConfig(hidden=heads * first, heads=heads, windows=windows, activation=self.activation)
        retrieve = nn.CausalRNConfig(
            hidden=self.n * second, heads=self.n, activation=self.activation, pair_norm=self.pair_norm
        )
        return nn.ModelConfig(
            vocab_size=self.residual.vocab_size,
            width=self.residual.width,
            depth=2,
            context=None,
            mixer=(gather, retrieve),
            positions="none",
        )

    def build(self, dtype: torch.dtype = torch.float32) -> nn.SequenceModel:
        """Return the model in evaluation mode; the weights are computed in float64 and rounded to dtype."""
        with torch.random.fork_rng(devices=[]):
            model = nn.SequenceModel(self.config).to(dtype).eval()
        residual = self.residual
        weights = {
            "embedding.weight": residual.embedding(),
            "head.weight": residual.head(self.head_gain),
            **{f"blocks.0.mixer.{name}": weight for name, weight in self._gather().items()},
            **{f"blocks.1.mixer.{name}": weight for name, weight in self._retrieve().items()},
        }
        model.load_state_dict(weights)
        return model

    def _hot_channels(self) -> Tensor:
        """h in one channel; with other activations than exp also -h in a second one, which keeps the pair's mean at 0."""
        if self.activation == "exp":
            return torch.tensor([7.0 if self.hot is None else self.hot], dtype=torch.float64)
        hot = 1e4 if self.hot is None else self.hot
        return torch.tensor([hot, -hot], dtype=torch.float64)

    def gathering(self) -> tuple[float, float, float]:
        """Return of block 1: how much larger y is at a sign + than at a sign -, the std of its rows that is reckoned with, its spread.

        Spread: how far off (relatively) that std is at most, in exact arithmetic. All of a pair's channels but the codes' are the same
        for every pair, and so is its norm; of the rows' variance only the part of the codes' means is not.
        """
        bits, width = self.residual.bits, self.widths[0]
        target = torch.zeros(width, dtype=torch.float64)
        target[2 * bits : 2 * bits + len(self._hot_channels())] = self._hot_channels()
        target -= target.mean()
        scale = float((2 * bits + target.square().sum()) / width) ** -0.5
        psi = ACTIVATIONS[self.activation]
        low, high = (float(psi(scale * (target[0] + sign))) for sign in (-1.0, 1.0))
        row = psi(scale * target)
        # Where the codes' means are 0; means of +-1 add the rest.
        row[: 2 * bits] = (low + high) / 2
        from_means = bits * (high - low) ** 2 / (2 * width)
        least = float(row.var(correction=0))
        std = math.sqrt(least + from_means / 2)
        return high - low, std, from_means / (4 * least)

    @property
    def spread(self) -> float:
        """Eta: in exact arithmetic every row's keys and values are right up to one factor between 1 - eta and 1 + eta.

        >>> CopyingRN(n=4).spread < 5e-6
        True
        """
        _, _, of_lags = self.gathering()
        return of_lags + spread(self.residual, of_lags)

    def _gather(self) -> dict[str, Tensor]:
        residual, width = self.residual, self.widths[0]
        bits, heads = residual.bits, residual.n + 1
        source = Reader(residual, heads * width, block=0)
        bias = torch.zeros(heads * width, dtype=torch.float64)
        tokens = slice(0, residual.vocab_size)
        hot = self._hot_channels()
        for start in range(0, heads * width, width):
            source.read(slice(start, start + bits), tokens, residual.codes().T)
            source.read(slice(start + bits, start + 2 * bits), tokens, -residual.codes().T)
            bias[start + 2 * bits : start + 2 * bits + len(hot)] = hot
        amplitude, std, _ = self.gathering()
        return {
            "source.weight": source.weight(),
            "target.weight": torch.zeros_like(source.weight()),
            "target.bias": bias,
            # The plain norm of y divides by std; y+ - y- is twice a mean that one head of signs holds.
            "out.weight": lag_weights(residual, width, 0, bits, std / amplitude),
            "out.bias": torch.zeros(residual.width, dtype=torch.float64),
        }

    def _retrieve(self) -> dict[str, Tensor]:
        residual, width, kappa = self.residual, self.widths[1], self.kappa
        bits, size = residual.bits, residual.n * width
        source, target = Reader(residual, size, block=1), Reader(residual, size, block=1)
        bias = torch.zeros(size, dtype=torch.float64)
        out = torch.zeros(residual.width, size, dtype=torch.float64)
        delimiter = residual.codes()[SEP]
        for head in range(residual.n):
            start, num = head * width, head + 1
            last = num == residual.n
            if not last and not self.delimiter_heads:
                # An idle head: the same pair everywhere.
                bias[start], bias[start + 1] = 1.0, -1.0
                continue
            channels = [slice(start + k * bits, start + (k + 1) * bits) for k in range(num + 1)]
            compared = num if last else num - 1
            for k in range(1, compared + 1):
                source.read(channels[k - 1], residual.lag(k), kappa)
                target.read(channels[k - 1], residual.lag(k - 1), -kappa)
            if not last:
                source.read(channels[num - 1], residual.lag(num), kappa)
                bias[channels[num - 1]] = -kappa * delimiter
                if self.gate:
                    target.read(channels[num], residual.lag(num - 1), kappa)
                    bias[channels[num]] = -kappa * delimiter
            values = slice(start + width - residual.alphabet - 2, start + width)
            source.read(values, slice(0, residual.vocab_size), _values(residual))
            out[residual.out, values.start : values.stop - 1] = self.gain * torch.eye(
                residual.alphabet + 1, dtype=torch.float64
            )
        return {
            "source.weight": source.weight(),
            "target.weight": target.weight(),
            "target.bias": bias,
            "out.weight": out,
            "out.bias": torch.zeros(residual.width, dtype=torch.float64),
        }


def _values(residual: Residual) -> Tensor:
    """(a + 2, V): what a source stands for as the next token: a letter for itself, <SEP> for <EOS>, <BOS> for nothing that is said."""
    values = torch.zeros(residual.alphabet + 2, residual.vocab_size, dtype=torch.float64)
    values[:-2, residual.vocab_size - residual.alphabet :] = torch.eye(residual.alphabet)
    values[-2, SEP] = values[-1, BOS] = 1.0
    return values
