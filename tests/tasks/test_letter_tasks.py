"""What every task over letters keeps to, and what each one is."""

from dataclasses import fields, replace

import cattrs
import numpy as np
import pytest
import torch

from relnet.tasks import (
    IGNORE,
    AssociativeRecall,
    Copying,
    DuplicatedNgram,
    FlipFlop,
    InductionHeads,
    PrefixLookup,
    SelectiveCopying,
    SuffixLookup,
    UnrepeatedCopying,
)
from relnet.tasks.draws import streams
from relnet.tasks.letters import LetterTask
from tests.assertions import assert_same_bits
from tests.tasks import solvers

# A task, its solver, and the chance of a guesser who knows which symbols an answer may hold.
CASES = {
    "copying": (Copying(length=9), solvers.copying, 1 / 26),
    "prefix": (PrefixLookup(length=20, ngram=2, answer=1), lambda p: solvers.prefix_lookup(p, 1), 1 / 26),
    "prefix, hardly unique": (
        PrefixLookup(length=60, ngram=1, answer=2),
        lambda p: solvers.prefix_lookup(p, 2),
        1 / 26,
    ),
    "suffix": (SuffixLookup(length=40, ngram=2, answer=3), lambda p: solvers.suffix_lookup(p, 3), 1 / 26),
    "duplicated": (DuplicatedNgram(length=12, ngram=4), lambda p: solvers.duplicated_ngram(p, 4), 1 / 26),
    "duplicated, no room": (DuplicatedNgram(length=6, ngram=3), lambda p: solvers.duplicated_ngram(p, 3), 1 / 26),
    "unrepeated": (UnrepeatedCopying(length=20), lambda p: solvers.unrepeated_copying(p, 4), 1 / 26),
    "unrepeated, few left": (
        UnrepeatedCopying(length=12, ngram=3, alphabets=(3,)),
        lambda p: solvers.unrepeated_copying(p, 3),
        1 / 26,
    ),
    "recall": (AssociativeRecall(length=12), lambda p: solvers.recall(p, 2, 1), 1 / 26),
    "recall of every key": (AssociativeRecall(length=26, key=1, value=2), lambda p: solvers.recall(p, 1, 2), 1 / 26),
    "recall, long keys": (AssociativeRecall(length=5, key=3, queries=9), lambda p: solvers.recall(p, 3, 1), 1 / 26),
    "recall, keys beyond a word": (
        AssociativeRecall(length=5, key=14, queries=2),
        lambda p: solvers.recall(p, 14, 1),
        1 / 26,
    ),
    "selective": (SelectiveCopying(length=20), solvers.selective_copying, 1 / 26),
    "induction": (InductionHeads(length=10), solvers.induction_heads, 1 / 26),
    "flip-flop": (FlipFlop(length=12), solvers.flip_flop, 1 / 2),
}
TASKS = pytest.mark.parametrize("task", [case[0] for case in CASES.values()], ids=CASES)
SOLVED = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def packed(task):
    return replace(task, layout="jelassi2024", max_context=3 * task.size(task.length))


def check_items(task, solve, num):
    for start in range(0, num, 1000):
        items = task.items(min(1000, num - start), task.length, seed=1, index=start)
        for prompt, answer in zip(items.prompts, items.answers, strict=True):
            assert [task.decode(answer)] == [f"{right}<EOS>" for right in solve(task.decode(prompt))]


@SOLVED
def test_each_of_500_items_has_one_right_answer(case):
    check_items(*case[:2], 500)


@pytest.mark.slow
@SOLVED
def test_each_of_100_000_items_has_one_right_answer(case):
    check_items(*case[:2], 100_000)


@SOLVED
def test_each_answer_in_training_is_the_solvers_and_so_scores_one(case):
    task, solve, _ = case
    for layout in (task, packed(task)):
        batch = layout.sample(20, seed=2, index=0)
        assert (layout.accuracy(batch.targets, batch.targets) == 1).all()
        for inputs, targets, segments in zip(batch.inputs, batch.targets, batch.segments, strict=True):
            for number in range(int(segments.max()) + 1):
                tokens, wanted = inputs[segments == number], targets[segments == number]
                starts = ((wanted != IGNORE) & (wanted.roll(1) == IGNORE)).nonzero()[:, 0].tolist()
                for start in starts:
                    end = start + int((wanted[start:] == task.EOS).nonzero()[0])
                    (right,) = solve(task.decode(tokens[: start + 1]))
                    assert task.decode(wanted[start : end + 1]) == f"{right}<EOS>"
                    assert_same_bits(wanted[start:end], tokens[start + 1 : end + 1])
                assert starts


@SOLVED
def test_a_guesser_scores_chance(case):
    task, _, chance = case
    items = task.items(2000, task.length, seed=3)
    symbols = items.answers[:, :-1].unique()
    assert len(symbols) == round(1 / chance)
    guesses = symbols[torch.from_numpy(np.random.default_rng(0).integers(0, len(symbols), size=items.answers.shape))]
    guesses[:, -1] = task.EOS
    score = float(replace(task, layout="cui2024", min_length=None).accuracy(guesses, items.answers).mean())
    trials = items.answers[:, :-1].numel()
    assert abs(score - chance) < 4 * (chance * (1 - chance) / trials) ** 0.5


@TASKS
def test_an_item_is_the_same_in_any_batch_and_order(task):
    for layout in (task, packed(task)):
        whole, last = layout.sample(6, seed=4, index=10), layout.sample(2, seed=4, index=14)
        for name, tensor in vars(last).items():
            assert_same_bits(tensor, getattr(whole, name)[4:], name)
    whole, middle = task.items(6, task.length, seed=4, index=10), task.items(3, task.length, seed=4, index=12)
    assert_same_bits(middle.prompts, whole.prompts[2:5])
    assert_same_bits(middle.answers, whole.answers[2:5])
    assert len(task.items(50, task.length, seed=5).prompts.unique(dim=0)) > 40


