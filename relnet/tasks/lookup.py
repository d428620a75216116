"""Tasks over n-grams: say what followed one, and copy a string in which one stands twice.

    prefix lookup      <BOS> n-gram <SEP> string <SEP> answer <EOS>
    suffix lookup      <BOS> string <SEP> n-gram answer <EOS>
    duplicated n-gram  <BOS> string <SEP> string <EOS>

A query is drawn from the n-grams that stand once in the string, so there is one right answer; the published tasks draw
it from all of them. Source: arXiv 2402.01032 section 3 and appendix B.2.
"""

from dataclasses import dataclass

from relnet.tasks.copying import Copying
from relnet.tasks.draws import Stream
from relnet.tasks.letters import NUM_LETTERS, LetterTask, Part


@dataclass(frozen=True)
class _Lookup(LetterTask):
    """Base of both lookups; length counts the string's letters.

    ngram: letters in the query. answer: letters to say, those that follow the query in the string.
    ValueError as in `LetterTask`, for either under 1, and where a string so long hardly has a unique n-gram.
    """

    ngram: int = 3
    answer: int = 5

    def __post_init__(self) -> None:
        for name in ("ngram", "answer"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)}: at least 1 letter wanted")
        super().__post_init__()

    @property
    def shortest(self) -> int:
        """Room for a query and an answer."""
        return self.ngram + self.answer

    @property
    def longest(self) -> int:
        """Up to here one n-gram in e^4 or more is unique, and drawing again until there is one soon ends."""
        return self.shortest + 4 * NUM_LETTERS**self.ngram

    def look_up(self, stream: Stream, length: int) -> tuple[list[int], list[int], list[int]]:
        """A string, a query and the answer."""
        while True:
            string = self.letters(stream, length)
            ngrams = [tuple(string[i : i + self.ngram]) for i in range(length - self.ngram + 1)]
            count: dict[tuple[int, ...], int] = {}
            for ngram in ngrams:
                count[ngram] = count.get(ngram, 0) + 1
            places = [i for i in range(length - self.shortest + 1) if count[ngrams[i]] == 1]
            if places:
                start = places[int(stream.below(len(places), 1)[0])] + self.ngram
                return string, string[start - self.ngram : start], string[start : start + self.answer]


@dataclass(frozen=True)
class PrefixLookup(_Lookup):
    """Say what followed an n-gram that is named before the string.

    >>> PrefixLookup(length=6, ngram=2, answer=2).show()
     0 <BOS>
     0 c
     0 o
     0 <SEP>
     0 a
     0 g
     0 c
     0 o
     0 n
     0 h
     0 <SEP> n
     0 n     h
     0 h     <EOS>
    """

    @property
    def kind(self) -> str:
        """prefix-lookup, with the letters of the query, e.g. "prefix-lookup-3", and another answer's, "prefix-lookup-3-answer-1"."""
        return f"prefix-lookup-{self.ngram}{self.changed('answer')}"

    def size(self, length: int) -> int:
        """<BOS>, the query, <SEP>, the string, <SEP>, the answer, <EOS>."""
        return self.ngram + length + self.answer + 4

    def draw(self, stream: Stream, length: int) -> list[Part]:
        """The query before the string."""
        string, query, answer = self.look_up(stream, length)
        return [([self.BOS, *query, self.SEP, *string, self.SEP], answer)]


@dataclass(frozen=True)
class SuffixLookup(_Lookup):
    """Say what followed an n-gram that is named after the string.

    >>> SuffixLookup(length=6, ngram=2, answer=2).show()
     0 <BOS>
     0 a
     0 g
     0 c
     0 o
     0 n
     0 h
     0 <SEP>
     0 c
     0 o     n
     0 n     h
     0 h     <EOS>
    """

    @property
    def kind(self) -> str:
        """suffix-lookup, with the letters of the query, e.g. "suffix-lookup-3", and another answer's, "suffix-lookup-3-answer-1"."""
        return f"suffix-lookup-{self.ngram}{self.changed('answer')}"

    def size(self, length: int) -> int:
        """<BOS>, the string, <SEP>, the query, the answer, <EOS>."""
        return self.ngram + length + self.answer + 3

    def draw(self, stream: Stream, length: int) -> list[Part]:
        """The query after the string."""
        string, query, answer = self.look_up(stream, length)
        return [([self.BOS, *string, self.SEP, *query], answer)]


@dataclass(frozen=True)
class DuplicatedNgram(Copying):
    """Copy a string in which an n-gram stands at two places that do not overlap, with another letter after each.

    ngram: letters that stand twice. What the two are followed by differs (the end of the string counts as another
    letter), so whoever goes by the last `ngram` letters alone has to guess. ValueError for ngram under 1.

    >>> DuplicatedNgram(length=5, ngram=2).show()
     0 <BOS>
     0 o
     0 n
     0 h
     0 o
     0 n
     0 <SEP> o
     0 o     n
     0 n     h
     0 h     o
     0 o     n
     0 n     <EOS>
    """

    ngram: int = 4

    def __post_init__(self) -> None:
        if self.ngram < 1:
            raise ValueError(f"ngram {self.ngram}: at least 1 letter wanted")
        super().__post_init__()

    @property
    def kind(self) -> str:
        """duplicated-ngram, with its letters."""
        return f"duplicated-ngram-{self.ngram}"

    @property
    def shortest(self) -> int:
        """Room for the n-gram twice."""
        return 2 * self.ngram

    def draw(self, stream: Stream, length: int) -> list[Part]:
        """Uniform letters, an n-gram of them written over another one."""
        n, room = self.ngram, length - 2 * self.ngram
        # Two places that do not overlap, each pair equally likely: two different ones of room + 2, the second moved by n - 1.
        first, second = sorted(stream.distinct(room + 2, 2).tolist())
        second += n - 1
        string = self.letters(stream, length)
        string[second : second + n] = string[first : first + n]
        after = second + n
        if after < length and string[after] == string[first + n]:
            others = 1 + int(stream.below(NUM_LETTERS - 1, 1)[0])
            string[after] = self.FIRST_LETTER + (string[after] - self.FIRST_LETTER + others) % NUM_LETTERS
        return self._pose(string)
