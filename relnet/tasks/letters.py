"""What the tasks over letters share: tokens, examples laid out in rows, exam items, scores.

An example is one or more parts, each something given and the answer to it; <EOS> ends every answer:

    <BOS> given answer <EOS> given answer <EOS>...

The loss is on the answers only. Two layouts, each with the scorer of its name (`relnet.tasks.scores`):

    cui2024      one example of a fixed length a row
    jelassi2024  examples of many lengths packed into a row, which see each other

Sources: arXiv 2406.16168 section 4; arXiv 2402.01032 section 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor

from relnet.tasks.draws import Stream, streams
from relnet.tasks.scores import IGNORE, Scores, cui2024, jelassi2024, score, split_answers
from relnet.tasks.task import Batch, Items

Layout = Literal["cui2024", "jelassi2024"]
NUM_LETTERS = 26
SPECIAL = ("<BOS>", "<SEP>", "<EOS>")
LETTERS = tuple(map(chr, range(ord("a"), ord("z") + 1)))
SCORERS = {"cui2024": cui2024, "jelassi2024": jelassi2024}
# What is given and the right answer to it, as tokens; <EOS> comes by itself.
Part = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True)
class LetterTask:
    """Base of the tasks over letters: tokens <BOS> = 0, <SEP> = 1, <EOS> = 2, letters a to z = 3 to 28, then a task's own.

    length: of an example; with `jelassi2024`, of the longest one. What it counts is the task's to say.
    layout: "cui2024" or "jelassi2024".
    min_length: `jelassi2024` only, length of the shortest example (default: the least the task can have); lengths are
        uniform, both ends included.
    max_context: `jelassi2024` only, tokens in a packed row (default: room for the longest example). Whole examples only:
        the first that does not fit ends the row, which makes the longest ones rarer late in a row.

    ValueError for a length or min_length that the task cannot have, a max_context too small for the longest example, an
    unknown layout, and either option with `cui2024`.
    """

    length: int = 16
    layout: Layout = "cui2024"
    min_length: int | None = None
    max_context: int | None = None

    BOS: ClassVar[int] = 0
    SEP: ClassVar[int] = 1
    EOS: ClassVar[int] = 2
    FIRST_LETTER: ClassVar[int] = len(SPECIAL)
    # Tokens of a task's own, after the letters.
    EXTRA: ClassVar[tuple[str, ...]] = ()

    @property
    def kind(self) -> str:
        """The task's name without the layout; options that change the exam's items stand in it, see `changed`."""
        raise NotImplementedError

    def draw(self, stream: Stream, length: int) -> list[Part]:
        """One example of this length."""
        raise NotImplementedError

    def size(self, length: int) -> int:
        """Tokens of an example of this length, its last <EOS> included."""
        raise NotImplementedError

    @property
    def shortest(self) -> int:
        """The least length an example can have."""
        return 1

    @property
    def longest(self) -> int | None:
        """The greatest length an example can have, None where there is no bound."""
        return None

    @property
    def trained_lengths(self) -> range:
        """The lengths of the examples of `sample`."""
        shortest = self.length if self.layout == "cui2024" else self.min_length or self.shortest
        return range(shortest, self.length + 1)

    def __post_init__(self) -> None:
        if self.layout not in get_args(Layout):
            raise ValueError(f"unknown layout {self.layout!r}: known ones are {', '.join(get_args(Layout))}")
        self.check_length(self.length)
        if self.layout == "cui2024":
            for name in ("min_length", "max_context"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name} {getattr(self, name)}: cui2024 has one example of a fixed length a row; "
                        'leave it out, or take layout="jelassi2024"'
                    )
            return
        if self.min_length is not None and not self.shortest <= self.min_length <= self.length:
            raise ValueError(f"min_length {self.min_length}: from {self.shortest} to length ({self.length}) wanted")
        needed = self.size(self.length)
        if self.max_context is not None and self.max_context < needed:
            raise ValueError(
                f"max_context {self.max_context}: an example of length {self.length} takes {needed} tokens"
            )

    def check_length(self, length: int) -> None:
        """Raise ValueError for a length that no example can have."""
        if length < self.shortest:
            raise ValueError(f"length {length}: {self.kind} has examples of length {self.shortest} and more")
        if self.longest is not None and length > self.longest:
            raise ValueError(f"length {length}: {self.kind} has examples of length {self.longest} and less")

    @property
    def name(self) -> str:
        """The task as it stands in results, e.g. "copying-cui2024"."""
        return f"{self.kind}-{self.layout}"

    @property
    def label(self) -> str:
        """The task in a run folder's name."""
        return f"{self.name}-{self.length}"

    @property
    def rows(self) -> str:
        """What a row of a batch is, in words."""
        return f"examples of length {self.length}"

    @property
    def scorer(self) -> str:
        """The scorer's name, which is the layout's."""
        return self.layout

    @property
    def vocab_size(self) -> int:
        """Three special tokens, the letters a to z, and what else the task has."""
        return self.FIRST_LETTER + NUM_LETTERS + len(self.EXTRA)

    @property
    def context(self) -> int:
        """Tokens in a row of `sample`."""
        if self.layout == "cui2024":
            return self.size(self.length) - 1
        return self.max_context or self.size(self.length)

    @property
    def eos(self) -> int:
        """The token that ends every answer."""
        return self.EOS

    def sample(self, batch: int, seed: int, index: int) -> Batch:
        """Training items index, ..., index + batch - 1 of a seed, one a row: `Batch` of (batch, context) tensors.

        ValueError for a batch under 1, a negative index and a seed outside [0, 2^64).
        """
        rows = torch.full((3, batch, self.context), self.EOS)
        rows[1], rows[2] = IGNORE, -1
        for row, stream in enumerate(streams(batch, seed, index)):
            for number, (start, tokens, targets) in enumerate(self._row(stream)):
                # cui2024 has no use for its last <EOS>, which nothing follows.
                end = min(start + len(tokens), self.context)
                rows[0, row, start:end] = torch.tensor(tokens[: end - start])
                rows[1, row, start:end] = torch.tensor(targets[: end - start])
                rows[2, row, start:end] = number
        return Batch(*rows)

    def _row(self, stream: Stream) -> list[tuple[int, list[int], list[int]]]:
        """The examples of a row: where each starts, its tokens and its targets."""
        if self.layout == "cui2024":
            return [(0, *self._lay_out(self.draw(stream, self.length)))]
        examples, start = [], 0
        lengths = self.trained_lengths
        while start < self.context:
            length = lengths[int(stream.below(len(lengths), 1)[0])]
            if start + self.size(length) > self.context:
                break
            examples.append((start, *self._lay_out(self.draw(stream, length))))
            start += self.size(length)
        return examples

    def _lay_out(self, parts: list[Part]) -> tuple[list[int], list[int]]:
        tokens, targets = [], []
        for given, answer in parts:
            tokens += [*given, *answer, self.EOS]
            targets += [*[IGNORE] * (len(given) - 1), *answer, self.EOS, IGNORE]
        return tokens, targets

    def items(self, num: int, length: int, seed: int, index: int = 0) -> Items:
        """Exam items index, ..., index + num - 1 of a seed: what comes before the last answer, and that answer.

        Any length that the task can have is allowed, the trained one or not; the stream never meets `sample`'s.
        ValueError as in `sample`, and for such a length.
        """
        self.check_length(length)
        prompts, answers = [], []
        for stream in streams(num, seed, index, exam_length=length):
            *before, (given, answer) = self.draw(stream, length)
            prompts.append([*self._lay_out(before)[0], *given])
            answers.append([*answer, self.EOS])
        return Items(torch.tensor(prompts), torch.tensor(answers))

    def changed(self, *options: str) -> str:
        """Those of the options that are not at their default, as they end `kind`, e.g. "-key-3-queries-1"."""
        default = {field.name: field.default for field in fields(self)}
        values = [(option.removeprefix("num_"), getattr(self, option), default[option]) for option in options]
        return "".join(f"-{name}-{value}" for name, value, usual in values if value != usual)

    def question(self, text: str) -> Items:
        """The exam item that a string of the user's poses: for copying only, ValueError elsewhere."""
        raise ValueError(f"{self.kind} poses no question over the string {text!r}; only copying does")

    def letters(self, stream: Stream, num: int) -> list[int]:
        """Uniform letters, as tokens."""
        return (self.FIRST_LETTER + stream.below(NUM_LETTERS, num)).tolist()

    def extra(self, symbol: str) -> int:
        """The token of one of the task's own symbols."""
        return self.FIRST_LETTER + NUM_LETTERS + self.EXTRA.index(symbol)

    def encode(self, text: str) -> Tensor:
        """The tokens (S,) int64 of a string; ValueError where it is empty or holds other characters than a to z."""
        strange = sorted({character for character in text if not "a" <= character <= "z"})
        if strange:
            raise ValueError(f"{text!r} holds {', '.join(map(repr, strange))}: only the letters a to z can be copied")
        if not text:
            raise ValueError("an empty string cannot be copied: give at least one letter from a to z")
        return torch.tensor([ord(character) - ord("a") + self.FIRST_LETTER for character in text])

    def decode(self, ids: Tensor) -> str:
        """Tokens (S,) as text, special ones by name; IGNORE is left out, an id outside the vocabulary shown as such."""
        names = SPECIAL + LETTERS + self.EXTRA
        known = range(len(names))
        return "".join(names[id] if id in known else f"<{id}>" for id in ids.tolist() if id != IGNORE)

    def show(self, index: int = 0, seed: int = 0) -> None:
        """Print a training item, a token and its target a line, with the number of the example it belongs to."""
        batch = self.sample(1, seed, index)
        for token, target, segment in zip(batch.inputs[0], batch.targets[0], batch.segments[0], strict=True):
            print(f"{segment:2} {self.decode(token[None]):6}{self.decode(target[None])}".rstrip())

    def grade(self, scores: Scores) -> Tensor:
        """(N,) float64 in [0, 1]: `cui2024` or `jelassi2024` of each answer, by the layout's name."""
        return SCORERS[self.layout](scores)

    def accuracy(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """(B,) float64 in [0, 1]: the layout's score of each row, the mean over its answers where it has several.

        predictions, targets: (B, S) int64. ValueError for other shapes and for a row without an answer.
        """
        predictions, answers, rows = split_answers(predictions, targets, self.EOS)
        grades = self.grade(score(predictions, answers, self.EOS))
        return torch.zeros(len(targets), dtype=torch.float64, device=grades.device).index_add(
            0, rows, grades
        ) / torch.bincount(rows, minlength=len(targets))
