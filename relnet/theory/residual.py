"""What both hand-set models write on the residual stream, and how a linear layer reads one channel of a normed row.

    channels: token, one-hot | lag 0..n, b each | +A | -A | reference, always 0 | out, one a letter and one for <EOS>

The embedding is the one-hot token with +A and -A; block 1 adds to lag k the code of the token k places before; block 2 adds votes to
out. +A and -A make up nearly all of a row's norm, so that the plain norm divides every row by (almost) the same number, and keep its
mean near 0. Reading "channel minus reference" removes that mean.

    a = letters of the alphabet, b = bits of a code: the smallest with 2^b > a, V = a + 3 tokens, w = channels
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from relnet.nn.mixer import check_size
from relnet.tasks import Copying

BOS, SEP, EOS, FIRST_LETTER = Copying.BOS, Copying.SEP, Copying.EOS, Copying.FIRST_LETTER


@dataclass(frozen=True)
class Residual:
    """The channels for n-grams of an alphabet; ValueError for an n or an alphabet under 1, an amplitude A under 0.

    >>> Residual(n=2, alphabet=26, amplitude=1e4).width
    74
    """

    n: int
    alphabet: int
    amplitude: float

    def __post_init__(self) -> None:
        check_size("n", self.n)
        check_size("alphabet", self.alphabet)
        if not self.amplitude >= 0:
            raise ValueError(f"amplitude={self.amplitude!r}; give a number of at least 0")

    @property
    def bits(self) -> int:
        """Signs of a code: enough for every letter and one code more, the delimiters'."""
        return self.alphabet.bit_length()

    @property
    def vocab_size(self) -> int:
        """<BOS>, <SEP>, <EOS> and the letters."""
        return FIRST_LETTER + self.alphabet

    def lag(self, k: int) -> slice:
        """The channels of the code k places before."""
        start = self.vocab_size + k * self.bits
        return slice(start, start + self.bits)

    @property
    def plus(self) -> int:
        """The channel that holds +A; the next one holds -A."""
        return self.vocab_size + (self.n + 1) * self.bits

    @property
    def reference(self) -> int:
        """The channel that is always 0."""
        return self.plus + 2

    @property
    def out(self) -> slice:
        """The channels of the votes, a letters and <EOS>."""
        return slice(self.reference + 1, self.reference + 2 + self.alphabet)

    @property
    def width(self) -> int:
        """Channels in all."""
        return self.out.stop

    def codes(self) -> Tensor:
        """Return the codes (V, b) float64 of signs: a letter's number in binary, the next number for <BOS> and <SEP> alike, 0 for <EOS>."""
        numbers = torch.arange(self.alphabet + 1)
        signs = 2.0 * (numbers[:, None] >> torch.arange(self.bits) & 1).double() - 1.0
        codes = torch.zeros(self.vocab_size, self.bits, dtype=torch.float64)
        codes[FIRST_LETTER:] = signs[:-1]
        codes[[BOS, SEP]] = signs[-1]
        return codes

    def embedding(self) -> Tensor:
        """Return the embedding (V, w) float64."""
        weight = torch.zeros(self.vocab_size, self.width, dtype=torch.float64)
        weight[:, : self.vocab_size] = torch.eye(self.vocab_size)
        weight[:, self.plus], weight[:, self.plus + 1] = self.amplitude, -self.amplitude
        return weight

    def scale(self, block: int) -> float:
        """Return the number that the plain norm multiplies a row by before block 0 or 1 (exact for 0; for 1 where all lags are codes)."""
        row = self.embedding()[FIRST_LETTER].clone()
        if block == 1:
            for k in range(self.n + 1):
                row[self.lag(k)] = self.codes()[FIRST_LETTER]
        return 1.0 / float(row.std(correction=0))

    def head(self, gain: float) -> Tensor:
        """Return the head (V, w) float64: letters and <EOS> read their votes, <BOS> and <SEP> the mean of all, never the largest."""
        weight = torch.zeros(self.vocab_size, self.width, dtype=torch.float64)
        votes = weight[:, self.out]
        votes[FIRST_LETTER:, :-1] = gain * torch.eye(self.alphabet, dtype=torch.float64)
        votes[EOS, -1] = gain
        votes[[BOS, SEP]] = gain / (self.alphabet + 1)
        return weight


class Reader:
    """A weight (rows, w) under construction, each of whose rows is a sum of gain * (channel - reference)."""

    def __init__(self, residual: Residual, rows: int, block: int) -> None:
        self._reference = residual.reference
        self._scale = residual.scale(block)
        self._weight = torch.zeros(rows, residual.width, dtype=torch.float64)

    def read(self, rows: slice, channels: slice, gains: Tensor | float = 1.0) -> None:
        """Let rows read channels: gains (rows, channels), or a number for one to one."""
        if not isinstance(gains, Tensor):
            gains = gains * torch.eye(rows.stop - rows.start, dtype=torch.float64)
        self._weight[rows, channels] += gains / self._scale

    def weight(self) -> Tensor:
        """Return the weight."""
        weight = self._weight.clone()
        weight[:, self._reference] = -weight.sum(1)
        return weight


def lag_weights(residual: Residual, head_width: int, plus: int, minus: int | None, gain: float) -> Tensor:
    """Return the weight (w, heads * head_width) of block 1's last layer, from means over windows to lags.

    Head k holds the mean of the codes of the last k + 1 tokens in its channels from `plus` on, or, with `minus`, in the differences of
    two groups of channels: lag k = (k + 1) * mean over k + 1 - k * mean over k.
    """
    weight = torch.zeros(residual.width, (residual.n + 1) * head_width, dtype=torch.float64)
    eye = torch.eye(residual.bits, dtype=torch.float64)
    for k in range(residual.n + 1):
        for head, share in ((k, k + 1), (k - 1, -k)):
            for start, sign in ((plus, 1.0), (minus, -1.0)):
                if start is not None and share:
                    first = head * head_width + start
                    weight[residual.lag(k), first : first + residual.bits] += sign * share * gain * eye
    return weight


def spread(residual: Residual, of_lags: float = 0.0) -> float:
    """Return how far off (relatively) the norm before block 2 is at most from the scale its weights were made for.

    of_lags: how far off the lags are. With S the sum of squares of a row's channels but +A and -A, w * variance lies between 2 A^2
    and 2 A^2 + S.
    """
    if residual.amplitude == 0:
        return math.inf
    most = 1.0 + (residual.n + 1) * residual.bits * (1.0 + of_lags) ** 2
    return most / (4.0 * residual.amplitude**2)
