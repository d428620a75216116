"""The hash-copying Transformer: two blocks of attention, with weights set by hand, that copy every string without a repeated n-gram.

Block 1: Hard-ALiBi head m averages the codes of the last m tokens; differences are the codes of single tokens ("lags"). Block 2: a
source's key is the n tokens before it, a target's query the n tokens up to it, their score kappa times the number of equal bits less that
of different ones; the heads vote for the token at the source they find. A head that finds none looks at <BOS>, which votes for nothing.

    d = channels a head; b, a, w: see residual.py

Source: arXiv 2402.01032, section 2, whose construction this follows in spirit: its hash of an n-gram is here the n-gram's code itself,
and the first n - 1 letters after <SEP> are found by heads of their own. The proof is in docs/theory.md.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from relnet import nn
from relnet.theory.residual import BOS, FIRST_LETTER, SEP, Reader, Residual, lag_weights


@dataclass(frozen=True)
class CopyingTransformer:
    """The settings of the hand-set Transformer; `build()` makes it.

    n: the n-grams that must not repeat; alphabet: letters a. kappa: score of a bit; amplitude: A, which pins the norm of every row;
    gain: of the votes; head_gain: of the logits. ValueError for what does not fit.

    >>> model = CopyingTransformer(n=3).build()
    >>> model.blocks[0].mixer.limits, model.blocks[1].mixer.heads
    ((1, 2, 3, 4), 3)
    """

    n: int
    alphabet: int = 26
    kappa: float = 40.0
    amplitude: float = 1e4
    gain: float = 1e3
    head_gain: float = 1e3

    def __post_init__(self) -> None:
        if not self.kappa > 0:
            raise ValueError(f"kappa={self.kappa!r}; give a number over 0")
        if not self.residual.amplitude > 0:
            raise ValueError(f"amplitude={self.amplitude!r}; give a number over 0")

    @property
    def residual(self) -> Residual:
        """The channels of the residual stream."""
        return Residual(self.n, self.alphabet, self.amplitude)

    @property
    def head_width(self) -> int:
        """Channels a head of block 2: bits and a sink for keys, letters and <EOS> for values."""
        return max(self.n * self.residual.bits + 1, self.alphabet + 1)

    @property
    def config(self) -> nn.ModelConfig:
        """The model's shape."""
        heads = self.n + 1
        gather = nn.AttentionConfig(heads, self.residual.bits, positions="hard_alibi", windows=heads)
        retrieve = nn.AttentionConfig(self.n, self.head_width)
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
        weights = {
            "embedding.weight": self.residual.embedding(),
            "head.weight": self.residual.head(self.head_gain),
            **{f"blocks.0.mixer.{name}": weight for name, weight in self._gather().items()},
            **{f"blocks.1.mixer.{name}": weight for name, weight in self._retrieve().items()},
        }
        model.load_state_dict(weights)
        return model

    def _gather(self) -> dict[str, Tensor]:
        """Queries and keys of 0: a head's weights are equal over its window."""
        residual, bits = self.residual, self.residual.bits
        value = Reader(residual, (residual.n + 1) * bits, block=0)
        for head in range(residual.n + 1):
            rows = slice(head * bits, (head + 1) * bits)
            value.read(rows, slice(0, residual.vocab_size), residual.codes().T)
        nothing = torch.zeros_like(value.weight())
        return {
            "query_key_value.weight": torch.cat([nothing, nothing, value.weight()]),
            "out.weight": lag_weights(residual, bits, 0, None, 1.0),
        }

    def _retrieve(self) -> dict[str, Tensor]:
        residual, bits, width = self.residual, self.residual.bits, self.head_width
        query, key, value = (Reader(residual, residual.n * width, block=1) for _ in range(3))
        out = torch.zeros(residual.width, residual.n * width, dtype=torch.float64)
        delimiter = residual.codes()[SEP]
        # Attention divides scores by sqrt(d).
        gain = self.kappa * math.sqrt(width)
        one = slice(residual.plus, residual.plus + 1)
        begin = slice(BOS, BOS + 1)
        for head in range(residual.n):
            start, num = head * width, head + 1
            last = num == residual.n
            compared = num if last else num - 1
            for k in range(1, compared + 1):
                rows = slice(start + (k - 1) * bits, start + k * bits)
                query.read(rows, residual.lag(k - 1))
                key.read(rows, residual.lag(k), gain)
                # All lags of <BOS> are the delimiter's code: without it, its key is the sink alone.
                key.read(rows, begin, -gain * delimiter[:, None])
            sink = slice(start + compared * bits, start + compared * bits + 1)
            query.read(sink, one, (num * bits - 1) / residual.amplitude)
            key.read(sink, begin, gain)
            if not last:
                # A source counts if a delimiter stands num places before it; the target if one stands num - 1 before: else the sink rises.
                query.read(sink, one, bits / residual.amplitude)
                query.read(sink, residual.lag(num - 1), -delimiter[None])
                found = slice(sink.stop, sink.stop + 1)
                query.read(found, one, 1 / residual.amplitude)
                key.read(found, residual.lag(num), gain * delimiter[None])
                key.read(found, begin, torch.full((1, 1), -gain * bits, dtype=torch.float64))
            letters = slice(start, start + residual.alphabet)
            value.read(letters, slice(FIRST_LETTER, residual.vocab_size))
            value.read(slice(letters.stop, letters.stop + 1), slice(SEP, SEP + 1))
            out[residual.out, start : start + residual.alphabet + 1] = self.gain * torch.eye(
                residual.alphabet + 1, dtype=torch.float64
            )
        return {
            "query_key_value.weight": torch.cat([query.weight(), key.weight(), value.weight()]),
            "out.weight": out,
        }
