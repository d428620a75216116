"""Examine a subject on a task: lengths x seeds x modes, one result row each, as JSON lines.

The items of a length all have the same number of tokens, so they are batched without padding, and the counts of a
row do not depend on the batch size (but for rounding at ties, which the row counts).
"""

import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch

from relnet.exam.cache import ResultCache
from relnet.exam.decoding import free_running, teacher_forced, too_long
from relnet.exam.lines import appending
from relnet.exam.states import state_bytes
from relnet.exam.subject import ModelSubject, Subject
from relnet.tasks import Items, LetterTask, Scores, Task, Tokenised, score

MODES = {"teacher_forced": teacher_forced, "free_running": free_running}


@dataclass(frozen=True)
class Row:
    """The result of one subject in one mode on the items of one length and seed.

    items: number of answers; 0 where the subject could not be asked, and then `note` says why.
    letters, letters_right, exact, stopped, ended: sums over the items of the counts of `relnet.tasks.Scores`.
    ties: decisions whose two highest logits lie within 1e-4.
    first_errors: index of the first wrong token of each answer, -1 where there is none.
    scorer, score: the task's named score and its mean over the items, None without items.
    state_bytes: what the subject keeps of one item's prompt (the first one's), measured; None without items.
    """

    task: str
    subject: str
    mode: str
    length: int
    seed: int
    items: int = 0
    letters: int = 0
    letters_right: int = 0
    exact: int = 0
    stopped: int = 0
    ended: int = 0
    ties: int = 0
    first_errors: tuple[int, ...] = ()
    scorer: str = ""
    score: float | None = None
    note: str = ""
    state_bytes: int | None = None
    format: int = 1

    def to_json(self) -> str:
        """The row as one line of JSON."""
        return json.dumps(asdict(self))


