from dataclasses import replace

import cattrs
import numpy as np
import pytest
import torch

from relnet.tasks import IGNORE, Copying, score
from tests.assertions import assert_same_bits

FIXED = Copying(length=16)
PACKED = Copying(length=12, layout="jelassi2024", min_length=3, max_context=90)
LAYOUTS = pytest.mark.parametrize("task", [FIXED, PACKED], ids=["cui2024", "jelassi2024"])


def chi_square(counts):
    """The statistic of uniform counts in standard deviations from its mean (about normal for many degrees)."""
    degrees = len(counts) - 1
    expected = counts.sum() / len(counts)
    return abs(float(((counts - expected) ** 2 / expected).sum()) - degrees) / (2 * degrees) ** 0.5


def guess(task, targets, seed):
    letters = np.random.default_rng(seed).integers(task.FIRST_LETTER, task.vocab_size, size=targets.shape)
    return torch.where(targets == task.eos, task.eos, torch.from_numpy(letters))


@LAYOUTS
def test_a_row_does_not_depend_on_its_batch(task):
    whole = task.sample(7, seed=3, index=10)
    for first, last in [(0, 1), (1, 4), (4, 7)]:
        part = task.sample(last - first, seed=3, index=10 + first)
        for name, tensor in vars(part).items():
            assert_same_bits(tensor, getattr(whole, name)[first:last], name)


@LAYOUTS
def test_an_exam_item_does_not_depend_on_its_batch(task):
    whole = task.items(7, length=9, seed=3, index=10)
    part = task.items(3, length=9, seed=3, index=12)
    assert_same_bits(part.prompts, whole.prompts[2:5])
    assert_same_bits(part.answers, whole.answers[2:5])


@LAYOUTS
def test_seeds_items_and_neighbours_give_other_strings(task):
    rows = torch.cat([task.sample(50, seed, index=0).inputs for seed in (0, 1, 2**63 + 5, 2**63 + 6, 2**64 - 1)])
    assert len(rows.unique(dim=0)) == 250


def test_exam_items_are_apart_from_training_items_and_from_other_lengths():
    training = FIXED.sample(200, seed=0, index=0).inputs[:, 1:17]
    exam = FIXED.items(200, length=16, seed=0).answers[:, :16]
    longer = FIXED.items(200, length=20, seed=0).answers[:, :16]
    assert len(torch.cat([training, exam, longer]).unique(dim=0)) == 600


def test_cui2024_is_string_separator_string_with_the_loss_on_the_second():
    batch = FIXED.sample(5, seed=0, index=0)
    L = FIXED.length
    assert batch.inputs.shape == (5, FIXED.context) == (5, 2 * (L + 1))
    assert (batch.inputs[:, 0] == FIXED.BOS).all()
    assert (batch.inputs[:, L + 1] == FIXED.SEP).all()
    assert_same_bits(batch.inputs[:, 1 : L + 1], batch.inputs[:, L + 2 :])
    assert (batch.targets[:, : L + 1] == IGNORE).all()
    assert_same_bits(batch.targets[:, L + 1 : -1], batch.inputs[:, L + 2 :])
    assert (batch.targets[:, -1] == FIXED.EOS).all()
    assert (batch.segments == 0).all()


def test_jelassi2024_packs_whole_examples_and_asks_for_the_answers_only():
    batch = PACKED.sample(50, seed=0, index=0)
    assert batch.inputs.shape == (50, 90)
    for inputs, targets, segments in zip(batch.inputs, batch.targets, batch.segments, strict=True):
        assert (segments[segments >= 0].diff() >= 0).all(), "examples in order"
        end = int((segments >= 0).sum())
        assert (segments[end:] == -1).all(), "padding at the end only"
        assert (targets[end:] == IGNORE).all()
        for number in range(int(segments.max()) + 1):
            example, wanted = inputs[segments == number], targets[segments == number]
            text = PACKED.decode(example)
            string = text.removeprefix("<BOS>").split("<SEP>")[0]
            assert text == f"<BOS>{string}<SEP>{string}<EOS>"
            assert PACKED.min_length <= len(string) <= PACKED.length
            assert (wanted[: len(string) + 1] == IGNORE).all()
            assert PACKED.decode(wanted[len(string) + 1 :]) == f"{string}<EOS>"
            assert wanted[-1] == IGNORE
        assert 90 - end < 2 * PACKED.length + 3, "what is left could not hold the longest example"


