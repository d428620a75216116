"""Hand-written subjects for the copying task.

Each is written twice: over a whole sequence at once, and over a state of the prompt's string, the number of tokens said
since and a hash of them. The state never holds what was said, so an exam that redoes the context could not pass by it.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from relnet.tasks import Copying

BOS, SEP, EOS = Copying.BOS, Copying.SEP, Copying.EOS
FACTOR, MODULUS = 1_000_003, 2**31


@dataclass(frozen=True)
class State:
    string: Tensor  # (N, L)
    place: int  # tokens of the answer read
    digest: Tensor  # (N,) a hash of them and of the string


@dataclass
class Copier:
    """Copies any string; the subclasses change what it says at a place of the answer."""

    limit: int | None = None
    name: str = "copier"
    vocab_size: int = 29
    batches: list[int] = field(default_factory=list)

    def say(self, right: Tensor, place: int, length: int, digest: Tensor) -> Tensor:
        """The token (N,) said at a place of the answer, given the right one and the hash of what was read."""
        return right

    def express(self, tokens: Tensor) -> Tensor:
        """Logits (N, V) whose highest is that of tokens (N,)."""
        return 10.0 * one_hot(tokens, self.vocab_size)

    def start(self, prompts: Tensor) -> tuple[Tensor, State]:
        self.batches.append(len(prompts))
        string = prompts[:, 1:-1]
        digest = torch.zeros(len(prompts), dtype=torch.int64)
        for token in string.T:
            digest = (digest * FACTOR + token) % MODULUS
        state = State(string, 0, digest)
        return self._answer(state), state

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        state = State(state.string, state.place + 1, (state.digest * FACTOR + tokens) % MODULUS)
        return self._answer(state), state

    def _answer(self, state: State) -> Tensor:
        length = state.string.shape[1]
        right = state.string[:, state.place] if state.place < length else torch.full_like(state.digest, EOS)
        return self.express(self.say(right, state.place, length, state.digest))

    def logits(self, ids: Tensor) -> Tensor:
        self.batches.append(len(ids))
        separator = int((ids[0] == SEP).nonzero()[0])
        length = separator - 1
        rows = []
        for t in range(ids.shape[1]):
            place = t - separator
            if place < 0:
                rows.append(self.express(ids[:, t]))
                continue
            right = ids[:, 1 + place] if place < length else torch.full_like(ids[:, 0], EOS)
            digest = torch.zeros_like(ids[:, 0])
            for token in torch.cat([ids[:, 1:separator], ids[:, separator + 1 : t + 1]], dim=1).T:
                digest = (digest * FACTOR + token) % MODULUS
            rows.append(self.express(self.say(right, place, length, digest)))
        return torch.stack(rows, dim=1)


@dataclass
class Erring(Copier):
    """Says another token where the hash of all it has read says so, about one time in `one_in`."""

    one_in: int = 6

    def say(self, right, place, length, digest):
        return torch.where((digest >> 7) % self.one_in == 0, (right + 1 + digest % 27) % self.vocab_size, right)


class Endless(Copier):
    """Never stops: says "z" for <EOS>."""

    def say(self, right, place, length, digest):
        return torch.where(right == EOS, 28, right)


class Hasty(Copier):
    """Stops after half of the string."""

    def say(self, right, place, length, digest):
        return torch.full_like(right, EOS) if place == length // 2 else right


class Undecided(Copier):
    """Finds a second token nearly as likely at every second place."""

    def express(self, tokens):
        logits = super().express(tokens)
        even = (tokens % 2 == 0)[:, None]
        return torch.where(even, logits + 9.99995 * one_hot((tokens + 1) % self.vocab_size, self.vocab_size), logits)


class Broken(Copier):
    """Gives NaN at the fourth place of the answer, in every row but the first."""

    def _answer(self, state):
        logits = super()._answer(state)
        if state.place == 3:
            logits[1:, 5] = torch.nan
        return logits

    def logits(self, ids):
        logits = super().logits(ids)
        place = int((ids[0] == SEP).nonzero()[0]) + 3
        logits[1:, place : place + 1, 5] = torch.nan
        return logits
