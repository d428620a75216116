"""Generation: a prompt is read once, then every token goes through the state.

    logits -> repetition penalty -> temperature -> top-k -> top-p -> min-p -> one draw a row

Letters: B rows, P tokens of the longest prompt, V vocabulary. Time a token O(1) for constant states, O(T) for those that grow.
The draws of row r come from a counter-based generator keyed by (seed, r): they do not depend on the other rows.
Source: Keskar et al. 2019 (repetition penalty); Fan et al. 2018 (top-k); Holtzman et al. 2020 (top-p); Nguyen et al. 2024 (min-p).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from relnet.nn.mixer import check_size

if TYPE_CHECKING:
    from relnet.nn.model import ModelState, SequenceModel

# Stands where a row that has stopped has no token.
NO_TOKEN = -1


@dataclass(frozen=True)
class Sampling:
    """How a token is chosen from logits.

    temperature: 0 = the most likely one (greedy), else logits are divided by it; top_k: only the k most likely; top_p: only the most likely
    whose probabilities reach top_p together; min_p: only those with at least min_p times the highest probability; repetition_penalty:
    logits of tokens seen in the row are divided by it where positive, multiplied where negative. Raises ValueError for values out of range,
    and for filters without a temperature.

    >>> Sampling(temperature=0.8, top_k=50, top_p=0.95).temperature
    0.8
    """

    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        """Raise ValueError for values out of range."""
        if not 0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature={self.temperature!r}; give 0 (greedy) or a positive number")
        if not 0 < self.repetition_penalty < float("inf"):
            raise ValueError(f"repetition_penalty={self.repetition_penalty!r}; give a positive number, 1 for none")
        if self.top_k is not None:
            check_size("top_k", self.top_k)
        for name in ("top_p", "min_p"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise ValueError(f"{name}={value!r}; give a number above 0 and up to 1, or None")
        if self.temperature == 0 and (self.top_k, self.top_p, self.min_p) != (None, None, None):
            raise ValueError(
                "top_k, top_p and min_p choose among samples, and temperature=0 is greedy; give a temperature"
            )

    def filtered(self, logits: Tensor) -> Tensor:
        """Return logits (B, V), the largest at 0, divided by the temperature, -inf where filtered out: float64, at least one left a row."""
        # Less the largest one, before the division: nothing overflows, however low the temperature.
        logits = logits.double()
        logits = (logits - logits.amax(-1, keepdim=True)) / self.temperature
        if self.top_k is not None:
            lowest = logits.topk(min(self.top_k, logits.shape[-1]), dim=-1).values[:, -1:]
            logits = logits.masked_fill(logits < lowest, -torch.inf)
        # A sum of probabilities rounds to 1 before its end: top_p=1 is no filter.
        if self.top_p is not None and self.top_p < 1:
            ordered, order = logits.sort(dim=-1, descending=True)
            probabilities = ordered.softmax(-1)
            beyond = probabilities.cumsum(-1) - probabilities >= self.top_p
            logits = logits.masked_fill(torch.zeros_like(beyond).scatter(1, order, beyond), -torch.inf)
        if self.min_p is not None:
            probabilities = logits.softmax(-1)
            logits = logits.masked_fill(probabilities < self.min_p * probabilities.amax(-1, keepdim=True), -torch.inf)
        return logits


class TokenStream:
    """An iterator over generation steps; each gives one token a row, (B,) int64, NO_TOKEN at rows that have stopped.

    It ends when every row has stopped or max_new_tokens were given. `state`: the model's, after all tokens but the last, of the rows
    whose numbers are in `rows` (B,): rows that have stopped leave both, and cost nothing. Going on: give the last token and what
    follows it as the next prompt, with this state. Arguments as for `generate`.

    >>> from relnet import nn
    >>> model = nn.SequenceModel(nn.ModelConfig(29, 16, 2, context=34, mixer=nn.CausalRNConfig()))
    >>> for tokens in nn.stream(model, torch.randint(29, (2, 5)), max_new_tokens=3):
    ...     print(tokens.shape)
    torch.Size([2])
    torch.Size([2])
    torch.Size([2])
    """

    def __init__(
        self,
        model: "SequenceModel",
        ids: Tensor,
        max_new_tokens: int,
        *,
        mask: Tensor | None = None,
        state: "ModelState | None" = None,
        sampling: Sampling | None = None,
        stop_tokens: int | Iterable[int] = (),
        seed: int = 0,
        chunk_tokens: int | None = None,
    ) -> None:
        ids = model.check(ids, state, mask)
        check_size("max_new_tokens", max_new_tokens)
        if chunk_tokens is not None:
            check_size("chunk_tokens", chunk_tokens)
        if not isinstance(seed, int) or not 0 <= seed < 2**64:
            raise ValueError(f"seed={seed!r}; give an integer of at least 0 and below 2^64")
        if mask is not None and not bool((real := mask.any(1)).all()):
            raise ValueError(f"the prompt of row {int((~real).nonzero()[0, 0])} is empty: its mask has no real token")
        stop = _token_numbers(stop_tokens)
        if wrong := [token for token in stop if not 0 <= token < model.config.vocab_size]:
            raise ValueError(f"stop token {wrong[0]} is outside the vocabulary of 0 to {model.config.vocab_size - 1}")
        check_room(model.config.context, ids, mask, state, max_new_tokens)
        self.model, self.state = model, state
        self.rows = torch.arange(ids.shape[0])
        self._num_rows, self._left, self._chunk = ids.shape[0], max_new_tokens, chunk_tokens or ids.shape[1]
        self._sampling, self._stop = sampling or Sampling(), torch.tensor(stop, device=ids.device, dtype=torch.int64)
        # A mask of real tokens only says nothing, and costs every step.
        self._prompt: tuple[Tensor, Tensor | None] | None = (ids, None if mask is None or bool(mask.all()) else mask)
        self._last = ids[:, :0]
        self._seen: Tensor | None = None
        if self._sampling.repetition_penalty != 1:
            self._seen = torch.zeros(ids.shape[0], model.config.vocab_size, dtype=torch.bool, device=ids.device)
            self._see(ids, mask)
        # Philox is defined by its raw words, whatever the version of NumPy.
        self._draws = [np.random.Philox(key=np.array([seed, row], dtype=np.uint64)) for row in range(ids.shape[0])]

    def __iter__(self) -> "TokenStream":
        return self

    @torch.no_grad()
    def __next__(self) -> Tensor:
        if self._left == 0 or not len(self.rows):
            raise StopIteration
        features = self._read() if self._prompt is not None else self._step()
        tokens = self._choose(self.model.head(features))
        self._left -= 1
        said = torch.full((self._num_rows,), NO_TOKEN, device=tokens.device)
        said[self.rows] = tokens
        self._last = tokens[:, None]
        if self._seen is not None:
            self._see(self._last, None)
        going = ~torch.isin(tokens, self._stop)
        if not bool(going.any()):
            self._left = 0
        elif not bool(going.all()):
            self._keep(going.nonzero()[:, 0])
        return said

    def _read(self) -> Tensor:
        """Read the prompts; return what the head needs after the last real token of each row, (B, width)."""
        assert self._prompt is not None
        (ids, mask), self._prompt = self._prompt, None
        masks = [None] * len(ids.split(self._chunk, 1)) if mask is None else mask.split(self._chunk, 1)
        last: Tensor | None = None
        for chunk, chunk_mask in zip(ids.split(self._chunk, 1), masks, strict=True):
            features, self.state = self.model.features(chunk, self.state, chunk_mask)
            if chunk_mask is None or last is None:
                last = features[:, -1]
            if chunk_mask is not None:
                at = (chunk_mask.long() * torch.arange(1, chunk.shape[1] + 1, device=ids.device)).amax(1)
                found = features[torch.arange(len(ids), device=ids.device), (at - 1).clamp(min=0)]
                last = torch.where((at > 0)[:, None], found, last)
        assert last is not None
        return last

    def _step(self) -> Tensor:
        features, self.state = self.model.features(self._last, self.state)
        return features[:, -1]

    def _choose(self, logits: Tensor) -> Tensor:
        logits = logits if logits.dtype == torch.float64 else logits.float()
        if self._seen is not None:
            penalty = self._sampling.repetition_penalty
            penalised = torch.where(logits < 0, logits * penalty, logits / penalty)
            logits = torch.where(self._seen, penalised, logits)
        highest, tokens = logits.max(-1)
        if bool((wrong := ~highest.isfinite()).any()):
            row = int(self.rows[wrong.nonzero()[0, 0].cpu()])
            raise ValueError(
                f"the logits of row {row} are NaN or infinite: the weights may be damaged, or training diverged"
            )
        if self._sampling.temperature == 0:
            return tokens
        sums = self._sampling.filtered(logits).softmax(-1).cumsum(-1)
        # 52 bits: u * sum < sum for every sum, so what is found has a probability above 0.
        words = [int(self._draws[row].random_raw()) >> 12 for row in self.rows.tolist()]
        u = torch.tensor(words, dtype=torch.float64, device=sums.device)[:, None] * 2.0**-52
        return torch.searchsorted(sums, u * sums[:, -1:], right=True)[:, 0]

    def _see(self, ids: Tensor, mask: Tensor | None) -> None:
        assert self._seen is not None
        real = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        rows = torch.arange(len(ids), device=ids.device)[:, None].expand_as(ids)
        self._seen[rows[real], ids[real]] = True

    def _keep(self, rows: Tensor) -> None:
        """Leave the rows that have stopped behind."""
        assert self.state is not None
        self.state, self._last = self.state.select(rows), self._last[rows]
        self.rows = self.rows[rows.cpu()]
        self._seen = None if self._seen is None else self._seen[rows]


def _token_numbers(tokens: int | Iterable[int]) -> list[int]:
    try:
        return [index(token) for token in (tokens if isinstance(tokens, Iterable) else (tokens,))]
    except TypeError:
        raise ValueError(f"stop_tokens={tokens!r}; give a token number, or several") from None


def check_room(
    context: int | None, ids: Tensor, mask: Tensor | None, state: "ModelState | None", max_new_tokens: int
) -> None:
    """Raise ValueError for what a model of limited context could not read."""
    if context is None:
        return
    lengths = torch.full((len(ids),), ids.shape[1], device=ids.device) if mask is None else mask.sum(1)
    longest = int((lengths + (0 if state is None else state.num_tokens)).max())
    # The last token is said, never read.
    if longest + max_new_tokens - 1 > context:
        room = context - longest + 1
        remedy = f"give max_new_tokens={room} at most" if room > 0 else "shorten the prompt"
        raise ValueError(
            f"{longest} tokens of prompt and {max_new_tokens} new ones, and the model takes at most {context}; {remedy}"
        )


def stream(model: "SequenceModel", ids: Tensor, max_new_tokens: int, **options: Any) -> TokenStream:
    """Return an iterator over generated tokens, `TokenStream`; arguments and errors as for `generate`."""
    names = Sampling.__dataclass_fields__
    sampling = Sampling(**{name: options.pop(name) for name in list(options) if name in names})
    return TokenStream(model, ids, max_new_tokens, sampling=sampling, **options)


def generate(model: "SequenceModel", ids: Tensor, max_new_tokens: int, **options: Any) -> Tensor:
    """Return the tokens that follow each prompt, (B, N) int64, NO_TOKEN (-1) after a row has stopped; N <= max_new_tokens.

    ids: prompts (B, P), at least one real token a row; mask: (B, P) bool, True = real token: prompts padded left, right or inside;
    state: go on from there; which tokens it has read is not known: the repetition penalty speaks of these prompts and answers only;
    temperature, top_k, top_p, min_p, repetition_penalty: see `Sampling`, greedy by default; stop_tokens: one or several, said once and
    last; seed: of the draws; chunk_tokens: read prompts in pieces of so many tokens, which takes less memory for the same result.
    Raises ValueError for an empty prompt, more tokens than the model's context, logits that are not finite, and arguments out of range.

    >>> from relnet import nn
    >>> model = nn.SequenceModel(nn.ModelConfig(29, 16, 2, context=34, mixer=nn.CausalRNConfig()))
    >>> generate(model, torch.randint(29, (2, 5)), max_new_tokens=3, temperature=0.8, top_p=0.9, stop_tokens=2).shape[0]
    2
    """
    return torch.stack(list(stream(model, ids, max_new_tokens, **options)), dim=1)
