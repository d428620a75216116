from dataclasses import dataclass

import pytest
import torch
from torch import nn

from relnet.exam import ModelSubject, evaluate, free_running, teacher_forced
from relnet.tasks import Copying, Items
from tests.assertions import assert_close, assert_same_bits


@dataclass(frozen=True)
class Config:
    vocab_size: int = 29
    context: int | None = 40


class Recurrent(nn.Module):
    """A small recurrent model of the library's signature; dropout shows whether it is in evaluation mode."""

    def __init__(self):
        super().__init__()
        self.config = Config()
        self.embedding = nn.Embedding(29, 16)
        self.dropout = nn.Dropout(0.5)
        self.frozen = nn.Dropout(0.5).eval()
        self.recurrent = nn.GRU(16, 16, batch_first=True)
        self.head = nn.Linear(16, 29)

    def forward(self, ids, state=None, mask=None):
        hidden, state = self.recurrent(self.frozen(self.dropout(self.embedding(ids))), state)
        return self.head(hidden), state


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Recurrent()


def test_a_model_gives_the_same_logits_at_once_and_step_by_step(model):
    subject = ModelSubject(model)
    ids = torch.randint(0, 29, (3, 9), generator=torch.Generator().manual_seed(1))
    whole = subject.logits(ids)
    logits, state = subject.start(ids[:, :4])
    parts = [logits]
    for token in ids[:, 4:].T:
        logits, state = subject.step(token, state)
        parts.append(logits)
    assert_close(torch.stack(parts, dim=1), whole[:, 3:])
    assert not whole.requires_grad


def test_the_training_flags_are_as_before(model):
    before = [module.training for module in model.modules()]
    assert set(before) == {True, False}
    evaluate(ModelSubject(model), Copying(length=4), lengths=[4], num=3)
    assert [module.training for module in model.modules()] == before


def test_the_training_flags_are_as_before_after_an_error(model):
    before = [module.training for module in model.modules()]
    with pytest.raises(IndexError):
        ModelSubject(model).logits(torch.tensor([[29]]))
    assert [module.training for module in model.modules()] == before


def test_what_a_model_says_by_itself_it_also_predicts_teacher_forced(model):
    items = Copying(length=12).items(50, 12, seed=0)
    said, ties = free_running(ModelSubject(model), items)
    whole = (said != Copying.EOS).all(1) & ~ties.any(1)
    assert whole.sum() > 10
    own = Items(items.prompts[whole], said[whole])
    forced, _ = teacher_forced(ModelSubject(model), own)
    assert_same_bits(forced, own.answers)
    assert len(forced[:, 1:].unique(dim=0)) > 10, "the answers depend on the prompts"


def test_limit_vocabulary_and_name_come_from_the_model(model):
    subject = ModelSubject(model)
    assert (subject.name, subject.vocab_size, subject.limit) == ("Recurrent", 29, 40)
    assert ModelSubject(model, "gru").name == "gru"


def test_ids_go_to_the_device_of_the_model(model):
    seen = []
    model.embedding.register_forward_pre_hook(lambda _, ids: seen.append(ids[0].device.type))
    ModelSubject(model.to("meta")).logits(torch.zeros(1, 3, dtype=torch.int64))
    assert seen == ["meta"]
