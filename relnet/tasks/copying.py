"""Copying: say a string of random letters again.

Two layouts, each with the scorer of its name (`relnet.tasks.scores`):

    cui2024      <BOS> string <SEP> string               one string of a fixed length a row
    jelassi2024  <BOS> string <SEP> string <EOS> <BOS>...  strings of many lengths packed into a row

Letters are uniform and every item is fresh: item k of a seed is drawn from a Philox generator whose key is (seed, k),
so it is the same in any batch, order and process. Only Philox's raw 64-bit words are used, which no version of NumPy
changes. Training words have counter (., ., 0, 0), exam words (., ., length, 1): the streams cannot meet.

Sources: arXiv 2406.16168 section 4; arXiv 2402.01032 section 3.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from relnet.tasks.scores import IGNORE, Scores, cui2024, jelassi2024, score, split_answers
from relnet.tasks.task import Batch, Items

Layout = Literal["cui2024", "jelassi2024"]
NUM_LETTERS = 26
SPECIAL = ("<BOS>", "<SEP>", "<EOS>")
SCORERS = {"cui2024": cui2024, "jelassi2024": jelassi2024}


@dataclass(frozen=True)
class Copying:
    """The copying task: tokens <BOS> = 0, <SEP> = 1, <EOS> = 2, letters a to z = 3 to 28.

    length: letters in a string; with `jelassi2024`, in the longest one.
    layout: "cui2024" or "jelassi2024".
    min_length: `jelassi2024` only, letters in the shortest string (default 1); lengths are uniform, both ends included.
    max_context: `jelassi2024` only, tokens in a packed row (default 2 length + 3, room for the longest example). Whole
        examples only: the first that does not fit ends the row, which makes the longest ones rarer late in a row.

    ValueError for a length under 1, min_length over length, a max_context too small for the longest example, an unknown
    layout, and either option with `cui2024`.

    With `cui2024` the loss is on the second string and <EOS>:

    >>> task = Copying(length=3)
    >>> batch = task.sample(batch=1, seed=0, index=0)
    >>> for token, target in zip(batch.inputs[0], batch.targets[0], strict=True):
    ...     print(f"{task.decode(token[None]):6}{task.decode(target[None])}".rstrip())
    <BOS>
    a
    g
    c
    <SEP> a
    a     g
    g     c
    c     <EOS>

    With `jelassi2024` it is on the answers only; the examples of a row see each other:

    >>> task = Copying(length=2, layout="jelassi2024", max_context=13)
    >>> batch = task.sample(batch=1, seed=0, index=2)
    >>> for token, target, segment in zip(batch.inputs[0], batch.targets[0], batch.segments[0], strict=True):
    ...     print(f"{segment:2} {task.decode(token[None]):6}{task.decode(target[None])}".rstrip())
     0 <BOS>
     0 l
     0 h
     0 <SEP> l
     0 l     h
     0 h     <EOS>
     0 <EOS>
     1 <BOS>
     1 v
     1 <SEP> v
     1 v     <EOS>
     1 <EOS>
    -1 <EOS>
    """

    length: int = 16
    layout: Layout = "cui2024"
    min_length: int | None = None
    max_context: int | None = None

    BOS: ClassVar[int] = 0
    SEP: ClassVar[int] = 1
    EOS: ClassVar[int] = 2
    FIRST_LETTER: ClassVar[int] = len(SPECIAL)

    def __post_init__(self):
        if self.layout not in get_args(Layout):
            raise ValueError(f"unknown layout {self.layout!r}: known ones are {', '.join(get_args(Layout))}")
        if self.length < 1:
            raise ValueError(f"length {self.length}: a string has at least 1 letter")
        if self.layout == "cui2024":
            for name in ("min_length", "max_context"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name} {getattr(self, name)}: cui2024 has one string of a fixed length a row; "
                        'leave it out, or take layout="jelassi2024"'
                    )
            return
        if self.min_length is not None and not 1 <= self.min_length <= self.length:
            raise ValueError(f"min_length {self.min_length}: from 1 to length ({self.length}) wanted")
        if self.max_context is not None and self.max_context < 2 * self.length + 3:
            needed = 2 * self.length + 3
            raise ValueError(
                f"max_context {self.max_context}: an example of {self.length} letters takes {needed} tokens"
            )

    @property
    def name(self) -> str:
        """The task as it stands in results: "copying-cui2024" or "copying-jelassi2024"."""
        return f"copying-{self.layout}"

    @property
    def label(self) -> str:
        """The task in a run folder's name."""
        return f"{self.name}-{self.length}"

    @property
    def rows(self) -> str:
        """What a row of a batch is, in words."""
        return f"strings of {self.length}"

    @property
    def scorer(self) -> str:
        """The scorer's name, which is the layout's."""
        return self.layout

    @property
    def vocab_size(self) -> int:
        """29: three special tokens and the letters a to z."""
        return self.FIRST_LETTER + NUM_LETTERS

    @property
    def context(self) -> int:
        """Tokens in a row of `sample`: 2 (length + 1), or the packing context."""
        if self.layout == "cui2024":
            return 2 * (self.length + 1)
        return self.max_context or 2 * self.length + 3

    @property
    def eos(self) -> int:
        """The token that ends every answer."""
        return self.EOS

    def sample(self, batch: int, seed: int, index: int) -> Batch:
        """Training items index, ..., index + batch - 1 of a seed, one a row: `Batch` of (batch, context) tensors.

        ValueError for a batch under 1, a negative index and a seed outside [0, 2^64).

        >>> task = Copying(length=5)
        >>> whole, last = task.sample(4, seed=1, index=0), task.sample(1, seed=1, index=3)
        >>> torch.equal(whole.inputs[3:], last.inputs)
        True
        """
        pack = self._fixed if self.layout == "cui2024" else self._packed
        return pack(batch, seed, index)

    def _fixed(self, batch: int, seed: int, index: int) -> Batch:
        letters = self._letters(_words(batch, self.length, seed, index))
        inputs = torch.cat([_column(self.BOS, batch), letters, _column(self.SEP, batch), letters], dim=1)
        targets = torch.full_like(inputs, IGNORE)
        targets[:, self.length + 1 :] = torch.cat([letters, _column(self.EOS, batch)], dim=1)
        return Batch(inputs, targets, torch.zeros_like(inputs))

    def _packed(self, batch: int, seed: int, index: int) -> Batch:
        # An example that starts at token t of a row takes its length from word t, its letters from the words after it.
        words = _words(batch, self.context, seed, index)
        shortest = self.min_length or 1
        lengths = shortest + _uniform(words, self.length - shortest + 1)
        letters = self._letters(words)
        inputs = torch.full((batch, self.context), self.EOS)
        targets = torch.full_like(inputs, IGNORE)
        segments = torch.full_like(inputs, -1)
        for row in range(batch):
            start = segment = 0
            while start < self.context:
                length = int(lengths[row, start])
                end = start + 2 * length + 3
                if end > self.context:
                    break
                string = letters[row, start + 1 : start + 1 + length]
                separator = start + length + 1
                inputs[row, start] = self.BOS
                inputs[row, start + 1 : separator] = string
                inputs[row, separator] = self.SEP
                inputs[row, separator + 1 : end - 1] = string
                targets[row, separator : end - 2] = string
                targets[row, end - 2] = self.EOS
                segments[row, start:end] = segment
                start, segment = end, segment + 1
        return Batch(inputs, targets, segments)

    def items(self, num: int, length: int, seed: int, index: int = 0) -> Items:
        """Exam items index, ..., index + num - 1 of a seed: prompts `<BOS> string <SEP>`, answers `string <EOS>`.

        Any length of at least 1 is allowed, the trained one or not; the stream never meets `sample`'s. ValueError as in
        `sample`, and for a length under 1.

        >>> task = Copying(length=5)
        >>> items = task.items(num=1, length=3, seed=0)
        >>> print(task.decode(items.prompts[0]), task.decode(items.answers[0]))
        <BOS>sqn<SEP> sqn<EOS>
        """
        if length < 1:
            raise ValueError(f"length {length}: a string has at least 1 letter")
        return self._pose(self._letters(_words(num, length, seed, index, exam_length=length)))

    def question(self, text: str) -> Items:
        """The exam item that a string of the user's poses; ValueError where it is empty or holds other than a to z."""
        return self._pose(self.encode(text)[None])

    def _pose(self, letters: Tensor) -> Items:
        num = len(letters)
        prompts = torch.cat([_column(self.BOS, num), letters, _column(self.SEP, num)], dim=1)
        return Items(prompts, torch.cat([letters, _column(self.EOS, num)], dim=1))

    def encode(self, text: str) -> Tensor:
        """The tokens (S,) int64 of a string; ValueError where it is empty or holds other characters than a to z.

        >>> Copying().encode("hello")
        tensor([10,  7, 14, 14, 17])
        """
        strange = sorted({character for character in text if not "a" <= character <= "z"})
        if strange:
            raise ValueError(f"{text!r} holds {', '.join(map(repr, strange))}: only the letters a to z can be copied")
        if not text:
            raise ValueError("an empty string cannot be copied: give at least one letter from a to z")
        return torch.tensor([ord(character) - ord("a") + self.FIRST_LETTER for character in text])

    def decode(self, ids: Tensor) -> str:
        """Tokens (S,) as text, special ones by name; IGNORE is left out, an id outside the vocabulary shown as such.

        >>> Copying().decode(torch.tensor([0, 10, 7, 31, 2, -1]))
        '<BOS>he<31><EOS>'
        """
        names = SPECIAL + tuple(map(chr, range(ord("a"), ord("z") + 1)))
        known = range(len(names))
        return "".join(names[id] if id in known else f"<{id}>" for id in ids.tolist() if id != IGNORE)

    def grade(self, scores: Scores) -> Tensor:
        """(N,) float64 in [0, 1]: `cui2024` or `jelassi2024` of each answer, by the layout's name."""
        return SCORERS[self.layout](scores)

    def accuracy(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """(B,) float64 in [0, 1]: the layout's score of each row, the mean over its answers where it is packed.

        predictions, targets: (B, S) int64. ValueError for other shapes and for a row without an answer.

        >>> task = Copying(length=5)
        >>> targets = task.sample(2, seed=0, index=0).targets
        >>> task.accuracy(targets, targets)
        tensor([1., 1.], dtype=torch.float64)
        """
        predictions, answers, rows = split_answers(predictions, targets, self.EOS)
        grades = self.grade(score(predictions, answers, self.EOS))
        return torch.zeros(len(targets), dtype=torch.float64, device=grades.device).index_add(
            0, rows, grades
        ) / torch.bincount(rows, minlength=len(targets))

    def _letters(self, words: np.ndarray) -> Tensor:
        return torch.from_numpy(self.FIRST_LETTER + _uniform(words, NUM_LETTERS))


def _column(token: int, num: int) -> Tensor:
    return torch.full((num, 1), token)


def _uniform(words: np.ndarray, n: int) -> np.ndarray:
    """Random 64-bit words as integers in [0, n), int64; the bias is below n / 2^32."""
    return ((words >> np.uint64(32)) * np.uint64(n) >> np.uint64(32)).astype(np.int64)


def _words(num: int, words: int, seed: int, index: int, exam_length: int | None = None) -> np.ndarray:
    """(num, words) uint64: row k is the start of the stream of item index + k, of training or of the exam."""
    if num < 1:
        raise ValueError(f"{num} items: at least 1 wanted")
    if index < 0:
        raise ValueError(f"index {index}: items are numbered from 0")
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed {seed}: an integer in [0, 2^64) wanted")
    counter = [0, 0, 0, 0] if exam_length is None else [0, 0, exam_length, 1]
    generator = np.random.Philox(key=0)
    # One generator set anew for each item: making one takes ten times as long.
    state = generator.state
    state["state"]["counter"] = np.array(counter, dtype=np.uint64)
    drawn = np.empty((num, words), dtype=np.uint64)
    for row in range(num):
        state["state"]["key"] = np.array([seed, index + row], dtype=np.uint64)
        generator.state = state
        drawn[row] = generator.random_raw(words)
    return drawn