@TASKS
def test_sizes_are_those_that_the_task_tells(task):
    for length in range(task.shortest, min(task.longest or 30, 30) + 1):
        items = task.items(1, length, seed=0)
        assert items.prompts.shape[1] + items.answers.shape[1] == task.size(length)
    assert task.sample(2, seed=0, index=0).inputs.shape == (2, task.context) == (2, task.size(task.length) - 1)
    batch = packed(task).sample(30, seed=0, index=0)
    assert batch.inputs.shape == (30, 3 * task.size(task.length))
    alone = isinstance(task, UnrepeatedCopying)
    assert alone or (batch.segments.amax(1) >= 2).all(), "several examples a row"
    assert batch.inputs.max() < task.vocab_size
    assert batch.inputs.min() >= 0


@TASKS
def test_lengths_that_a_task_cannot_have_are_refused(task):
    wrong = [task.shortest - 1] + ([task.longest + 1] if task.longest else [])
    for length in wrong:
        with pytest.raises(ValueError, match=f"length {length}: {task.kind} has"):
            task.items(1, length, seed=0)
        with pytest.raises(ValueError, match=f"length {length}: {task.kind} has"):
            replace(task, length=length)


@TASKS
def test_a_task_is_a_plain_value(task):
    assert hash(task) == hash(replace(task))
    assert cattrs.structure(cattrs.unstructure(task), type(task)) == task


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (PrefixLookup, "ngram"),
        (SuffixLookup, "answer"),
        (DuplicatedNgram, "ngram"),
        (AssociativeRecall, "key"),
        (AssociativeRecall, "queries"),
        (SelectiveCopying, "num_letters"),
    ],
)
def test_a_size_of_zero_is_refused(kind, name):
    with pytest.raises(ValueError, match=f"{name} 0: at least 1"):
        kind(**{name: 0})


KINDS = {
    Copying: "copying",
    PrefixLookup: "prefix-lookup-3",
    SuffixLookup: "suffix-lookup-3",
    DuplicatedNgram: "duplicated-ngram-4",
    UnrepeatedCopying: "unrepeated-copying-4",
    AssociativeRecall: "recall",
    SelectiveCopying: "selective-copying",
    InductionHeads: "induction-heads",
    FlipFlop: "flip-flop",
}
OTHERS = {
    "ngram": 2,
    "answer": 1,
    "key": 3,
    "value": 2,
    "queries": 1,
    "num_letters": 2,
    "alphabets": (9,),
    "openings": 0.5,
    "before": 7,
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_option_stands_in_the_name_where_it_changes_the_exams_items_and_nowhere_else(kind):
    usual = kind(length=40)
    assert usual.name == f"{KINDS[kind]}-cui2024"
    names, prompts = {usual.name}, usual.items(100, 40, seed=0).prompts
    for option in {field.name for field in fields(kind)} - {field.name for field in fields(LetterTask)}:
        task = kind(length=40, **{option: OTHERS[option]})
        assert (task.name == usual.name) == torch.equal(task.items(100, 40, seed=0).prompts, prompts), option
        assert str(OTHERS[option]) in task.name or task.name == usual.name
        assert task.name == usual.name or task.name not in names
        names.add(task.name)


def test_names_say_which_options_are_not_at_their_default():
    assert AssociativeRecall(8, key=3, queries=1).name == "recall-key-3-queries-1-cui2024"
    assert SelectiveCopying(8, num_letters=2).label == "selective-copying-letters-2-cui2024-8"
    assert SuffixLookup(8, answer=1).kind == "suffix-lookup-3-answer-1"


def test_letters_of_long_keys_are_uniform():
    task = AssociativeRecall(length=600, key=7, queries=1)
    prompt = task.items(1, 600, seed=0).prompts[0, 1 : 1 + 600 * 8].view(600, 8) - task.FIRST_LETTER
    for place in range(7):
        counts = np.bincount(prompt[:, place], minlength=26)
        assert (abs(counts - 600 / 26) < 4.5 * (600 / 26) ** 0.5).all(), (place, counts)


def test_a_number_beyond_what_a_word_tells_apart_is_refused():
    (stream,) = streams(1, seed=0, index=0)
    assert 0 <= int(stream.below(2**32, 1)[0]) < 2**32
    with pytest.raises(ValueError, match=r"n 4294967297: 2\^32 or less wanted"):
        stream.below(2**32 + 1, 1)


def test_only_copying_takes_a_string_of_the_users():
    with pytest.raises(ValueError, match="only copying does"):
        FlipFlop().question("hello")


def test_queries_come_from_every_place_of_the_string():
    task = PrefixLookup(length=9, ngram=2, answer=2)
    prompts = [task.decode(prompt) for prompt in task.items(600, 9, seed=0).prompts]
    places = [prompt.split("<SEP>")[1].index(prompt[5:7]) for prompt in prompts]
    counts = np.bincount(places, minlength=6)
    assert len(counts) == 6
    assert (abs(counts - 100) < 4 * 100**0.5).all(), counts


def test_the_two_places_of_a_duplicate_are_every_pair_that_does_not_overlap():
    task = DuplicatedNgram(length=7, ngram=3)
    found = set()
    for answer in task.items(300, 7, seed=0).answers.tolist():
        found |= {(i, j) for i in range(5) for j in range(i + 3, 5) if answer[i : i + 3] == answer[j : j + 3]}
    assert found == {(0, 3), (0, 4), (1, 4)}
