"""Language modelling: say the next token of a text, in windows of `context` tokens.

Item k of a seed is a window of the text. Windows come in epochs: in epoch e the text is cut into W windows that do not
overlap, from an offset that is drawn anew for each epoch, and comes in a random order that has each of them once. Offset and order
are functions of (seed, e) alone, computed from Philox's raw words, so an item is the same in any batch, order and process and
nothing of the size of the text is held in memory.

    N = tokens of the training text, C = context, W = max(1, floor(N / C) - 1)
    item k is window number P_e(k mod W), e = floor(k / W), P_e a keyed permutation (Feistel network, cycle-walking)
"""

import dataclasses
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from relnet.tasks.scores import IGNORE
from relnet.tasks.task import Batch
from relnet.tasks.text_sources import Progress, open_sources
from relnet.tasks.text_tokens import Tokens, load_tokens
from relnet.tasks.token_store import Span, TokenStore, prepare, store_folder, store_key

ROUNDS = 6


@dataclass(frozen=True)
class Text:
    """The next token of a text.

    data: UTF-8 text files, folders of *.txt files, hub data sets ("wikitext-103", "hub:OWNER/NAME:CONFIG:SPLIT"), one after the other.
    context: tokens a model reads at once.
    tokenizer: "bytes", or a tokenizer.json, its folder or a hub name.
    validation: another text to validate on, none of it in `data`; None: the end of the data, `validation_share` of its bytes.
    stores: keys of the prepared texts, which say what text it was; `prepared` fills them in.

    ValueError for a context under 1, a share outside (0, 0.5], and, where the text is first read, for one that is empty, binary, not
    UTF-8 or too short for the context, a tokenizer that cannot be had, and a text that is no longer what `stores` says.
    """

    data: tuple[str, ...]
    context: int = 256
    tokenizer: str = "bytes"
    validation: str | None = None
    validation_share: float = 0.05
    stores: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.context < 1:
            raise ValueError(f"context {self.context}: at least 1 token wanted")
        if not 0 < self.validation_share <= 0.5:
            raise ValueError(f"validation_share {self.validation_share}: a share above 0 and at most 0.5 wanted")
        if isinstance(self.data, str):
            raise ValueError(f"data {self.data!r}: give a tuple of texts, ({self.data!r},)")
        if not self.data:
            raise ValueError("no text given; give files, folders or a hub name")

    @property
    def name(self) -> str:
        """The task as it stands in results."""
        return "text"

    @property
    def label(self) -> str:
        """The task in a run folder's name."""
        return f"text-{self.context}"

    @property
    def rows(self) -> str:
        """What a row of a batch is, in words."""
        return f"windows of {self.context} tokens"

    @cached_property
    def tokens(self) -> Tokens:
        """The way from text to tokens and back."""
        return load_tokens(self.tokenizer)

    @property
    def vocab_size(self) -> int:
        """Number of tokens: 256 of bytes."""
        return self.tokens.vocab_size

    def prepared(self, on_progress: Progress | None = None) -> "Text":
        """Return the task with its texts prepared and named in `stores`.

        on_progress: called with what is done, bytes done, and all bytes (None where not known).
        """
        texts = [self.data] if self.validation is None else [self.data, (self.validation,)]
        if self.stores and all((store_folder(key) / "store.json").exists() for key in self.stores):
            return self
        opened = [open_sources(names, on_progress) for names in texts]
        trained = {source.digest for source in opened[0]}
        for source in opened[1] if self.validation is not None else ():
            if source.digest in trained:
                raise ValueError(
                    f"{source.name}: a text to validate on that is trained on too says nothing; give another, or leave it out"
                )
        keys = []
        for names, sources, wanted in zip(texts, opened, self.stores or (None, None), strict=False):
            if wanted is not None and store_key(sources, self.tokens) != wanted:
                raise ValueError(
                    f"{', '.join(names)}: no longer the text or tokenizer of this run; put back what it was"
                )
            keys.append(prepare(sources, self.tokens, on_progress))
        task = dataclasses.replace(self, stores=tuple(keys))
        # What is too short is refused now, not at the first batch.
        task._spans  # noqa: B018
        return task

    @cached_property
    def _spans(self) -> tuple[Span, Span]:
        stores = [TokenStore(store_folder(key)) for key in self.prepared().stores]
        spans = (
            stores[0].split(self.validation_share) if self.validation is None else tuple(one.whole() for one in stores)
        )
        found = len(spans[0].tokens)
        if found < self.context + 1:
            raise ValueError(
                f"{', '.join(self.data)}: {found:,} tokens to train on, too short for a context of {self.context} and the token "
                "after it; give more text or a smaller context"
            )
        if not len(spans[1].tokens):
            raise ValueError(f"{', '.join(self.data)}: its end has no token to validate on; give --validation FILE")
        return spans[0], spans[1]

    @property
    def training(self) -> Span:
        """The text to train on."""
        return self._spans[0]

    @property
    def validating(self) -> Span:
        """The text to validate on, none of which is trained on."""
        return self._spans[1]

    @property
    def num_windows(self) -> int:
        """Windows in an epoch, W."""
        return max(1, len(self.training.tokens) // self.context - 1)

    def sample(self, batch: int, seed: int, index: int) -> Batch:
        """Windows index, ..., index + batch - 1 of a seed, one a row: (batch, context) tensors, a target everywhere.

        ValueError for a batch under 1, a negative index and a seed outside [0, 2^64).
        """
        if batch < 1 or index < 0:
            raise ValueError(f"{batch} items from {index}: at least 1 item wanted, numbered from 0")
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed {seed}: an integer in [0, 2^64) wanted")
        windows = np.stack([self._window(seed, item) for item in range(index, index + batch)])
        rows = torch.from_numpy(windows.astype(np.int64))
        inputs, targets = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
        return Batch(inputs, targets, torch.zeros_like(inputs))

    def _window(self, seed: int, item: int) -> np.ndarray:
        text, num_windows = self.training.tokens, self.num_windows
        epoch, place = divmod(item, num_windows)
        # One word for the offset, one for each round of the permutation.
        words = np.random.Philox(key=[seed, epoch], counter=[0, 0, 0, 2]).random_raw(ROUNDS + 1).tolist()
        offset = words[0] * min(self.context, len(text) - num_windows * self.context) >> 64
        start = offset + permuted(place, num_windows, words[1:]) * self.context
        return np.asarray(text[start : start + self.context + 1])

    def accuracy(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """(B,) float64 in [0, 1]: the share of next tokens in each row that are predicted right."""
        counted = targets != IGNORE
        return ((predictions == targets) & counted).sum(1).double() / counted.sum(1)

    def encode(self, text: str) -> Tensor:
        """The tokens (S,) int64 of a text; ValueError where it is empty, or holds what is no character.

        >>> Text(("any.txt",)).encode("hello")
        tensor([104, 101, 108, 108, 111])
        """
        try:
            data = text.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{text!r:.60} is not valid UTF-8; give text in UTF-8") from None
        ids = self.tokens.encode([data])[0]
        if not len(ids):
            raise ValueError("an empty text: give at least one character")
        return torch.from_numpy(ids.astype(np.int64))

    def decode(self, ids: Tensor) -> str:
        """Tokens (S,) as text; IGNORE is left out."""
        return self.tokens.decode([id for id in ids.tolist() if id != IGNORE])


def permuted(place: int, size: int, keys: list[int]) -> int:
    """Return where a keyed permutation of 0, ..., size - 1 sends `place`, without holding any of it.

    A Feistel network on the smallest even number of bits that is enough, gone through again until it lands inside.

    >>> sorted(permuted(place, 10, [3, 1, 4, 1, 5, 9]) for place in range(10)) == list(range(10))
    True
    """
    half = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    while True:
        left, right = place >> half, place & mask
        for key in keys:
            left, right = right, left ^ (_mixed(right ^ key) & mask)
        place = left << half | right
        if place < size:
            return place


def _mixed(word: int) -> int:
    """64 bits that each depend on all bits of the word (the finaliser of SplitMix64)."""
    word &= 2**64 - 1
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
    word = (word ^ word >> 27) * 0x94D049BB133111EB & (2**64 - 1)
    return word ^ word >> 31
