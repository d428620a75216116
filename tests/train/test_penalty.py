"""A penalty in the loop: what it is, where it goes, and that it stays the same over micro-batches, processes and resumptions."""

import json
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relnet.tasks import IGNORE
from relnet.train import CurvaturePenalty, load_weights
from relnet.train.gradients import add_gradients
from relnet.train.log import read_log
from tests.assertions import assert_close, assert_same_bits
from tests.launching import launch_two
from tests.train.fakes import EXACT, LENGTH, VOCABULARY, SuccessorTask, TinyModel, tiny_model, train_tiny


def dense_penalty(model, inputs, targets, jacobian_weight, hessian_weight):
    """The same by PyTorch's own dense Jacobians and Hessians, a string at a time."""
    total = []
    for ids, target in zip(inputs, targets, strict=True):
        counted = target != IGNORE
        x, logits = model.embedded(ids)

        def loss(x, logits=logits, target=target, counted=counted):
            return F.cross_entropy(logits(x)[counted], target[counted])

        J = torch.autograd.functional.jacobian(lambda x, f=logits, c=counted: f(x)[c], x, create_graph=True)
        H = torch.autograd.functional.hessian(loss, x, create_graph=True)
        norms = [torch.linalg.matrix_norm(A.reshape(-1, x.numel()), 2).square() for A in (J, H)]
        total.append(jacobian_weight * norms[0] + hessian_weight * norms[1])
    return torch.stack(total).mean()


def few(num=3, seed=0):
    batch = SuccessorTask().sample(num, seed, 0)
    return batch.inputs, batch.targets


@pytest.mark.parametrize("weights", [(0.3, 0.0), (0.0, 0.2), (0.3, 0.2)])
def test_value_and_gradient_are_those_of_the_dense_matrices(weights):
    model = tiny_model(dropout=0.0).double()
    inputs, targets = few()
    targets[0, :] = IGNORE
    targets[0, 2] = 1
    ours, dense = CurvaturePenalty(*weights, iters=LENGTH * VOCABULARY), dense_penalty(model, inputs, targets, *weights)
    value = ours(model, inputs, targets)
    assert_close(value, dense, 1e-10)
    parameters = list(model.parameters())
    actual, expected = (torch.autograd.grad(total, parameters) for total in (value, dense))
    for one, other in zip(actual, expected, strict=True):
        assert_close(one, other, 1e-8)


def test_a_string_without_targets_adds_nothing():
    model = tiny_model(dropout=0.0)
    inputs, targets = few()
    targets[0, :] = IGNORE
    rest = EXACT(model, inputs[1:], targets[1:])
    assert_close(EXACT(model, inputs, targets), rest * 2 / 3, 1e-5)


@pytest.mark.parametrize("norm", ["spectral", "frobenius"])
def test_more_steps_or_probes_come_nearer(norm):
    torch.manual_seed(0)
    model = tiny_model(dropout=0.0)
    inputs, targets = few()
    exact = EXACT(model, inputs, targets).item()
    if norm == "spectral":
        values = [CurvaturePenalty(0.3, 0.2, norm, n)(model, inputs, targets).item() for n in (1, 8)]
        assert values[0] < values[1] <= exact * (1 + 1e-5)
    else:
        many = [CurvaturePenalty(0.3, 0.2, norm, 64)(model, inputs, targets).item() for _ in range(2)]
        # The Frobenius norm is the larger one, and two estimates of it are near each other.
        assert min(many) > exact
        assert max(many) < 1.3 * min(many)


class Classifier(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(4, 3), nn.Tanh())


class SaysMore(Classifier):
    """One position a string, and a state."""

    def forward(self, x):
        return super().forward(x)[:, None], None


@pytest.mark.parametrize(("kind", "labels"), [(Classifier, [0, 2]), (SaysMore, [[0], [2]])])
def test_continuous_inputs_are_where_the_derivative_is_taken(kind, labels):
    torch.manual_seed(0)
    model, x, y = kind(), torch.rand(2, 2, 2), torch.tensor(labels)
    J, H = [], []
    for sample, label in zip(x, y.view(2, 1), strict=True):

        def function(sample):
            return nn.Sequential.forward(model, sample[None])

        def loss(sample, label=label):
            return F.cross_entropy(function(sample), label)

        J.append(torch.autograd.functional.jacobian(function, sample).view(3, 4))
        H.append(torch.autograd.functional.hessian(loss, sample).view(4, 4))
    for penalty, dense in ((CurvaturePenalty(1.0), J), (CurvaturePenalty(0.0, 1.0), H)):
        assert_close(penalty(model, x, y), torch.linalg.matrix_norm(torch.stack(dense), 2).square().mean())
        penalty.check(model, x, y)


