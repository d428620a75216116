"""The exam's protocol: each candidate is trained on each paper, with each learning rate and seed, and then examined on a grid of lengths.

    FOLDER/exam.jsonl                            one line a result: what was asked, trained and counted
    FOLDER/known.jsonl                           results by model content, which a second call takes from here
    FOLDER/CANDIDATE/TASK-LENGTH/lr-LR-seed-SEED one training: log, checkpoints, weights, result, candidate.json

What is finished is not done again: an interrupted sitting goes on where it was, to the same numbers. A training that diverges is told as
that, and the sitting goes on with the others.
"""

import contextlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from relnet import exam, report, tasks
from relnet import train as training
from relnet.files import lock
from relnet.report.verdict import SITTING, trained_task, values
from relnet.train import StepRecord, TrainConfig, TrainResult

FORMAT = 1
# What tells one result from another.
QUESTION = (*SITTING, "lr", "mode", "length", "seed")
# The same of lines that do not tell what their model was trained on.
UNTOLD = tuple(key for key in QUESTION if key != "trained_task")


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
    def questions(self) -> list[tuple[tasks.LetterTask, int, str]]:
        """Each task, length and mode that is examined."""
        return [(task, length, mode) for task, lengths in self.examined for length in lengths for mode in exam.MODES]

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
    on_ask: Callable[[str], None] | None = None,
    on_row: Callable[[exam.Row], None] | None = None,
) -> list[dict[str, Any]]:
    """Train and examine; returns all lines of FOLDER/exam.jsonl, which new results are put into after each training.

    seeds: of weights, training strings and exam items. num, batch_size: items a length and seed, asked at once.
    on_train, on_ask: called with what is trained, or asked, in words before it is; on_step, on_row: with each update, with each result.
    ValueError before anything is trained: for names that stand twice, no learning rates or no seeds, settings that training refuses, a
    candidate that cannot be built, a folder in which another candidate of the same name was trained, and what `check_folder` refuses.
    """
    folder = Path(folder)
    check_folder(folder)
    names = [candidate.name for candidate in candidates]
    if len(set(names)) != len(names):
        raise ValueError(f"names {', '.join(names)}: each candidate needs a name of its own")
    for what, given in (("learning rate", lrs), ("seed", seeds)):
        if not given:
            raise ValueError(f"no {what} given: at least one wanted")
    known = exam.ResultCache(folder / "known.jsonl")
    lines: list[dict[str, Any]] = []
    for one in _planned(candidates, papers, folder, lrs, seeds):
        name, task = one.candidate.name, one.paper.task
        lr, seed = one.settings.lr, one.settings.seed
        if on_train is not None:
            on_train(f"{name}  {task.kind} up to {task.length}  lr {lr:g}  seed {seed}", one.paper)
        model = _built(one.candidate, one.paper, seed)
        facts = {
            "identity": one.identity,
            "trained_task": task.name,
            "train_length": task.length,
            "lr": lr,
            "train_seed": seed,
            "alphabet": len(tasks.LETTERS),
        }
        subject = None
        try:
            result = _train(model, one, device, on_step)
        except FloatingPointError as error:
            why = f"diverged in training at lr {lr:g} ({str(error).partition(';')[0]})"
            told = {
                "samples": one.settings.steps * one.settings.batch_size,
                "samples_to_99": None,
                "train_accuracy": 0.0,
            }
        else:
            why = f"gives NaN, trained at lr {lr:g}"
            subject = exam.ModelSubject(model.eval(), name=name)
            told = _training_facts(one.settings, result)
        rows = []
        for examined, length, mode in one.paper.questions:
            if on_ask is not None:
                on_ask(f"{name}  {examined.name}  length {length:,}  {mode}")
            row = exam.unasked(examined, name, mode, length, seed, why)
            # NaN at one length says nothing of the others.
            with contextlib.suppress(exam.NaNLogitsError):
                if subject is not None:
                    where = {"lengths": (length,), "modes": (mode,), "seeds": (seed,)}
                    (row,) = exam.evaluate(subject, examined, **where, num=num, batch_size=batch_size, cache=known)
            rows.append(row)
            if on_row is not None:
                on_row(row)
        lines = add_lines(folder / "exam.jsonl", [{**asdict(row), **facts, **told} for row in rows])
    return lines


