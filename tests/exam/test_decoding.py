import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relnet.exam import complete, free_running, teacher_forced
from relnet.tasks import IGNORE, Copying, score
from tests.assertions import assert_same_bits
from tests.exam.copiers import EOS, Broken, Copier, Endless, Erring, Hasty, Undecided

TASK = Copying(length=8)


@given(st.sampled_from([Copier, Erring, Endless, Hasty]), st.integers(1, 20), st.integers(0, 1000), st.integers(2, 60))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_both_ways_agree_up_to_the_first_error(kind, length, seed, one_in):
    subject = Erring(one_in=one_in) if kind is Erring else kind()
    items = TASK.items(20, length, seed)
    forced, forced_ties = teacher_forced(subject, items)
    free, free_ties = free_running(subject, items)
    assert not forced_ties.any()
    assert not free_ties.any()
    errors = score(forced, items.answers, TASK.eos).first_error
    assert_same_bits(score(free, items.answers, TASK.eos).first_error, errors)
    for row, error in enumerate(errors.tolist()):
        same = length + 1 if error < 0 else error + 1
        assert_same_bits(free[row, :same], forced[row, :same])


def test_teacher_forced_and_free_running_differ_after_an_error():
    # Else the test above could pass with one computed from the other.
    items = TASK.items(100, 8, seed=0)
    forced, free = (decode(Erring(one_in=4), items)[0] for decode in (teacher_forced, free_running))
    errors = score(forced, items.answers, TASK.eos).first_error
    assert (errors >= 0).any()
    assert (errors < 0).any(), "some strings are copied whole"
    assert (free != forced).any()


def test_a_copier_is_right_both_ways():
    items = TASK.items(5, 8, seed=0)
    for decode in (teacher_forced, free_running):
        predictions, ties = decode(Copier(), items)
        assert_same_bits(predictions, items.answers)
        assert not ties.any()


def test_nothing_is_said_after_stopping():
    items = TASK.items(5, 8, seed=0)
    predictions, _ = free_running(Hasty(), items)
    assert_same_bits(predictions[:, :4], items.answers[:, :4])
    assert (predictions[:, 4] == TASK.eos).all()
    assert (predictions[:, 5:] == IGNORE).all()


def test_one_that_never_stops_is_cut_at_the_length_of_the_answer():
    items = TASK.items(5, 8, seed=0)
    predictions, _ = free_running(Endless(), items)
    assert predictions.shape == items.answers.shape
    assert (predictions[:, -1] == 28).all()


def test_the_exam_reads_no_more_tokens_than_the_answer_needs():
    class Counting(Endless):
        steps = 0

        def step(self, tokens, state):
            self.steps += 1
            return super().step(tokens, state)

    subject = Counting()
    free_running(subject, TASK.items(3, 8, seed=0))
    assert subject.steps == 8


def test_ties_are_reported_where_they_are_and_only_while_answering():
    items = TASK.items(50, 8, seed=0)
    even = items.answers % 2 == 0
    for decode in (teacher_forced, free_running):
        predictions, ties = decode(Undecided(), items)
        assert_same_bits(predictions, items.answers)
        assert_same_bits(ties, even)

    class HastyAndUndecided(Undecided, Hasty):
        pass

    _, ties = free_running(HastyAndUndecided(), items)
    assert_same_bits(ties[:, :4], even[:, :4])
    assert ties[:, 4].all()
    assert not ties[:, 5:].any()


def test_equal_infinite_logits_are_a_tie():
    class Infinite(Copier):
        def express(self, tokens):
            return torch.full((len(tokens), self.vocab_size), torch.inf)

    assert teacher_forced(Infinite(), TASK.items(2, 8, seed=0))[1].all()


@pytest.mark.parametrize("decode", [teacher_forced, free_running])
def test_nan_logits_are_an_error_that_names_subject_and_position(decode):
    with pytest.raises(ValueError, match="fragile: the logits at position 12 of row 1 are NaN"):
        decode(Broken(name="fragile"), TASK.items(3, 8, seed=0))
    decode(Broken(), TASK.items(1, 8, seed=0))


def test_nan_logits_after_stopping_are_no_error():
    class StopsInTime(Broken):
        def say(self, right, place, length, digest):
            return torch.where(torch.arange(len(right)) > 0, EOS, right)

    predictions, ties = free_running(StopsInTime(), TASK.items(3, 8, seed=0))
    assert (predictions[1:, 1:] == IGNORE).all()
    assert (predictions[0] != IGNORE).all()
    assert not ties.any()


def test_completing_shows_what_was_said():
    assert complete(Copier(), TASK, "hello") == "hello<EOS>"
    assert complete(Endless(), TASK, "hello") == "helloz"
    assert complete(Hasty(), TASK, "hello") == "he<EOS>"


def test_completing_refuses_what_cannot_be_asked():
    with pytest.raises(ValueError, match="' '"):
        complete(Copier(), TASK, "hello you")
    assert complete(Copier(limit=12), TASK, "hello") == "hello<EOS>"
    with pytest.raises(ValueError, match="'hello' needs 12 tokens, the model takes at most 11"):
        complete(Copier(limit=11), TASK, "hello")
