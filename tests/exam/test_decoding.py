import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from relnet import nn
from relnet.exam import ModelSubject, complete, decoding, free_running, teacher_forced
from relnet.tasks import IGNORE, Copying, Items, score
from tests.assertions import assert_same_bits
from tests.exam.copiers import EOS, Broken, Copier, Endless, Erring, Hasty, Undecided
from tests.exam.transformers_models import tiny

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


class Largest(TorchDispatchMode):
    """The most logits that there were at once: entries of a tensor of V channels that is no weight, V = 997."""

    entries = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for one in made if isinstance(made, tuple | list) else (made,):
            if isinstance(one, torch.Tensor) and one.dim() > 1 and one.shape[-1] == 997 and one.shape[-2] != 32:
                self.entries = max(self.entries, one.numel())
        return made


def own_model():
    torch.manual_seed(0)
    return nn.SequenceModel(nn.ModelConfig(997, 32, 1, 40, nn.CausalRNConfig()))


@pytest.mark.parametrize("kind", ["gpt_neox", "mamba", "llama", "rwkv", "relnet"])
def test_of_a_large_vocabulary_only_the_logits_of_answers_are_there(kind, monkeypatch):
    monkeypatch.setattr(decoding, "MOST_LOGITS", 4 * 25 * 997)
    subject = ModelSubject(own_model() if kind == "relnet" else tiny(kind, vocab_size=997))
    ids = torch.randint(0, 997, (10, 26), generator=torch.Generator().manual_seed(0))
    items = Items(ids[:, :20], ids[:, 20:])
    whole = subject.read(ids[:, :-1])[0][:, 19:].argmax(-1)
    with Largest() as largest:
        predictions, _ = teacher_forced(subject, items)
    assert_same_bits(predictions, whole)
    assert 0 < largest.entries <= 4 * 6 * 997
    with Largest() as largest:
        free, _ = free_running(subject, items)
    assert_same_bits(free[:, 0], whole[:, 0])
    assert 0 < largest.entries <= 10 * 997


class Whole(torch.nn.Module):
    """A model that computes all logits."""

    def __init__(self):
        super().__init__()
        self.model = own_model()
        self.config = self.model.config

    def forward(self, ids, state=None):
        return self.model(ids, state)


def test_of_a_model_that_computes_all_logits_a_few_rows_are_there_at_a_time(monkeypatch):
    subject = ModelSubject(Whole())
    ids = torch.randint(0, 997, (10, 26), generator=torch.Generator().manual_seed(0))
    items = Items(ids[:, :20], ids[:, 20:])
    whole = teacher_forced(subject, items)
    for rows in (1, 3, 10):
        monkeypatch.setattr(decoding, "MOST_LOGITS", rows * 25 * 997)
        with Largest() as largest:
            parts = teacher_forced(subject, items)
        for part, one in zip(parts, whole, strict=True):
            assert_same_bits(part, one)
        assert largest.entries == rows * 25 * 997


def test_nan_logits_are_told_by_their_row_among_all(monkeypatch):
    class Late(Broken):
        def logits(self, ids):
            logits = super().logits(ids)
            first = int(ids[0, 1]) == int(TASK.items(3, 8, seed=0).prompts[0, 1])
            return logits.nan_to_num() if first else logits.roll(1, 0)

    monkeypatch.setattr(decoding, "MOST_LOGITS", 2 * 18 * 29)
    with pytest.raises(ValueError, match="position 12 of row 2 are NaN"):
        teacher_forced(Late(), TASK.items(4, 8, seed=0))


def test_an_answer_may_end_where_what_was_said_is_whole():
    items = TASK.items(4, 8, seed=0)
    predictions, _ = free_running(Endless(), items, ends=lambda said: (said != IGNORE).sum(1) >= torch.arange(1, 5))
    assert (predictions != IGNORE).sum(1).tolist() == [1, 2, 3, 4]