class Normalised(nn.Sequential):
    """Batch norm and dropout on the way to the embedded input, batch norm behind it or not."""

    def __init__(self, behind):
        behind = nn.BatchNorm1d(3) if behind else nn.Identity()
        super().__init__(nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3), nn.Tanh(), behind)

    def embedded(self, x):
        first, second, *rest = self
        return second(first(x)), nn.Sequential(*rest)


@pytest.mark.parametrize("behind", [False, True])
def test_the_check_changes_nothing_and_names_batch_norm_where_it_couples(behind):
    torch.manual_seed(0)
    model, x, y = Normalised(behind), torch.rand(3, 4), torch.tensor([0, 2, 1])
    before, generator = {name: value.clone() for name, value in model.state_dict().items()}, torch.get_rng_state()
    refused = pytest.raises(ValueError, match=r"batch statistics in 0, 4.*coupled_samples") if behind else nullcontext()
    with refused:
        CurvaturePenalty(1.0, 1.0).check(model, x, y)
    assert torch.equal(generator, torch.get_rng_state())
    for name, value in model.state_dict().items():
        assert_same_bits(value, before[name], name)


def test_only_a_hessian_penalty_is_refused_where_the_third_derivative_is_not_finite():
    model, x, y = Powers(), torch.tensor([[0.0, 0.5], [0.3, 0.2]]), torch.tensor([0, 1])
    CurvaturePenalty(1.0).check(model, x, y)
    with pytest.raises(ValueError, match="no_third_derivative"):
        CurvaturePenalty(0.0, 1.0).check(model, x, y)


class Powers(nn.Module):
    def forward(self, x):
        return x.clamp(min=0) ** 2.5


def test_tokens_need_a_model_that_embeds_them():
    with pytest.raises(ValueError, match="Embedding has no method `embedded`"):
        CurvaturePenalty(1.0)(nn.Embedding(VOCABULARY, VOCABULARY), *few())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({}, "at least one above 0"),
        ({"jacobian_weight": -1.0}, "jacobian_weight=-1.0"),
        ({"hessian_weight": float("nan")}, "hessian_weight=nan"),
        ({"jacobian_weight": 1.0, "iters": 0}, "iters=0"),
        ({"jacobian_weight": 1.0, "norm": "nuclear"}, "norm='nuclear'"),
    ],
)
def test_what_makes_no_penalty_is_refused(arguments, told):
    with pytest.raises(ValueError, match=told):
        CurvaturePenalty(**arguments)


class Coupled(TinyModel):
    def embedded(self, ids):
        x, f = super().embedded(ids)
        return x, lambda x: f(x) + f(x).mean(0)


class Fused(TinyModel):
    def embedded(self, ids):
        def logits(x):
            q = self.hidden(x)[:, None]
            return self.readout(F.scaled_dot_product_attention(q, q, q)[:, 0])

        return self.embedding(ids), logits


@pytest.mark.parametrize(
    ("kind", "weights", "told"),
    [
        (Coupled, (1.0, 0.0), "jacobian_weight cannot be had of this model: coupled_samples"),
        (Coupled, (0.0, 1.0), "hessian_weight cannot be had of this model: coupled_samples"),
        (Fused, (1.0, 0.0), "no_second_derivative.*explicit softmax"),
    ],
)
def test_what_would_spoil_it_is_named_before_training(kind, weights, told):
    torch.manual_seed(0)
    with pytest.raises(ValueError, match=told):
        CurvaturePenalty(*weights).check(kind(), *few())


def test_a_model_in_which_nothing_is_wrong_passes_and_is_left_as_it_was():
    model = tiny_model()
    generator = torch.get_rng_state()
    EXACT.check(model, *few())
    assert_same_bits(torch.get_rng_state(), generator)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_under_bfloat16_the_penalty_stays_float32():
    model = tiny_model(dropout=0.0)
    inputs, targets = few()
    _, added, _ = add_gradients(model, inputs, targets, "bfloat16", 5, penalty=lambda *ids: EXACT(model, *ids))
    assert added.dtype == torch.float32
    assert_same_bits(added, EXACT(model, inputs, targets).detach())
    with torch.autocast("cpu", torch.bfloat16):
        assert_same_bits(EXACT(model, inputs, targets).detach(), added)