def check_folder(folder: Path) -> None:
    """Raise ValueError for the folder of a run, whose exam.jsonl is its own, and for one whose exam.jsonl holds anything but an exam."""
    if any((folder / name).exists() for name in ("config.json", "log.jsonl")):
        raise ValueError(f"{folder} is the folder of a run, which keeps its own exam in it; take another --out")
    path = folder / "exam.jsonl"
    if path.exists():
        try:
            report.read_exam(path)
        except ValueError as error:
            raise ValueError(f"{error}; take another --out") from None


def add_lines(path: Path, lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put results into a file of them, each in place of an earlier one to the same question, and return all that it holds.

    An earlier one that does not tell what its model was trained on gives way to one that does and is the same in all else.
    The file is written whole or not at all, by one process at a time. ValueError where it holds anything else.
    """
    new = {values(line, QUESTION): line for line in lines}
    untold = {values(line, UNTOLD) for line in lines}
    path.parent.mkdir(parents=True, exist_ok=True)
    # Another exam in the same folder must not lose what this one adds.
    with open(path.with_name(f".{path.name}.lock"), "ab") as file:
        lock(file)
        held = report.read_exam(path) if path.exists() else []
        kept = [
            line
            for line in held
            if values(line, QUESTION) not in new
            and (trained_task(line) is not None or values(line, UNTOLD) not in untold)
        ]
        merged = kept + list(new.values())
        training.write_atomically(path, "".join(json.dumps(line) + "\n" for line in merged).encode())
    return merged


@dataclass(frozen=True)
class _Training:
    """One that is to be done: of whom, on what, where, and all that decides the candidate for this paper in words."""

    candidate: Candidate
    paper: Paper
    settings: TrainConfig
    place: Path
    identity: str


def _planned(
    candidates: Sequence[Candidate], papers: Sequence[Paper], folder: Path, lrs: Sequence[float], seeds: Sequence[int]
) -> list[_Training]:
    """All trainings in their order; ValueError for whatever of them can be refused before the first one."""
    planned = []
    for paper in papers:
        told = [replace(paper.train, lr=lr, seed=seed) for lr in lrs for seed in seeds]
        for candidate in candidates:
            code = exam.own_code(_built(candidate, paper, 0))
            identity = f"{candidate.identity}, context {paper.context}" + (f", code {code[:16]}" if code else "")
            for settings in told:
                name = f"lr-{settings.lr:g}-seed-{settings.seed}"
                place = folder / candidate.name / f"{paper.task.kind}-{paper.task.length}" / name
                note = place / "candidate.json"
                if note.exists() and (found := _trained_there(note)) != identity:
                    raise ValueError(
                        f"{place} holds a training of {found}, and {identity} is asked for; take another --out"
                    )
                planned.append(_Training(candidate, paper, settings, place, identity))
    return planned


def _trained_there(note: Path) -> str:
    """What a training's candidate.json says that was trained."""
    try:
        return str(json.loads(note.read_text())["identity"])
    except (ValueError, KeyError, TypeError):
        raise ValueError(
            f"{note} is damaged, so that its training cannot be told from another; take another --out"
        ) from None


def _built(candidate: Candidate, paper: Paper, seed: int) -> nn.Module:
    """The candidate's model for this paper before training."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return candidate.build(paper.task.vocab_size, paper.context)


def _train(model: nn.Module, told: _Training, device: str, on_step: Callable[[StepRecord], None] | None) -> TrainResult:
    def begin() -> None:
        content = json.dumps({"format": FORMAT, "identity": told.identity}).encode()
        training.write_atomically(told.place / "candidate.json", content)

    return training.train(
        model,
        told.paper.task,
        told.settings,
        told.place,
        device=device,
        on_start=begin,
        on_step=on_step,
        resume=told.place.exists(),
    )


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
