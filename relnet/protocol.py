"""The exam's protocol: each candidate is trained on each paper, with each learning rate and seed, and then examined on a grid of lengths.

    FOLDER/exam.jsonl                            one line a result: what was asked, trained and counted
    FOLDER/known.jsonl                           results by model content, which a second call takes from here
    FOLDER/CANDIDATE/TASK-LENGTH/lr-LR-seed-SEED one training: log, checkpoints, weights, result, candidate.json

What is finished is not done again: an interrupted sitting goes on where it was, to the same numbers. A training that diverges is told as
that, and the sitting goes on with the others.
"""

import fcntl
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from relnet import exam, report, tasks
from relnet import train as training
from relnet.train import StepRecord, TrainConfig, TrainResult

FORMAT = 1
# What tells one result from another.
QUESTION = ("subject", "task", "train_length", "lr", "mode", "length", "seed")


@dataclass(frozen=True)
class Candidate:
    """A model that sits the exam: a name for tables, what makes it (vocabulary size, context), and all that decides it in words."""

    name: str
    build: Callable[[int, int], nn.Module]
    identity: str


@dataclass(frozen=True)
class Paper:
    """A task to be trained up to its length, how, and the lengths to be examined; ValueError for one that the task cannot have.

    others: further tasks that the same trained model is examined on, each at the length it has.
    """

    task: tasks.LetterTask
    lengths: tuple[int, ...]
    train: TrainConfig
    others: tuple[tasks.LetterTask, ...] = ()

    def __post_init__(self) -> None:
        # Refused now, not after minutes of training.
        for length in self.lengths:
            self.task.check_length(length)

    @property
    def examined(self) -> list[tuple[tasks.LetterTask, tuple[int, ...]]]:
        """Each task that is examined, and its lengths."""
        return [(self.task, self.lengths), *((task, (task.length,)) for task in self.others)]

    @property
    def context(self) -> int:
        """Tokens that a model needs for all of it."""
        return max(self.task.context, *(task.size(length) for task, lengths in self.examined for length in lengths))


def sit(
    candidates: Sequence[Candidate],
    papers: Sequence[Paper],
    folder: str | Path,
    *,
    lrs: Sequence[float] = (5e-4,),
    seeds: Sequence[int] = (0,),
    num: int = 320,
    batch_size: int = 64,
    device: str = "auto",
    on_train: Callable[[str, Paper], None] | None = None,
    on_step: Callable[[StepRecord], None] | None = None,
    on_row: Callable[[exam.Row], None] | None = None,
) -> list[dict[str, Any]]:
    """Train and examine; returns all lines of FOLDER/exam.jsonl, which new results are put into after each training.

    seeds: of weights, training strings and exam items. num, batch_size: items a length and seed, asked at once.
    on_train: called with what is trained in words before each training; on_step, on_row: with each update, with each result.
    ValueError for names that stand twice, and for a folder in which another candidate of the same name was trained.
    """
    folder = Path(folder)
    names = [candidate.name for candidate in candidates]
    if len(set(names)) != len(names):
        raise ValueError(f"names {', '.join(names)}: each candidate needs a name of its own")
    known = exam.ResultCache(folder / "known.jsonl")
    lines: list[dict[str, Any]] = []
    for paper in papers:
        for candidate in candidates:
            for lr in lrs:
                for seed in seeds:
                    place = (
                        folder / candidate.name / f"{paper.task.kind}-{paper.task.length}" / f"lr-{lr:g}-seed-{seed}"
                    )
                    if on_train is not None:
                        on_train(
                            f"{candidate.name}  {paper.task.kind} up to {paper.task.length}  lr {lr:g}  seed {seed}",
                            paper,
                        )
                    told = replace(paper.train, lr=lr, seed=seed)
                    identity, model = _begun(candidate, paper, told, place)
                    facts = {
                        "identity": identity,
                        "train_length": paper.task.length,
                        "lr": lr,
                        "train_seed": seed,
                        "alphabet": len(tasks.LETTERS),
                    }
                    try:
                        result = _train(model, identity, paper, told, place, device, on_step)
                    except FloatingPointError as error:
                        why = f"diverged in training at lr {lr:g} ({str(error).partition(';')[0]})"
                        rows = _unasked(candidate.name, paper.examined, seed, why, on_row)
                        facts |= {"samples": told.steps * told.batch_size, "samples_to_99": None, "train_accuracy": 0.0}
                    else:
                        rows = []
                        for task, lengths in paper.examined:
                            try:
                                rows += exam.evaluate(
                                    exam.ModelSubject(model.eval(), name=candidate.name),
                                    task,
                                    lengths=lengths,
                                    seeds=(seed,),
                                    num=num,
                                    batch_size=batch_size,
                                    cache=known,
                                    on_row=on_row,
                                )
                            except exam.NaNLogitsError:
                                why = f"gives NaN, trained at lr {lr:g}"
                                rows += _unasked(candidate.name, [(task, lengths)], seed, why, on_row)
                        facts |= _training_facts(told, result)
                    lines = add_lines(folder / "exam.jsonl", [{**asdict(row), **facts} for row in rows])
    return lines