def test_an_example_that_just_fits_is_packed():
    task = Copying(length=1, layout="jelassi2024", max_context=50)
    assert (task.sample(20, seed=0, index=0).segments == torch.arange(50) // 5).all()


@LAYOUTS
def test_every_id_is_in_the_vocabulary(task):
    batch = task.sample(500, seed=1, index=0)
    assert batch.inputs.min() >= 0
    assert batch.inputs.max() == task.vocab_size - 1 == 28
    assert batch.targets.min() == IGNORE
    assert batch.targets.max() == 28


@LAYOUTS
def test_letters_are_uniform(task):
    for ids in (task.sample(2000, seed=5, index=0).targets, task.items(2000, length=16, seed=5).answers):
        counts = torch.bincount(ids[ids >= task.FIRST_LETTER])[task.FIRST_LETTER :]
        assert chi_square(counts.double()) < 4


def test_letters_are_independent_of_their_place_and_predecessor():
    ids = FIXED.items(3000, length=16, seed=6).answers[:, :16] - FIXED.FIRST_LETTER
    pairs = torch.bincount((26 * ids[:, :-1] + ids[:, 1:]).flatten(), minlength=26 * 26)
    assert chi_square(pairs.double()) < 4


def test_lengths_are_uniform():
    # The first example of a row: a later one must fit into what is left.
    batch = PACKED.sample(4000, seed=7, index=0)
    lengths = ((batch.segments == 0).sum(1) - 3) // 2
    counts = torch.bincount(lengths, minlength=13)
    assert counts[:3].sum() == 0
    assert len(counts) == 13
    assert chi_square(counts[3:].double()) < 4


@LAYOUTS
def test_the_answer_of_each_of_10_000_items_is_its_string_and_stop(task):
    items = task.items(10_000, length=8, seed=0)
    assert items.prompts.shape == (10_000, 10)
    assert items.answers.shape == (10_000, 9)
    assert (items.prompts[:, 0] == task.BOS).all()
    assert (items.prompts[:, -1] == task.SEP).all()
    assert_same_bits(items.prompts[:, 1:-1], items.answers[:, :-1])
    assert (items.answers[:, -1] == task.EOS).all()
    assert (items.prompts[:, 1:-1] >= task.FIRST_LETTER).all()


@LAYOUTS
def test_an_oracle_scores_one_and_one_wrong_token_less(task):
    targets = task.sample(20, seed=0, index=0).targets
    assert (task.accuracy(targets, targets) == 1).all()
    predictions = targets.clone()
    row, place = 4, int((targets[4] >= task.FIRST_LETTER).nonzero()[0])
    predictions[row, place] = 3 if targets[row, place] != 3 else 4
    accuracy = task.accuracy(predictions, targets)
    assert accuracy[row] < 1
    assert (accuracy[torch.arange(20) != row] == 1).all()


def test_a_guesser_scores_chance():
    targets = FIXED.sample(1000, seed=0, index=0).targets
    accuracy = FIXED.accuracy(guess(FIXED, targets, seed=1), targets).mean()
    trials, chance = 16_000, 1 / 26
    assert abs(float(accuracy) - chance) < 4 * (chance * (1 - chance) / trials) ** 0.5

    task = Copying(length=1, layout="jelassi2024", max_context=50)
    targets = task.sample(1000, seed=0, index=0).targets
    accuracy = task.accuracy(guess(task, targets, seed=1), targets).mean()
    assert abs(float(accuracy) - chance) < 4 * (chance * (1 - chance) / 10_000) ** 0.5


def test_the_layouts_score_stopping_differently():
    targets = FIXED.sample(3, seed=0, index=0).targets
    endless = torch.where(targets == FIXED.EOS, 5, targets)
    assert FIXED.accuracy(endless, targets).tolist() == [0, 0, 0]
    assert replace(FIXED, layout="jelassi2024").accuracy(endless, targets).tolist() == [1, 1, 1]


def test_accuracy_of_a_packed_row_is_the_mean_over_its_answers():
    targets = torch.tensor([[IGNORE, 5, 2, IGNORE, 6, 2, IGNORE, 7, 2, IGNORE], [IGNORE, 5, 2] + [IGNORE] * 7])
    predictions = torch.tensor([[0, 5, 9, 0, 9, 2, 0, 7, 2, 0], [0, 5, 2] + [0] * 7])
    assert PACKED.accuracy(predictions, targets).tolist() == [2 / 3, 1]


@LAYOUTS
def test_grade_agrees_with_accuracy_on_exam_answers(task):
    answers = task.items(200, length=5, seed=0).answers
    predictions = torch.where(torch.rand(answers.shape, generator=torch.Generator().manual_seed(0)) < 0.1, 2, answers)
    assert_same_bits(task.grade(score(predictions, answers, task.eos)), task.accuracy(predictions, answers))
    assert 0 < task.accuracy(predictions, answers).mean() < 1


def test_text_goes_to_tokens_and_back():
    ids = FIXED.encode("abcxyz")
    assert ids.tolist() == [3, 4, 5, 26, 27, 28]
    assert FIXED.decode(ids) == "abcxyz"
    item = FIXED.question("hello")
    assert FIXED.decode(item.prompts[0]) == "<BOS>hello<SEP>"
    assert FIXED.decode(item.answers[0]) == "hello<EOS>"


def test_the_strange_characters_of_a_text_are_named():
    with pytest.raises(ValueError, match="'Hé y' holds ' ', 'H', 'é'"):
        FIXED.encode("Hé y")
    with pytest.raises(ValueError, match="empty"):
        FIXED.question("")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"length": 0}, "length 0"),
        ({"length": -3, "layout": "jelassi2024"}, "length -3"),
        ({"layout": "cui"}, "'cui': known ones are cui2024, jelassi2024"),
        ({"length": 5, "layout": "jelassi2024", "min_length": 6}, "min_length 6: from 1 to length"),
        ({"length": 5, "layout": "jelassi2024", "min_length": 0}, "min_length 0"),
        ({"length": 5, "layout": "jelassi2024", "max_context": 12}, "max_context 12: an example of length 5 takes 13"),
        ({"length": 5, "layout": "jelassi2024", "max_context": 0}, "max_context 0"),
        ({"length": 5, "min_length": 5}, "min_length 5: cui2024"),
        ({"length": 5, "max_context": 50}, "max_context 50: cui2024"),
    ],
)
def test_impossible_tasks_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        Copying(**arguments)


@LAYOUTS
def test_impossible_requests_are_refused(task):
    for arguments in [(0, 0, 0), (1, -1, 0), (1, 2**64, 0), (1, 0, -1)]:
        with pytest.raises(ValueError, match=r"wanted|numbered"):
            task.sample(*arguments)
    with pytest.raises(ValueError, match="length 0"):
        task.items(1, length=0, seed=0)
    with pytest.raises(ValueError, match="0 items"):
        task.items(0, length=5, seed=0)


@LAYOUTS
def test_a_task_is_a_plain_value(task):
    assert hash(task) == hash(replace(task))
    assert cattrs.structure(cattrs.unstructure(task), Copying) == task


@LAYOUTS
def test_no_global_random_state_is_read_or_moved(task):
    torch.manual_seed(0)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    task.sample(3, seed=0, index=0)
    assert_same_bits(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()


def test_a_batch_moves_to_a_device_whole():
    batch = FIXED.sample(2, seed=0, index=0).to("meta")
    assert {tensor.device.type for tensor in vars(batch).values()} == {"meta"}
