"""Copying strings that repeat no n-gram, but many shorter ones: short strings that need the keys which long ones need.

    <BOS> string <SEP> string <EOS>

Who copies by looking up the last k letters is wrong where a k-gram stands twice. Among uniform strings of 20 letters 1 in 100 repeats
a 3-gram, so they ask for no more than 3 letters; among those of 200 letters 2 in 3 do. Here most short strings do as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from relnet.tasks.copying import Copying
from relnet.tasks.draws import Stream
from relnet.tasks.letters import NUM_LETTERS, Part
from relnet.tasks.scores import IGNORE

# How often an (n-1)-gram of a training string is written over another place, of the string and of the letters before it.
MOST_PLANTED = 3
# How often all letters before a string are drawn anew for the n-gram that they share with it, before single ones are.
MOST_TRIES = 32


@dataclass(frozen=True)
class UnrepeatedCopying(Copying):
    """Copy a string that repeats no n-gram. Training strings repeat shorter ones on purpose; exam strings are as uniform as can be.

    A training string is over a few letters of its own, or has (n-1)-grams written over other places; an exam string is over all 26
    letters. In both, a letter that would repeat an n-gram is drawn anew among those that do not. A row holds one example, in either
    layout: another one might repeat what this one must not.

    ngram: what no string repeats. alphabets: how many letters a training string may have, each as likely as the next; those with fewer
    n-grams than twice its length are left out. openings: the share of training rows that end with the first letter of the answer, which
    is one letter of many in the other rows and the only one that no letter before it tells. before: how many letters, at most, a training
    row has before its <BOS>, which belong to nothing and share (n-1)-grams with the string, but no n-gram: it is found among more tokens
    than it has.
    ValueError for an ngram under 2, openings that are no share, before under 0, and for alphabets out of 1 to 26 or all too small.

    >>> UnrepeatedCopying(length=6, ngram=2, alphabets=(4,)).show()
     0 <BOS>
     0 a
     0 s
     0 a
     0 t
     0 a
     0 a
     0 <SEP> a
     0 a     s
     0 s     a
     0 a     t
     0 t     a
     0 a     a
     0 a     <EOS>
    """

    ngram: int = 4
    alphabets: tuple[int, ...] = (3, 4, 6, 10, NUM_LETTERS)
    openings: float = 0.0
    before: int = 0

    def __post_init__(self) -> None:
        if self.ngram < 2:
            raise ValueError(f"ngram {self.ngram}: at least 2 letters wanted")
        if not 0 <= self.openings <= 1:
            raise ValueError(f"openings {self.openings}: a share from 0 to 1 wanted")
        if self.before < 0:
            raise ValueError(f"before {self.before}: 0 letters or more wanted")
        strange = [size for size in self.alphabets if not 1 <= size <= NUM_LETTERS]
        if strange:
            raise ValueError(
                f"alphabets {self.alphabets}: {strange[0]} is no number of letters from 1 to {NUM_LETTERS}"
            )
        super().__post_init__()
        if not self._large_enough(self.length):
            raise ValueError(
                f"alphabets {self.alphabets}: too few letters for strings of {self.length} without a repeated "
                f"{self.ngram}-gram; give more letters or a larger ngram"
            )

    @property
    def kind(self) -> str:
        """unrepeated-copying, with the letters of what is not repeated."""
        return f"unrepeated-copying-{self.ngram}"

    @property
    def longest(self) -> int:
        """Up to here half of all n-grams are left over, and a string is soon found."""
        return NUM_LETTERS**self.ngram // 2

    @property
    def context(self) -> int:
        """Tokens in a row of `sample`, each answer's included."""
        return super().context + self.before

    def draw(self, stream: Stream, length: int) -> list[Part]:
        """An exam string."""
        return self._pose(self._without_repeat(stream, self.letters(stream, length), range(NUM_LETTERS)))

    def _row(self, stream: Stream) -> list[tuple[int, list[int], list[int]]]:
        lengths = self.trained_lengths
        length = lengths[int(stream.below(len(lengths), 1)[0])]
        string = self._training_string(stream, length)
        ((question, answer),) = self._pose(string)
        given = [*self._letters_before(stream, string), *question]
        if self.openings and int(stream.below(2**16, 1)[0]) < self.openings * 2**16:
            return [(0, given, [*[IGNORE] * (len(given) - 1), answer[0]])]
        return [(0, *self._lay_out([(given, answer)]))]

    def _letters_before(self, stream: Stream, string: list[int]) -> list[int]:
        if not self.before:
            return []
        num = int(stream.below(self.before + 1, 1)[0])
        held, letters = self._ngrams(string), []
        for _ in range(MOST_TRIES):
            letters = self._planted(stream, self.letters(stream, num), string)
            if not held & self._ngrams(letters):
                return letters
        return self._without(stream, letters, held)

    def _without(self, stream: Stream, letters: list[int], held: set[tuple[int, ...]]) -> list[int]:
        """The letters with each that would end an n-gram of `held` drawn anew; cut off where no letter is left."""
        for end in range(self.ngram, len(letters) + 1):
            if not self._mend(stream, letters, end, held, range(NUM_LETTERS)):
                return letters[: end - 1]
        return letters

    def _mend(
        self,
        stream: Stream,
        string: list[int],
        end: int,
        taken: set[tuple[int, ...]],
        alphabet: Sequence[int],
    ) -> bool:
        """Draw the letter before `end` anew if it ends an n-gram of `taken`; False where no letter is left."""
        start = tuple(string[end - self.ngram : end - 1])
        if (*start, string[end - 1]) not in taken:
            return True
        free = [self.FIRST_LETTER + one for one in alphabet if (*start, self.FIRST_LETTER + one) not in taken]
        if free:
            string[end - 1] = free[int(stream.below(len(free), 1)[0])]
        return bool(free)

    def _planted(self, stream: Stream, letters: list[int], string: list[int]) -> list[int]:
        """Letters with up to MOST_PLANTED (n-1)-grams of a string written over some of them."""
        size = self.ngram - 1
        if min(len(letters), len(string)) > size:
            for _ in range(int(stream.below(MOST_PLANTED + 1, 1)[0])):
                first = int(stream.below(len(string) - size + 1, 1)[0])
                place = int(stream.below(len(letters) - size + 1, 1)[0])
                letters[place : place + size] = string[first : first + size]
        return letters

    def _ngrams(self, string: list[int]) -> set[tuple[int, ...]]:
        return {tuple(string[i : i + self.ngram]) for i in range(len(string) - self.ngram + 1)}

    def accuracy(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """(B,) float64 in [0, 1]: as of other tasks; of a row that asks for the first letter only, whether that is right."""
        found = ((predictions == targets) | (targets == IGNORE)).all(1).double()
        whole = (targets == self.EOS).any(1)
        if bool(whole.any()):
            found[whole] = super().accuracy(predictions[whole], targets[whole])
        return found

    def _training_string(self, stream: Stream, length: int) -> list[int]:
        sizes = self._large_enough(length)
        alphabet = stream.distinct(NUM_LETTERS, sizes[int(stream.below(len(sizes), 1)[0])]).tolist()
        string = [self.FIRST_LETTER + alphabet[index] for index in stream.below(len(alphabet), length).tolist()]
        return self._without_repeat(stream, self._planted(stream, string, string), alphabet)

    def _without_repeat(self, stream: Stream, string: list[int], alphabet: Sequence[int]) -> list[int]:
        """The string with each letter that would repeat an n-gram drawn anew; all of it, where no letter is left."""
        seen: set[tuple[int, ...]] = set()
        for end in range(self.ngram, len(string) + 1):
            if not self._mend(stream, string, end, seen, alphabet):
                again = [self.FIRST_LETTER + alphabet[n] for n in stream.below(len(alphabet), len(string)).tolist()]
                return self._without_repeat(stream, again, alphabet)
            seen.add(tuple(string[end - self.ngram : end]))
        return string

    def _large_enough(self, length: int) -> list[int]:
        return [size for size in self.alphabets if size**self.ngram >= 2 * length]
