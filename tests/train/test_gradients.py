import copy

import pytest
import torch

from relnet.tasks import IGNORE
from relnet.train import gradients, seconds_per_step
from tests.assertions import assert_same_bits
from tests.train.fakes import SuccessorTask, TinyModel, tiny_config, tiny_model


class Watching(TinyModel):
    """Notes what it is asked."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, ids, state=None, mask=None):
        logits, state = super().forward(ids)
        self.seen.append((self.training, ids.shape[0], logits.dtype))
        return logits, state

    def __deepcopy__(self, memo):
        twin = Watching()
        twin.seen = self.seen
        return twin


def test_the_estimate_is_of_a_micro_batch_in_the_precision_of_the_run():
    model = Watching().eval()
    config = tiny_config(batch_size=12, accumulate=3, precision="bfloat16")
    assert seconds_per_step(model, SuccessorTask(), config, "cpu") > 0
    assert model.seen == [(True, 4, torch.bfloat16)] * 2


def test_the_estimate_of_one_process_is_of_its_own_share(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    model = Watching()
    seconds_per_step(model, SuccessorTask(), tiny_config(batch_size=12, accumulate=3), "cpu")
    assert {size for _, size, _ in model.seen} == {2}


@pytest.mark.parametrize(("long", "times"), [(0.0, 1), (1e9, 2)])
def test_a_long_micro_batch_is_not_done_twice(monkeypatch, long, times):
    monkeypatch.setattr(gradients, "LONG", long)
    model = Watching()
    seconds_per_step(model, SuccessorTask(), tiny_config(), "cpu")
    assert len(model.seen) == times


def test_the_estimate_counts_all_micro_batches(monkeypatch):
    now = iter(range(100))
    monkeypatch.setattr(gradients.time, "perf_counter", lambda: float(next(now)))
    assert seconds_per_step(tiny_model(), SuccessorTask(), tiny_config(accumulate=4), "cpu") == 4.0


def test_the_estimate_leaves_no_trace():
    class Counting(TinyModel):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, ids, state=None, mask=None):
            self.calls += 1
            return super().forward(ids)

    model = Counting().eval()
    before, generator = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    seconds_per_step(model, SuccessorTask(), tiny_config(), "cpu")
    assert_same_bits(torch.get_rng_state(), generator)
    assert not model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    for name, tensor in model.state_dict().items():
        assert_same_bits(tensor, before[name], name)


def test_ignored_targets_have_no_part_in_the_loss():
    model = tiny_model(dropout=0.0)
    inputs = torch.arange(8).view(2, 4)
    targets = torch.tensor([[1, IGNORE, IGNORE, 3], [IGNORE, 2, IGNORE, IGNORE]])
    loss, _, predictions = gradients.add_gradients(model, inputs, targets, "float32", num_targets=3)
    logits = model(inputs)[0]
    counted = targets != IGNORE
    expected = -logits.log_softmax(-1)[counted].gather(1, targets[counted][:, None]).mean()
    assert float(loss) == pytest.approx(expected.item(), rel=1e-6)
    assert_same_bits(predictions, logits.argmax(-1))
