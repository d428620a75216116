"""Tasks over text, for models with a tokenizer: a prompt, the one right answer to it, and the text that ends an answer.

    text copy     text, text, first word of a third copy -> the rest of it     (words in natural or shuffled order)
    uniform copy  the same with random letters for words
    phone book    N entries, two of them again as examples, a name -> its number

Item k of a seed is drawn from a Philox stream, as in the tasks over letters (`relnet.tasks.draws`).
Source: arXiv 2402.01032 section 4 and appendix B.2.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, Protocol, get_args

from relnet.tasks.draws import Stream, streams
from relnet.tasks.letters import LETTERS

Order = Literal["natural", "shuffled"]
# 40 names each: 1,600 entries at most.
# fmt: off
FIRST_NAMES = (
    "Ada", "Alan", "Alice", "Anna", "Arthur", "Bella", "Carl", "Clara", "Daniel", "Diana",
    "Edgar", "Ella", "Emil", "Eva", "Felix", "Fiona", "George", "Grace", "Henry", "Ida",
    "Jack", "Jane", "Karl", "Kate", "Laura", "Leo", "Lucy", "Mark", "Mary", "Max",
    "Nina", "Nora", "Oscar", "Paul", "Peter", "Rosa", "Ruth", "Simon", "Sophie", "Thomas",
)
LAST_NAMES = (
    "Adams", "Baker", "Bell", "Black", "Brooks", "Brown", "Carter", "Clark", "Cole", "Cook",
    "Cooper", "Davis", "Evans", "Fisher", "Foster", "Gray", "Green", "Hall", "Harris", "Hill",
    "Hunt", "King", "Lane", "Lee", "Lewis", "Mason", "Miller", "Moore", "Nelson", "Parker",
    "Porter", "Price", "Reed", "Scott", "Shaw", "Stone", "Turner", "Walker", "White", "Young",
)
# fmt: on


@dataclass(frozen=True)
class Question:
    """A prompt and the one right answer to it, as text; an answer begins with the blank that parts it from the prompt."""

    prompt: str
    answer: str


class TextTask(Protocol):
    """A source of questions over text."""

    @property
    def name(self) -> str:
        """The task as it stands in results."""
        ...

    @property
    def stop(self) -> str:
        """The text that ends an answer; no answer holds it."""
        ...

    def questions(self, num: int, length: int, seed: int, index: int = 0) -> list[Question]:
        """Questions index, ..., index + num - 1 of this length."""
        ...


class _WordCopy:
    """A string of words twice, and the first word of a third copy."""

    stop = "\n\n"

    def words(self, stream: Stream, length: int) -> list[str]:
        raise NotImplementedError

    def questions(self, num: int, length: int, seed: int, index: int = 0) -> list[Question]:
        """Questions index, ..., index + num - 1 over strings of `length` words; ValueError for a length under 2."""
        if length < 2:
            raise ValueError(f"length {length}: at least 2 words wanted, one is given and the others are the answer")
        questions = []
        for stream in streams(num, seed, index, exam_length=length):
            first, *rest = self.words(stream, length)
            text = " ".join([first, *rest])
            questions.append(Question(f"{text}\n\n{text}\n\n{first}", " " + " ".join(rest)))
        return questions


@dataclass(frozen=True)
class TextCopy(_WordCopy):
    """Finish the third copy of a passage from its first word.

    text: where passages come from; words are what blanks part, and length counts them. order: "natural", or "shuffled":
    the passage's words in random order. ValueError for another order, and where the text has fewer words than a length.

    >>> (question,) = TextCopy("the cat sat on the mat").questions(1, length=3, seed=0)
    >>> [*question.prompt.splitlines(), question.answer]
    ['sat on the', '', 'sat on the', '', 'sat', ' on the']
    """

    text: str
    order: Order = "natural"

    def __post_init__(self) -> None:
        if self.order not in get_args(Order):
            raise ValueError(f"unknown order {self.order!r}: known ones are {', '.join(get_args(Order))}")

    @classmethod
    def read(cls, path: str | Path, order: Order = "natural") -> "TextCopy":
        """Take passages from a file; ValueError where it is missing or not UTF-8."""
        try:
            return cls(Path(path).read_text(encoding="utf-8"), order)
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is no text file to copy from ({error})") from None

    @property
    def name(self) -> str:
        """text-copy-natural or text-copy-shuffled."""
        return f"text-copy-{self.order}"

    @cached_property
    def _words(self) -> list[str]:
        return self.text.split()

    def words(self, stream: Stream, length: int) -> list[str]:
        """Neighbouring words of the text."""
        words = self._words
        if len(words) < length:
            raise ValueError(f"the text has {len(words)} words, too few for length {length}; take a longer text")
        start = int(stream.below(len(words) - length + 1, 1)[0])
        passage = words[start : start + length]
        if self.order == "natural":
            return passage
        return [passage[number] for number in stream.distinct(length, length)]


@dataclass(frozen=True)
class UniformCopy(_WordCopy):
    """Finish the third copy of a string of uniform letters, written with blanks; length counts letters.

    >>> (question,) = UniformCopy().questions(1, length=3, seed=0)
    >>> [*question.prompt.splitlines(), question.answer]
    ['s q n', '', 's q n', '', 's', ' q n']
    """

    name = "uniform-copy"

    def words(self, stream: Stream, length: int) -> list[str]:
        """Uniform letters a to z."""
        return [LETTERS[number] for number in stream.below(len(LETTERS), length)]


@dataclass(frozen=True)
class PhoneBook:
    """Say the number of a name: unique names, numbers of ten digits, two entries as examples of what is asked.

    length counts entries. ValueError for fewer than 3 (two examples and the one that is asked) and more than 1,600.

    >>> (question,) = PhoneBook().questions(1, length=3, seed=0)
    >>> [*question.prompt.splitlines()[3:], question.answer]
    ['', 'Carl Baker: 0195791619', 'Kate Lane: 5857413161', '', 'Alan Mason:', ' 8800533351']
    """

    name = "phone-book"
    stop = "\n"

    def questions(self, num: int, length: int, seed: int, index: int = 0) -> list[Question]:
        """Questions index, ..., index + num - 1 over books of `length` entries."""
        most = len(FIRST_NAMES) * len(LAST_NAMES)
        if not 3 <= length <= most:
            raise ValueError(f"length {length}: a phone book has 3 to {most} entries")
        return [self._ask(stream, length) for stream in streams(num, seed, index, exam_length=length)]

    def _ask(self, stream: Stream, length: int) -> Question:
        numbers = stream.distinct(len(FIRST_NAMES) * len(LAST_NAMES), length).tolist()
        names = [f"{FIRST_NAMES[n // len(LAST_NAMES)]} {LAST_NAMES[n % len(LAST_NAMES)]}" for n in numbers]
        phones = ["".join(map(str, stream.below(10, 10))) for _ in names]
        entries = [f"{name}: {phone}" for name, phone in zip(names, phones, strict=True)]
        one, two, asked = stream.distinct(length, 3)
        book = "\n".join(entries)
        return Question(f"{book}\n\n{entries[one]}\n{entries[two]}\n\n{names[asked]}:", f" {phones[asked]}")
