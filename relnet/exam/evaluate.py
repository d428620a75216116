"""Examine a subject on a task: lengths x seeds x modes, one result row each, as JSON lines.

The items of a length all have the same number of tokens, so they are batched without padding, and the counts of a
row do not depend on the batch size (but for rounding at ties, which the row counts).
"""

import json
import os
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import BinaryIO

import torch

from relnet.exam.decoding import free_running, teacher_forced, too_long
from relnet.exam.subject import Subject
from relnet.tasks import Scores, Task, score

MODES = {"teacher_forced": teacher_forced, "free_running": free_running}


@dataclass(frozen=True)
class Row:
    """The result of one subject in one mode on the items of one length and seed.

    items: number of answers; 0 where the subject could not be asked, and then `note` says why.
    letters, letters_right, exact, stopped, ended: sums over the items of the counts of `relnet.tasks.Scores`.
    ties: decisions whose two highest logits lie within 1e-4.
    first_errors: index of the first wrong token of each answer, -1 where there is none.
    scorer, score: the task's named score and its mean over the items, None without items.
    """

    task: str
    subject: str
    mode: str
    length: int
    seed: int
    items: int
    letters: int
    letters_right: int
    exact: int
    stopped: int
    ended: int
    ties: int
    first_errors: tuple[int, ...]
    scorer: str
    score: float | None
    note: str = ""
    format: int = 1

    def to_json(self) -> str:
        """The row as one line of JSON."""
        return json.dumps(asdict(self))


def evaluate(
    subject: Subject,
    task: Task,
    *,
    lengths: Sequence[int],
    seeds: Sequence[int] = (0,),
    num: int = 320,
    batch_size: int = 64,
    modes: Sequence[str] = ("teacher_forced", "free_running"),
    path: str | Path | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> list[Row]:
    """Ask `num` items of each length and seed, in each mode.

    lengths: lengths of the items, the trained one or not. Where a subject's limit is too short for one, its rows have
        0 items and a note, and the exam goes on with the others.
    batch_size: the most items asked at once.
    modes: "teacher_forced", "free_running" or both; both get the same items.
    path: a file that each row is appended to as soon as it is known.
    on_row: called with each row as soon as it is known.

    ValueError for empty lengths, seeds or modes, a length, num or batch_size under 1, an unknown mode, a task with more
    tokens than the subject's vocabulary, and NaN logits.
    """
    _check(subject, task, lengths, seeds, num, batch_size, modes)
    rows = []
    with appending(path) as file:
        for length in lengths:
            for seed in seeds:
                for mode in modes:
                    row = _examine(subject, task, mode, length, seed, num, batch_size)
                    rows.append(row)
                    if file is not None:
                        file.write(row.to_json().encode() + b"\n")
                        file.flush()
                    if on_row is not None:
                        on_row(row)
    return rows


def _examine(subject: Subject, task: Task, mode: str, length: int, seed: int, num: int, batch_size: int) -> Row:
    shape = task.items(1, length, seed)
    note = too_long(subject, shape.prompts.shape[1], shape.answers.shape[1])
    parts, num_ties = [], 0
    for index in range(0, 0 if note else num, batch_size):
        items = task.items(min(batch_size, num - index), length, seed, index)
        predictions, ties = MODES[mode](subject, items)
        parts.append(score(predictions, items.answers, task.eos))
        num_ties += int(ties.sum())
    empty = torch.zeros(0, dtype=torch.int64)
    scores = Scores(**{f.name: torch.cat([empty, *(getattr(part, f.name) for part in parts)]) for f in fields(Scores)})
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
    )


def _check(
    subject: Subject,
    task: Task,
    lengths: Sequence[int],
    seeds: Sequence[int],
    num: int,
    batch_size: int,
    modes: Sequence[str],
) -> None:
    for name, values in (("lengths", lengths), ("seeds", seeds), ("modes", modes)):
        if not values:
            raise ValueError(f"{name} is empty: give at least one")
    for name, least in (("length", min(lengths)), ("num", num), ("batch_size", batch_size)):
        if least < 1:
            raise ValueError(f"{name} {least}: at least 1 wanted")
    for mode in modes:
        if mode not in MODES:
            raise ValueError(f"unknown mode {mode!r}: known ones are {', '.join(MODES)}")
    if subject.vocab_size < task.vocab_size:
        raise ValueError(
            f"{subject.name} knows {subject.vocab_size} tokens, {task.name} needs {task.vocab_size}: "
            "take a model that was made for the task"
        )


@contextmanager
def appending(path: str | Path | None) -> Generator[BinaryIO | None, None, None]:
    """Open a file of JSON lines to add some; None for no path."""
    if path is None:
        yield None
        return
    with open(path, "ab+") as file:
        # An earlier exam may have been killed in the middle of a line, which must not swallow the first new one.
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        yield file
