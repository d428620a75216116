"""Question answering over paragraphs in SQuAD's format, with its two scores, exact match and F1.

    {"data": [{"paragraphs": [{"context": str, "qas": [{"id": str, "question": str, "answers": [{"text": str, "answer_start": int}]}]}]}]}

Questions that SQuAD 2 marks as impossible are left out. Source: Rajpurkar et al. 2016, arXiv 1606.05250, section 6.1.
"""

import json
import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What SQuAD's scores do not look at.
ARTICLES = re.compile(r"\b(a|an|the)\b")


@dataclass(frozen=True)
class ParagraphQuestion:
    """A question about a paragraph, and the answers that count as right."""

    id: str
    context: str
    question: str
    answers: tuple[str, ...]

    @property
    def prompt(self) -> str:
        """The paragraph and the question, up to where the answer begins."""
        return f"{self.context}\n\nQuestion: {self.question}\nAnswer:"


def read_squad(path: str | Path) -> list[ParagraphQuestion]:
    """Read a file in SQuAD's format; ValueError naming the place where it is malformed, and for one without a question."""
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path} is no SQuAD file ({error})") from None
    questions = []
    for article, at_article in _each(content, "data", str(path)):
        for paragraph, at_paragraph in _each(article, "paragraphs", at_article):
            context = _get(paragraph, "context", str, at_paragraph)
            for entry, at_entry in _each(paragraph, "qas", at_paragraph):
                if isinstance(entry, dict) and entry.get("is_impossible"):
                    continue
                questions.append(_question(entry, context, at_entry))
    if not questions:
        raise ValueError(f"{path}: data holds no question with an answer")
    return questions


def _question(entry: Any, context: str, place: str) -> ParagraphQuestion:
    texts = []
    for answer, at_answer in _each(entry, "answers", place):
        text, start = _get(answer, "text", str, at_answer), _get(answer, "answer_start", int, at_answer)
        # A negative start would count from the context's end.
        if not text or start < 0 or context[start : start + len(text)] != text:
            raise ValueError(f"{at_answer}: {text!r} does not stand at {start} of its context")
        texts.append(text)
    if not texts:
        raise ValueError(f"{place}.answers is empty: at least one answer wanted")
    return ParagraphQuestion(
        _get(entry, "id", str, place), context, _get(entry, "question", str, place), tuple(dict.fromkeys(texts))
    )


def _each(value: Any, key: str, place: str) -> list[tuple[Any, str]]:
    return [(part, f"{place}.{key}[{number}]") for number, part in enumerate(_get(value, key, list, place))]


def _get(value: Any, key: str, kind: type, place: str) -> Any:
    if not isinstance(value, dict) or key not in value:
        raise ValueError(f"{place}: an object with {key!r} wanted")
    if not isinstance(value[key], kind) or isinstance(value[key], bool):
        raise ValueError(f"{place}.{key} is {value[key]!r:.40}: {kind.__name__} wanted")
    return value[key]


def exact_match(said: str, answers: Sequence[str]) -> int:
    """1 where what was said is one of the answers, but for case, punctuation, articles and blanks; else 0.

    >>> exact_match("the Cat.", ["dog", "cat"])
    1
    """
    return int(any(_normalise(said) == _normalise(answer) for answer in answers))


def f1(said: str, answers: Sequence[str]) -> float:
    """The greatest F1 over the answers: harmonic mean of the shares of words said that are right, and of right ones said.

    >>> round(f1("a black cat", ["the cat", "dog"]), 3)
    0.667
    """
    return max(_f1(_normalise(said).split(), _normalise(answer).split()) for answer in answers)


def _f1(said: list[str], answer: list[str]) -> float:
    if not said or not answer:
        return float(said == answer)
    same = sum((Counter(said) & Counter(answer)).values())
    return 2 * same / (len(said) + len(answer))


def _normalise(text: str) -> str:
    bare = "".join(letter for letter in text.lower() if letter not in string.punctuation)
    return " ".join(ARTICLES.sub(" ", bare).split())
