"""Short tests of memory: associative recall, selective copying, induction heads, flip-flop.

    recall     <BOS> key value key value... <SEP> key value <EOS> key value <EOS>...
    selective  <BOS> letters among dots <SEP> letters <EOS>
    induction  <BOS> letters, one after "!" <SEP> ! letter <EOS>
    flip-flop  <BOS> write 1 ignore 0 read 1... read bit <EOS>

Sources: Arora et al. 2023, arXiv 2312.04927 (recall); Gu and Dao 2023, arXiv 2312.00752, section 4.1 (selective
copying, induction heads); Liu et al. 2023, arXiv 2306.00946 (flip-flop).
"""

from dataclasses import dataclass
from typing import ClassVar

from relnet.tasks.draws import MOST_BELOW, Stream
from relnet.tasks.letters import NUM_LETTERS, LetterTask, Part


@dataclass(frozen=True)
class AssociativeRecall(LetterTask):
    """Say the values of keys: several questions about one list; length counts its pairs.

    key, value: letters of each; no key stands twice. queries: questions, about different keys (all of them where there
    are fewer); the exam asks the last one, after the others with their right answers.
    ValueError as in `LetterTask`, for any of these under 1, and for more pairs than there are keys (26^key).

    >>> AssociativeRecall(length=2, key=1).show()
     0 <BOS>
     0 a
     0 r
     0 v
     0 z
     0 <SEP>
     0 a     r
     0 r     <EOS>
     0 <EOS>
     0 v     z
     0 z     <EOS>
    """

    key: int = 2
    value: int = 1
    queries: int = 4

    def __post_init__(self) -> None:
        for name in ("key", "value", "queries"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: at least 1 wanted")
        super().__post_init__()

    @property
    def kind(self) -> str:
        """recall, with what is not at its default, e.g. "recall-key-3-queries-1"."""
        return f"recall{self.changed('key', 'value', 'queries')}"

    @property
    def longest(self) -> int:
        """As many pairs as there are keys."""
        return NUM_LETTERS**self.key

    def size(self, length: int) -> int:
        """<BOS>, the pairs, <SEP>, and for each question key, value and <EOS>."""
        pair = self.key + self.value
        return 2 + length * pair + min(self.queries, length) * (pair + 1)

    def draw(self, stream: Stream, length: int) -> list[Part]:
        """Distinct keys, uniform values, distinct questions."""
        keys = self._keys(stream, length)
        values = [self.letters(stream, self.value) for _ in keys]
        asked = stream.distinct(length, min(self.queries, length)).tolist()
        pairs = [token for key, value in zip(keys, values, strict=True) for token in (*key, *value)]
        parts: list[Part] = [(keys[number], values[number]) for number in asked]
        parts[0] = ([self.BOS, *pairs, self.SEP, *parts[0][0]], parts[0][1])
        return parts

    def _keys(self, stream: Stream, num: int) -> list[tuple[int, ...]]:
        if self.longest <= NUM_LETTERS**2:
            return [self._spell(number) for number in stream.distinct(self.longest, num).tolist()]
        # Too many keys to shuffle: draw until there are enough different ones.
        found: dict[tuple[int, ...], None] = {}
        while len(found) < num:
            found[self._key(stream)] = None
        return list(found)

    def _key(self, stream: Stream) -> tuple[int, ...]:
        if self.longest > MOST_BELOW:
            return tuple(self.letters(stream, self.key))
        return self._spell(int(stream.below(self.longest, 1)[0]))

    def _spell(self, number: int) -> tuple[int, ...]:
        return tuple(self.FIRST_LETTER + number // NUM_LETTERS**place % NUM_LETTERS for place in range(self.key))


@dataclass(frozen=True)
class SelectiveCopying(LetterTask):
    """Say again the letters that stand scattered among dots; length counts letters and dots.

    num_letters: letters to say (as many as there is room for in a shorter example). ValueError for fewer than 1.

    >>> SelectiveCopying(length=4, num_letters=2).show()
     0 <BOS>
     0 n
     0 .
     0 h
     0 .
     0 <SEP> n
     0 n     h
     0 h     <EOS>
    """

    num_letters: int = 8

    EXTRA: ClassVar[tuple[str, ...]] = (".",)

    def __post_init__(self) -> None:
        if self.num_letters < 1:
            raise ValueError(f"num_letters {self.num_letters}: at least 1 wanted")
        super().__post_init__()

    @property
    def kind(self) -> str:
        """selective-copying, with another number of letters, e.g. "selective-copying-letters-2"."""
        return f"selective-copying{self.changed('num_letters')}"

    def size(self, length: int) -> int:
        """<BOS>, letters and dots, <SEP>, the letters, <EOS>."""
        return length + min(self.num_letters, length) + 3

    def draw(self, stream: Stream, length: int) -> list[Part]:
        """Uniform letters at uniform places."""
        places = sorted(stream.distinct(length, min(self.num_letters, length)).tolist())
        letters = self.letters(stream, len(places))
        string = [self.extra(".")] * length
        for place, letter in zip(places, letters, strict=True):
            string[place] = letter
        return [([self.BOS, *string, self.SEP], letters)]


@dataclass(frozen=True)
class InductionHeads(LetterTask):
    """Say the letter that stood after the one "!" of the string; length counts letters and "!".

    >>> InductionHeads(length=4).show()
     0 <BOS>
     0 a
     0 !
     0 c
     0 o
     0 <SEP>
     0 !     c
     0 c     <EOS>
    """

    EXTRA: ClassVar[tuple[str, ...]] = ("!",)

    @property
    def kind(self) -> str:
        """induction-heads."""
        return "induction-heads"

    @property
    def shortest(self) -> int:
        """The "!" and its letter."""
        return 2

    def size(self, length: int) -> int:
        """<BOS>, the string, <SEP>, "!", the letter, <EOS>."""
        return length + 5

    def draw(self, stream: Stream, length: int) -> list[Part]:
        """Uniform letters, "!" at a uniform place before the last one."""
        string = self.letters(stream, length)
        place = int(stream.below(length - 1, 1)[0])
        string[place] = self.extra("!")
        return [([self.BOS, *string, self.SEP, self.extra("!")], [string[place + 1]])]


@dataclass(frozen=True)
class FlipFlop(LetterTask):
    """Say the bit that was written last: write, ignore and read instructions; length counts those before the question.

    Each is "w", "i" or "r" and a bit; the first writes, of the others one in ten writes, one in ten reads (with the
    right bit) and the rest are to be ignored. The task that recurrent models are better at.

    >>> FlipFlop(length=3).show()
     0 <BOS>
     0 w
     0 0
     0 i
     0 0
     0 i
     0 0
     0 r     0
     0 0     <EOS>
    """

    EXTRA: ClassVar[tuple[str, ...]] = ("0", "1")

    @property
    def kind(self) -> str:
        """flip-flop."""
        return "flip-flop"

    def size(self, length: int) -> int:
        """<BOS>, two tokens an instruction, "r", the bit, <EOS>."""
        return 2 * length + 4

    def draw(self, stream: Stream, length: int) -> list[Part]:
        """Uniform bits."""
        write, ignore, read = self.encode("wir").tolist()
        bits = (self.extra("0") + stream.below(2, length)).tolist()
        string, memory = [self.BOS], bits[0]
        for place, (number, bit) in enumerate(zip(stream.below(10, length).tolist(), bits, strict=True)):
            instruction = write if place == 0 or number == 0 else read if number == 1 else ignore
            if instruction == write:
                memory = bit
            string += [instruction, memory if instruction == read else bit]
        return [([*string, read], [memory])]