def test_a_run_logs_what_was_added_and_trains_on_it(tmp_path):
    model = tiny_model(dropout=0.0)
    train_tiny(tmp_path / "with", model, penalty=EXACT, steps=30, warmup_steps=0)
    train_tiny(tmp_path / "without", tiny_model(dropout=0.0), steps=30, warmup_steps=0)
    lines, plain = (read_log(tmp_path / name / "log.jsonl") for name in ("with", "without"))
    assert all("penalty" not in line for line in plain)
    batch = SuccessorTask().sample(8, 0, 0)
    first = EXACT(tiny_model(dropout=0.0), batch.inputs, batch.targets)
    assert lines[0]["penalty"] == pytest.approx(first.item(), rel=1e-5)
    # The loss is the cross-entropy alone: before the first update that of the run without.
    assert lines[0]["loss"] == pytest.approx(plain[0]["loss"], rel=1e-6)
    assert lines[-1]["penalty"] < EXACT(trained(tmp_path / "without"), batch.inputs, batch.targets).item() / 2


def trained(folder):
    model = tiny_model(dropout=0.0)
    load_weights(model, folder / "model.safetensors")
    return model


def test_micro_batches_change_it_by_rounding_only(tmp_path):
    for accumulate in (1, 4):
        train_tiny(tmp_path / str(accumulate), tiny_model(dropout=0.0), penalty=EXACT, accumulate=accumulate)
    logs = [read_log(tmp_path / name / "log.jsonl") for name in ("1", "4")]
    for one, four in zip(*logs, strict=True):
        assert four["penalty"] == pytest.approx(one["penalty"], rel=1e-4)
        assert four["grad_norm"] == pytest.approx(one["grad_norm"], rel=1e-3)


def test_a_stopped_run_goes_on_to_the_same_bits_with_random_starts_and_dropout(tmp_path):
    penalty = CurvaturePenalty(0.1, 0.1, iters=2)

    def stop(record):
        if record.step == 7:
            raise KeyboardInterrupt

    train_tiny(tmp_path / "whole", tiny_model(), penalty=penalty)
    with pytest.raises(KeyboardInterrupt):
        train_tiny(tmp_path / "run", tiny_model(), penalty=penalty, on_step=stop)
    train_tiny(tmp_path / "run", tiny_model(), penalty=penalty, resume=True)
    for name, tensor in trained(tmp_path / "whole").state_dict().items():
        assert_same_bits(trained(tmp_path / "run").state_dict()[name], tensor, name)
    logs = [[{**line, "seconds": 0} for line in read_log(tmp_path / run / "log.jsonl")] for run in ("run", "whole")]
    assert logs[0] == logs[1]


@pytest.mark.parametrize("other", [None, CurvaturePenalty(0.2)])
def test_a_run_is_not_resumed_with_another_penalty(tmp_path, other):
    train_tiny(tmp_path, tiny_model(), penalty=CurvaturePenalty(0.1), steps=2)
    with pytest.raises(ValueError, match="penalty="):
        train_tiny(tmp_path, tiny_model(), penalty=other, steps=2, resume=True)
    assert (
        "CurvaturePenalty(jacobian_weight=0.1"
        in json.loads((tmp_path / "result.json").read_text())["settings"]["penalty"]
    )


def test_a_penalty_that_is_not_finite_stops_the_run_and_is_named(tmp_path):
    nothing = lambda model, inputs, targets: model.readout.weight.sum() * float("nan")  # noqa: E731
    with pytest.raises(FloatingPointError, match="penalty nan"):
        train_tiny(tmp_path, tiny_model(), penalty=nothing)


def test_two_processes_train_on_it_as_one_does(tmp_path):
    done = launch_two("tests.train.script", tmp_path / "two", "--dropout", 0, "--device", "auto", "--penalty")
    assert done.returncode == 0, done.stderr
    train_tiny(tmp_path / "one", tiny_model(dropout=0.0), penalty=EXACT)
    for alone, together in zip(*(read_log(tmp_path / run / "log.jsonl") for run in ("one", "two")), strict=True):
        assert together["penalty"] == pytest.approx(alone["penalty"], rel=1e-4)
        assert together["grad_norm"] == pytest.approx(alone["grad_norm"], rel=1e-3)
