"""Question answering: a model reads a paragraph and a question and says an answer, scored by exact match and F1."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from relnet.exam.cache import ResultCache
from relnet.exam.decoding import free_running, too_long
from relnet.exam.evaluate import Row, check_asked, known_or_asked
from relnet.exam.states import state_bytes
from relnet.exam.subject import Subject
from relnet.tasks import IGNORE, Items, ParagraphQuestion, Tokeniser
from relnet.tasks.draws import streams
from relnet.tasks.question_answering import exact_match, f1

TASK, END = "question-answering", "\n"


def answer_questions(
    subject: Subject,
    tokeniser: Tokeniser,
    questions: Sequence[ParagraphQuestion],
    *,
    bins: Sequence[int],
    seeds: Sequence[int] = (0,),
    num: int = 50,
    max_tokens: int = 32,
    batch_size: int = 16,
    cache: ResultCache | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Ask `num` questions of each bin, free-running, and return a row a bin and seed: `exact` counts exact matches, `score` is mean F1.

    bins: the most tokens a paragraph has, rising; a bin holds those above the bin before it, its own bound included. seeds: which
    questions of a bin, in random order. max_tokens: an answer ends at a line's end, whatever tokens write it, or here. cache: where known
    rows of a `ModelSubject` are taken from, and new ones kept, if the tokenizer has an identity and the model a `content`. The counts of
    letters are 0: what is compared is words. ValueError for bins that do not rise, an empty list, a number under 1 and a tokenizer of more
    tokens than the model; a question that the tokenizer cannot write gives place to another one and is counted in the note; a bin without
    questions, or too long for the model, has 0 items and a note.
    """
    numbers = {"bin": min(bins, default=1), "num": num, "max_tokens": max_tokens, "batch_size": batch_size}
    check_asked(subject, TASK, tokeniser.vocab_size, lists={"bins": bins, "seeds": seeds}, numbers=numbers)
    if list(bins) != sorted(set(bins)):
        raise ValueError(f"bins {list(bins)}: rising numbers of tokens wanted")
    sizes = {context: len(tokeniser.encode(context)) for context in {question.context for question in questions}}

    def asked() -> Iterator[tuple[dict[str, Any], Callable[[], Row]]]:
        for low, high in pairwise([0, *bins]):
            held = [question for question in questions if low < sizes[question.context] <= high]
            for seed in seeds:
                chosen, skipped = _chosen(tokeniser, held, high, seed, num)
                question = {
                    "task": TASK,
                    "questions": hashlib.sha256(repr([question for question, _ in chosen]).encode()).hexdigest(),
                    "tokeniser": [tokeniser.identity, tokeniser.prefix],
                    "length": high,
                    "seed": seed,
                    "skipped": skipped,
                    "max_tokens": max_tokens,
                }
                yield (
                    question,
                    partial(_row, subject, tokeniser, chosen, skipped, high, seed, max_tokens, batch_size),
                )

    return known_or_asked(subject, asked(), cache if tokeniser.identity else None, on_row)


def _chosen(
    tokeniser: Tokeniser, questions: list[ParagraphQuestion], high: int, seed: int, num: int
) -> tuple[list[tuple[ParagraphQuestion, list[int]]], int]:
    """Random questions with their prompts' tokens, and how many were passed over that the tokenizer cannot write."""
    (stream,) = streams(1, seed, 0, exam_length=high)
    chosen: list[tuple[ParagraphQuestion, list[int]]] = []
    skipped = 0
    for number in stream.distinct(len(questions), len(questions)):
        if len(chosen) == num:
            break
        question = questions[number]
        try:
            chosen.append((question, [*tokeniser.prefix, *tokeniser.spell(question.prompt)]))
        except ValueError:
            skipped += 1
    return chosen, skipped


def _row(
    subject: Subject,
    tokeniser: Tokeniser,
    chosen: list[tuple[ParagraphQuestion, list[int]]],
    skipped: int,
    high: int,
    seed: int,
    max_tokens: int,
    batch: int,
) -> Row:
    refusal = "" if chosen or skipped else "has no question with a paragraph of this length"
    refusal = refusal or too_long(subject, max((len(prompt) for _, prompt in chosen), default=0), max_tokens)
    passed = f"had {skipped} questions that the tokenizer cannot write" if skipped else ""

    def text(tokens: list[int]) -> str:
        return tokeniser.decode([token for token in tokens if token != IGNORE])

    def ends(predictions: Tensor) -> Tensor:
        return torch.tensor([END in text(tokens) for tokens in predictions.tolist()])

    alike: dict[int, list[int]] = {}
    for number, (_, prompt) in enumerate(chosen if not refusal else []):
        alike.setdefault(len(prompt), []).append(number)
    said, num_ties, ended, size = {}, 0, 0, None
    for group in alike.values():
        for start in range(0, len(group), batch):
            numbers = group[start : start + batch]
            ids = torch.tensor([chosen[number][1] for number in numbers])
            size = state_bytes(subject, ids[:1]) if size is None else size
            # Only the room is told; its tokens, and where they end, are the model's to say.
            room = torch.full((len(numbers), max_tokens), IGNORE)
            predictions, ties = free_running(subject, Items(ids, room), ends)
            num_ties += int(ties.sum())
            for number, tokens in zip(numbers, predictions.tolist(), strict=True):
                answer, end, _ = text(tokens).partition(END)
                said[number] = answer
                ended += bool(end)
    answers = [chosen[number][0].answers for number in said]
    exact = [exact_match(text, right) for text, right in zip(said.values(), answers, strict=True)]
    scores = [f1(text, right) for text, right in zip(said.values(), answers, strict=True)]
    return Row(
        task=TASK,
        subject=subject.name,
        mode="free_running",
        length=high,
        seed=seed,
        items=len(said),
        exact=sum(exact),
        stopped=ended,
        ended=ended,
        ties=num_ties,
        scorer="squad-f1",
        score=sum(scores) / len(scores) if scores else None,
        note="; ".join(filter(None, [passed, refusal])),
        state_bytes=size,
    )
