"""The exam: which tasks, and who sits it. Tasks are named NAME-LENGTH, the length up to which they are trained."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import torch

from relnet import exam, nn, tasks
from relnet.protocol import Candidate, Paper
from relnet.recipes.models import ModelName, model
from relnet.train import TrainConfig

Equal = Literal["width", "parameters"]
# Packed rows of examples of every length up to the trained one, scored by whole strings (Jelassi et al. 2024).
LETTER_TASKS: dict[str, type[tasks.LetterTask]] = {
    "copying": tasks.Copying,
    "prefix-lookup": tasks.PrefixLookup,
    "suffix-lookup": tasks.SuffixLookup,
    "duplicated-ngram": tasks.DuplicatedNgram,
    "unrepeated-copying": tasks.UnrepeatedCopying,
    "recall": tasks.AssociativeRecall,
    "selective-copying": tasks.SelectiveCopying,
    "induction-heads": tasks.InductionHeads,
    "flip-flop": tasks.FlipFlop,
}
# What `make exam` asks: under 15 minutes on 2 cores for a mixer like the example's.
STANDARD = ("copying-16", "copying-32", "copying-64", "prefix-lookup-32", "suffix-lookup-32")
# Lengths examined, as multiples of the trained one: 320 for 64.
GRID = (0.5, 1, 1.5, 2, 3, 4, 5)


def paper(name: str, train: TrainConfig, lengths: Sequence[int] = ()) -> Paper:
    """Return the paper of a task by name and trained length, such as "copying-64".

    lengths: to examine; default: half the trained length to five times it. ValueError for an unknown name or no length.

    >>> paper("prefix-lookup-32", TrainConfig()).lengths
    (16, 32, 48, 64, 96, 128, 160)
    """
    kind, _, length = name.rpartition("-")
    if kind not in LETTER_TASKS or not length.isdecimal():
        raise ValueError(
            f"unknown task {name!r}; write NAME-LENGTH, such as copying-64, with one of {', '.join(LETTER_TASKS)}"
        )
    task = LETTER_TASKS[kind](length=int(length), layout="jelassi2024")
    low, high = task.shortest, task.longest or 5 * task.length
    grid = lengths or sorted({round(share * task.length) for share in GRID if low <= share * task.length <= high})
    return Paper(task, tuple(grid), train)


def named_model(name: ModelName, width: int, depth: int, positions: Literal["learned", "none"]) -> Candidate:
    """One of the papers' models."""

    def build(vocab_size: int, context: int) -> torch.nn.Module:
        return nn.SequenceModel(replace(model(name, vocab_size, context, width, depth), positions=positions))

    return Candidate(name, build, f"{name}, width {width}, depth {depth}, positions {positions}")


def transformers_model(kind: str, width: int, depth: int) -> Candidate:
    """An architecture of transformers, by the name of its config."""
    return Candidate(
        kind,
        lambda vocab, context: exam.untrained(kind, vocab, context, width, depth),
        f"{kind}, width {width}, depth {depth}",
    )


def own_model(spec: str, width: int, depth: int, others: Sequence[str] = ()) -> Candidate:
    """A module or mixer of the user's, `file.py:build`; whoever changes the file has another candidate.

    others: whose names it must not take (specs or names); see `exam.own_name`.
    """
    return Candidate(
        exam.own_name(spec, others),
        lambda vocab, context: exam.load_own(spec, vocab, context, width, depth),
        f"{exam.own_source(spec)}, width {width}, depth {depth}",
    )


def candidates(
    mixers: Sequence[ModelName] = (),
    configs: Sequence[str] = (),
    specs: Sequence[str] = (),
    width: int = 64,
    depth: int = 2,
    equal: Equal = "width",
    positions: Literal["learned", "none"] = "learned",
) -> list[Candidate]:
    """Return those who are to be trained: models of the papers, architectures of transformers, modules of the user's own.

    equal: "width": all of this width; "parameters": the first one of this width, each other one of the width (a multiple of 8) whose
    number of parameters comes nearest to the first one's, of those it can have. positions: of the papers' models. ValueError for a
    width under 8 with "parameters".
    """
    everyone = [*mixers, *configs, *specs]
    makers = [
        *(partial(named_model, name, depth=depth, positions=positions) for name in mixers),
        *(partial(transformers_model, kind, depth=depth) for kind in configs),
        *(partial(own_model, spec, depth=depth, others=[one for one in everyone if one != spec]) for spec in specs),
    ]
    if equal == "width" or not makers:
        return [make(width=width) for make in makers]
    if width < 8:
        raise ValueError(f"width {width}: for equal parameters, widths are multiples of 8; take at least 8")
    first = makers[0](width=width)
    target = _num_parameters(first)
    return [first, *(_nearest(make, target, range(8, 4 * width, 8)) for make in makers[1:])]


def _nearest(make: Callable[..., Candidate], target: int, widths: Sequence[int]) -> Candidate:
    """Who comes nearest to the number of parameters; not every width suits everybody, such as one that heads do not divide."""
    sizes: dict[int, int] = {}
    refusal = ValueError()
    for width in widths:
        try:
            sizes[width] = _num_parameters(make(width=width))
        except ValueError as error:
            refusal = error
    if not sizes:
        raise refusal
    return make(width=min(sizes, key=lambda width: abs(sizes[width] - target)))


def _num_parameters(candidate: Candidate) -> int:
    """Parameters without embeddings, which the task's context decides; nothing is allocated."""
    try:
        with torch.device("meta"):
            made = candidate.build(29, 64)
    except ValueError:
        # What a module computes while it is built needs numbers; and what is refused is told as for these.
        with torch.random.fork_rng(devices=[]):
            made = candidate.build(29, 64)
    counted = getattr(made, "num_parameters", None)
    return counted if isinstance(counted, int) else sum(p.numel() for p in made.parameters())