def evaluate(
    subject: Subject,
    task: Task | Tokenised,
    *,
    lengths: Sequence[int],
    seeds: Sequence[int] = (0,),
    num: int = 320,
    batch_size: int = 64,
    modes: Sequence[str] = ("teacher_forced", "free_running"),
    path: str | Path | None = None,
    cache: ResultCache | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Ask `num` items of each length and seed, in each mode.

    lengths: lengths of the items, the trained one or not. Where a subject's limit is too short for one, its rows have
        0 items and a note, and the exam goes on with the others.
    batch_size: the most items asked at once.
    modes: "teacher_forced", "free_running" or both; both get the same items.
    path: a file that each row is appended to as soon as it is known.
    cache: where known rows of a `ModelSubject` are taken from, and new ones kept, if model and task can be told from all others:
        the model has a `content`, a tokenizer its identity.
    on_row: called with each row as soon as it is known.

    ValueError for empty lengths, seeds or modes, a length, num or batch_size under 1, an unknown mode, a task with more
    tokens than the subject's vocabulary, and NaN logits.
    """
    check_asked(
        subject,
        task.name,
        task.vocab_size,
        lists={"lengths": lengths, "seeds": seeds, "modes": modes},
        numbers={"length": min(lengths, default=1), "num": num, "batch_size": batch_size},
    )
    for mode in modes:
        if mode not in MODES:
            raise ValueError(f"unknown mode {mode!r}: known ones are {', '.join(MODES)}")

    cache = cache if cache is not None and _has_identity(task) else None
    told = "" if cache is None else repr(task)
    with nullcontext() if path is None else appending(path) as file:

        def tell(row: Row) -> None:
            if file is not None:
                file.write(row.to_json().encode() + b"\n")
                file.flush()
            if on_row is not None:
                on_row(row)

        asked = (
            (
                {"task": told, "mode": mode, "length": length, "seed": seed, "num": num},
                partial(_examine, subject, task, mode, length, seed, num, batch_size),
            )
            for length in lengths
            for seed in seeds
            for mode in modes
        )
        return known_or_asked(subject, asked, cache, tell)


def known_or_asked(
    subject: Subject,
    asked: Iterable[tuple[dict[str, Any], Callable[[], Row]]],
    cache: ResultCache | None,
    on_row: Callable[[Row], None] | None,
) -> list[Row]:
    """The rows of questions, each given as all that decides it but the model and as what asks it.

    Known ones are taken from the cache, under the subject's present name, and new ones kept in it, where the subject has a content.
    """
    content = subject.content if cache is not None and isinstance(subject, ModelSubject) else None
    rows = []
    for question, ask in asked:
        key = None if content is None else ResultCache.key(content, **question)
        known = None if cache is None or key is None else cache.get(key)
        if known is None:
            row = ask()
            if cache is not None and key is not None:
                cache.put(key, asdict(row))
        else:
            kept: dict[str, Any] = {**known, "first_errors": tuple(known["first_errors"]), "subject": subject.name}
            row = Row(**kept)
        rows.append(row)
        if on_row is not None:
            on_row(row)
    return rows


def check_asked(
    subject: Subject,
    task: str,
    vocab_size: int,
    *,
    lists: Mapping[str, Sequence[Any]],
    numbers: Mapping[str, int],
) -> None:
    """Refuse an empty list, a number under 1, and a subject that knows fewer tokens than a task needs: ValueError naming it."""
    for what, values in lists.items():
        if not values:
            raise ValueError(f"{what} is empty: give at least one")
    for what, value in numbers.items():
        if value < 1:
            raise ValueError(f"{what} {value}: at least 1 wanted")
    if subject.vocab_size < vocab_size:
        raise ValueError(
            f"{subject.name} knows {subject.vocab_size} tokens, {task} needs {vocab_size}: "
            "take a model that was made for the task"
        )


def unasked(task: Task | Tokenised, subject: str, mode: str, length: int, seed: int, note: str) -> Row:
    """The row of a subject that could not be asked, and why."""
    return Row(task=task.name, subject=subject, mode=mode, length=length, seed=seed, scorer=task.scorer, note=note)


def _has_identity(task: Task | Tokenised) -> bool:
    """Whether what a task is written as belongs to no other one."""
    if isinstance(task, Tokenised):
        return bool(task.tokeniser.identity) and type(task.task).__repr__ is not object.__repr__
    return type(task).__repr__ is not object.__repr__


def _batches(
    task: Task | Tokenised, num: int, length: int, seed: int, batch_size: int
) -> Generator[tuple[list[int], Items]]:
    """The items in batches of one prompt length and one answer length each, with their numbers."""
    if not isinstance(task, Tokenised):
        for index in range(0, num, batch_size):
            many = min(batch_size, num - index)
            yield list(range(index, index + many)), task.items(many, length, seed, index)
        return
    alike: dict[tuple[int, int], list[tuple[int, Items]]] = {}
    for index in range(num):
        item = task.items(1, length, seed, index)
        alike.setdefault((item.prompts.shape[1], item.answers.shape[1]), []).append((index, item))
    # The longest first, prompt and answer together: what does not fit is found before anything is asked.
    for _, group in sorted(alike.items(), key=lambda one: sum(one[0]), reverse=True):
        for start in range(0, len(group), batch_size):
            numbers, items = zip(*group[start : start + batch_size], strict=True)
            yield list(numbers), Items(torch.cat([i.prompts for i in items]), torch.cat([i.answers for i in items]))


def _examine(
    subject: Subject, task: Task | Tokenised, mode: str, length: int, seed: int, num: int, batch_size: int
) -> Row:
    num_ties, size, order, parts = 0, None, [], []
    # Of a letter task the size is known before its items are drawn: a billion letters are refused, not drawn.
    note = too_long(subject, task.size(length), 0) if isinstance(task, LetterTask) else ""
    for numbers, items in [] if note else _batches(task, num, length, seed, batch_size):
        note = too_long(subject, items.prompts.shape[1], items.answers.shape[1])
        if note:
            break
        if size is None:
            size = state_bytes(subject, items.prompts[:1])
        predictions, ties = MODES[mode](subject, items)
        parts.append(score(predictions, items.answers, task.eos))
        order += numbers
        num_ties += int(ties.sum())
    empty = torch.zeros(0, dtype=torch.int64)
    back = torch.tensor(order, dtype=torch.int64).argsort()
    scores = Scores(
        **{f.name: torch.cat([empty, *(getattr(part, f.name) for part in parts)])[back] for f in fields(Scores)}
    )
    return Row(
        task=task.name,
        subject=subject.name,
        mode=mode,
        length=length,
        seed=seed,
        items=len(scores.letters),
        letters=int(scores.letters.sum()),
        letters_right=int(scores.letters_right.sum()),
        exact=int(scores.exact.sum()),
        stopped=int(scores.stopped.sum()),
        ended=int(scores.ended.sum()),
        ties=num_ties,
        first_errors=tuple(scores.first_error.tolist()),
        scorer=task.scorer,
        score=None if note else float(task.grade(scores).mean()),
        note=note,
        state_bytes=size,
    )
