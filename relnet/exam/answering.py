"""Question answering: a model reads a paragraph and a question and says an answer, scored by exact match and F1."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict

import torch

from relnet.exam.cache import ResultCache
from relnet.exam.decoding import free_running, too_long
from relnet.exam.evaluate import Row, known_row
from relnet.exam.states import state_bytes
from relnet.exam.subject import ModelSubject, Subject
from relnet.tasks import IGNORE, Items, ParagraphQuestion, Tokeniser
from relnet.tasks.question_answering import exact_match, f1

STOP = "\n"


def answer_questions(
    subject: Subject,
    tokeniser: Tokeniser,
    questions: Sequence[ParagraphQuestion],
    *,
    bins: Sequence[int],
    num: int = 50,
    max_tokens: int = 32,
    batch_size: int = 16,
    cache: ResultCache | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Ask the first `num` questions of each bin, free-running, and return a row a bin: `exact` counts exact matches, `score` is mean F1.

    bins: the most tokens a paragraph has, rising; a bin holds those above the bin before it, its own bound included.
    max_tokens: an answer ends at a line's end, or here. cache: where known rows of a `ModelSubject` are taken from, and new ones kept,
    if the tokenizer has an identity. The counts of letters are 0: what is compared is words. ValueError for bins that do not rise,
    and a tokenizer without a line's end; a bin without questions, or too long for the model, has 0 items and a note.
    """
    if not bins or list(bins) != sorted(set(bins)):
        raise ValueError(f"bins {list(bins)}: rising numbers of tokens wanted")
    sizes = [len(tokeniser.encode(question.context)) for question in questions]
    rows = []
    content = subject.content if cache and tokeniser.identity and isinstance(subject, ModelSubject) else None
    for low, high in zip([0, *bins], bins, strict=False):
        chosen = [question for question, size in zip(questions, sizes, strict=True) if low < size <= high][:num]
        key = content and ResultCache.key(
            content,
            task="question-answering",
            questions=hashlib.sha256(repr(chosen).encode()).hexdigest(),
            tokeniser=[tokeniser.identity, tokeniser.prefix],
            length=high,
            max_tokens=max_tokens,
        )
        known = cache.get(key) if cache and key else None
        row = known_row(known, subject) if known else _bin(subject, tokeniser, chosen, high, max_tokens, batch_size)
        if cache and key and not known:
            cache.put(key, asdict(row))
        rows.append(row)
        if on_row is not None:
            on_row(rows[-1])
    return rows


def _bin(
    subject: Subject, tokeniser: Tokeniser, questions: list[ParagraphQuestion], high: int, max_tokens: int, batch: int
) -> Row:
    stop = tokeniser.first(STOP)
    prompts = [[*tokeniser.prefix, *tokeniser.spell(question.prompt)] for question in questions]
    note = "" if questions else "has no question with a paragraph of this length"
    note = note or too_long(subject, max(map(len, prompts)), max_tokens)
    alike: dict[int, list[int]] = {}
    for number, prompt in enumerate(prompts if not note else []):
        alike.setdefault(len(prompt), []).append(number)
    said, num_ties, ended, size = {}, 0, 0, None
    for group in alike.values():
        for start in range(0, len(group), batch):
            numbers = group[start : start + batch]
            ids = torch.tensor([prompts[number] for number in numbers])
            size = state_bytes(subject, ids[:1]) if size is None else size
            # Only the room and the end of an answer are told; its tokens are the model's to say.
            room = torch.full((len(numbers), max_tokens), IGNORE)
            room[:, -1] = stop
            predictions, ties = free_running(subject, Items(ids, room))
            num_ties += int(ties.sum())
            ended += int((predictions == stop).any(1).sum())
            for number, tokens in zip(numbers, predictions.tolist(), strict=True):
                said[number] = tokeniser.decode([token for token in tokens if token not in (IGNORE, stop)])
    answers = [questions[number].answers for number in said]
    exact = [exact_match(text, right) for text, right in zip(said.values(), answers, strict=True)]
    scores = [f1(text, right) for text, right in zip(said.values(), answers, strict=True)]
    return Row(
        task="question-answering",
        subject=subject.name,
        mode="free_running",
        length=high,
        seed=0,
        items=len(said),
        letters=0,
        letters_right=0,
        exact=sum(exact),
        stopped=ended,
        ended=ended,
        ties=num_ties,
        first_errors=(),
        scorer="squad-f1",
        score=sum(scores) / len(scores) if scores else None,
        note=note,
        state_bytes=size,
    )