def add_lines(path: Path, lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put results into a file of them, each in place of an earlier one to the same question, and return all that it holds.

    The file is written whole or not at all, by one process at a time. ValueError where it holds anything else.
    """
    new = {_question(line): line for line in lines}
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another exam in the same folder must not lose what this one adds.
    with open(path.with_name(f".{path.name}.lock"), "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        held = report.read_exam(path) if path.exists() else []
        merged = [line for line in held if _question(line) not in new] + list(new.values())
        training.write_atomically(path, "".join(json.dumps(line) + "\n" for line in merged).encode())
    return merged


def _question(line: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(line.get(key) for key in QUESTION)


def _begun(candidate: Candidate, paper: Paper, settings: TrainConfig, place: Path) -> tuple[str, nn.Module]:
    """The candidate's identity for this paper and its model before training; ValueError where another one's training lies."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(settings.seed)
        model = candidate.build(paper.task.vocab_size, paper.context)
    code = exam.own_code(model)
    identity = f"{candidate.identity}, context {paper.context}" + (f", code {code[:16]}" if code else "")
    note = place / "candidate.json"
    if note.exists() and (found := json.loads(note.read_text())["identity"]) != identity:
        raise ValueError(f"{place} holds a training of {found}, and {identity} is asked for; take another --out")
    return identity, model


def _train(
    model: nn.Module,
    identity: str,
    paper: Paper,
    settings: TrainConfig,
    place: Path,
    device: str,
    on_step: Callable[[StepRecord], None] | None,
) -> TrainResult:
    def begin() -> None:
        content = json.dumps({"format": FORMAT, "identity": identity}).encode()
        training.write_atomically(place / "candidate.json", content)

    return training.train(
        model, paper.task, settings, place, device=device, on_start=begin, on_step=on_step, resume=place.exists()
    )


def _unasked(
    name: str,
    examined: Sequence[tuple[tasks.LetterTask, tuple[int, ...]]],
    seed: int,
    why: str,
    on_row: Callable[[exam.Row], None] | None,
) -> list[exam.Row]:
    """The rows of an exam that nobody sat."""
    rows = [
        exam.unasked(task, name, mode, length, seed, why)
        for task, lengths in examined
        for length in lengths
        for mode in exam.MODES
    ]
    for row in rows:
        if on_row is not None:
            on_row(row)
    return rows


def _training_facts(settings: TrainConfig, result: TrainResult) -> dict[str, Any]:
    steps = result.steps_to_accuracy
    return {
        "parameters": result.num_parameters,
        "steps": result.steps,
        "samples": result.steps * settings.batch_size,
        "samples_to_99": None if steps is None else steps * settings.batch_size,
        "train_accuracy": result.final_accuracy,
        "wall_seconds": result.wall_seconds,
        "machine": result.machine,
        "commit": result.commit,
    }
