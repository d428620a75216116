import copy
import sys

import numpy as np
import pytest
import torch
from torch import nn

from relnet.curvature.attacks import AttackResult, evaluate_attacks, masked_at
from tests.assertions import assert_same_bits

evasion = pytest.importorskip("art.attacks.evasion")

# Five classes along five channels of flat images: the largest mean wins, so the distance to the next class is known.
X = torch.tensor(
    [[0.9, 0.1, 0.2, 0.1, 0.1], [0.2, 0.4, 0.3, 0.1, 0.0], [0.0, 0.5, 0.6, 0.5, 0.1], [0.5, 0.5, 0.5, 0.1, 0.9]]
)
X = X[:, :, None, None].expand(4, 5, 8, 8).contiguous()
Y = torch.tensor([0, 1, 2, 3])


class Largest(nn.Module):
    """Logits are the channels' means, times a scale that is a parameter; dropout in training mode."""

    def __init__(self, scale=10.0):
        super().__init__()
        self.scale, self.dropout = nn.Parameter(torch.tensor(scale)), nn.Dropout(0.9)

    def forward(self, x):
        return self.scale * self.dropout(x).mean((2, 3))


class Saturated(nn.Module):
    """Right and easily fooled, but its loss is flat in float32: gradient attacks see nothing."""

    def forward(self, x):
        return 1e4 * x.mean((2, 3))


def accuracies(model, attacks, eps, **settings):
    return [result.accuracy for result in evaluate_attacks(model, X, Y, attacks=attacks, eps=eps, **settings)]


@pytest.mark.parametrize("attack", ["pgd", "auto", "square"])
def test_an_attack_finds_what_is_within_reach_and_no_more(attack):
    # Margins of the samples that are right: 0.7, 0.1, 0.1; half of that must be crossed. The fourth is wrong from the start.
    expected = {0.0: 0.75, 0.04: 0.75, 0.08: 0.25, 0.6: 0.0}
    # AutoAttack and PGD project onto the ball; whatever oversteps it would make the second figure lower.
    found = accuracies(Largest(), (attack,), tuple(expected), steps=10, queries=300)
    assert found == list(expected.values())


def test_eps_zero_is_the_clean_accuracy_whatever_mode_the_model_is_in_and_the_model_is_left_as_it_was():
    model = Largest().train()
    model.scale.grad = torch.tensor(3.0)
    before = copy.deepcopy(model.state_dict())
    numpy_state, torch_state = np.random.get_state()[1].copy(), torch.get_rng_state()
    assert accuracies(model, ("pgd",), (0.0, 0.2), steps=3)[0] == 0.75
    assert model.training
    assert model.scale.requires_grad
    assert model.scale.grad == 3
    assert_same_bits(model.scale, before["scale"])
    assert (np.random.get_state()[1] == numpy_state).all()
    assert torch.equal(torch.get_rng_state(), torch_state)


class Recorded:
    """Stands for an attack: keeps what it was made with, and tries what `tries` says."""

    def __init__(self, tries=lambda inputs, eps: inputs):
        self.tries, self.made, self.given = tries, [], []

    def __call__(self, classifier, **arguments):
        self.made.append(arguments)
        return self

    def generate(self, inputs, labels):
        self.given.append(len(inputs))
        return self.tries(inputs, self.made[-1]["eps"])


def replaced(monkeypatch, name, **arguments):
    recorded = Recorded(**arguments)
    monkeypatch.setattr(evasion, name, recorded)
    return recorded


@pytest.mark.parametrize("steps", [1, 2, 40])
def test_a_step_is_never_longer_than_eps(monkeypatch, steps):
    recorded = replaced(monkeypatch, "ProjectedGradientDescentPyTorch")
    accuracies(Largest(), ("pgd",), (0.04, 0.08), steps=steps)
    for made, eps in zip(recorded.made, (0.04, 0.08), strict=True):
        assert made["eps"] == eps
        assert 0 < made["eps_step"] <= eps


def test_restarts_and_batch_size_are_the_attack_s_own(monkeypatch):
    recorded = replaced(monkeypatch, "ProjectedGradientDescentPyTorch"), replaced(monkeypatch, "SquareAttack")
    accuracies(Largest(), ("pgd", "square"), (0.1,), restarts=3, batch_size=2, queries=7)
    (pgd,), (square,) = (each.made for each in recorded)
    assert (pgd["num_random_init"], pgd["batch_size"]) == (3, 2)
    assert (square["nb_restarts"], square["batch_size"], square["max_iter"]) == (3, 2, 7)


def test_batches_of_any_size_give_the_same_accuracy():
    every = [accuracies(Largest(), ("pgd",), (0.04, 0.08), steps=5, batch_size=size) for size in (1, 3, 256)]
    assert every == [[0.75, 0.25]] * 3


def test_accuracy_never_rises_with_eps_in_whatever_order_they_are_given(monkeypatch):
    # An attack that fools the second sample within the smaller ball and finds nothing within the larger one.
    push = np.float32([0, -0.06, 0.06, 0, 0])[:, None, None]
    recorded = replaced(
        monkeypatch, "ProjectedGradientDescentPyTorch", tries=lambda inputs, eps: inputs + push if eps < 0.5 else inputs
    )
    for eps in ((0.1, 0.6), (0.6, 0.1)):
        assert accuracies(Largest(), ("pgd",), eps) == [0.5, 0.5]
    # What has fallen is attacked no more.
    assert recorded.given == [3, 2] * 2


@pytest.mark.parametrize(("overshoot", "fallen"), [(5e-5, False), (1e-7, True)])
def test_a_try_that_oversteps_eps_ends_no_search_of_auto(monkeypatch, overshoot, fallen):
    recorded = replaced(monkeypatch, "AutoAttack")
    accuracies(Largest(), ("auto",), (0.2,))
    # The toolbox's own rule (art.attacks.evasion.auto_attack.run_attack).
    assert ((1 - 1e-4) * 0.2 * (1 + overshoot) <= recorded.made[0]["eps"]) == fallen


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_model_of_another_precision_is_attacked_in_float32(dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(320, 5)).to(dtype)
    x, y = X.repeat(4, 1, 1, 1), torch.arange(16) % 5
    assert evaluate_attacks(model, x, y, eps=(0.0, 0.1), steps=3, queries=5) == evaluate_attacks(
        copy.deepcopy(model).float(), x, y, eps=(0.0, 0.1), steps=3, queries=5
    )
    assert model[1].weight.dtype == dtype


def test_euclidean_balls():
    # 0.1 between two channels of 64 pixels is crossed by 0.05 in each of the 128, a length of 0.57; with two rivals 0.65 is enough.
    assert accuracies(Largest(), ("pgd",), (0.5, 0.75), norm="l2", steps=40) == [0.75, 0.25]


def test_masked_gradients_are_told_by_their_share_and_by_the_black_box():
    results = evaluate_attacks(Saturated(), X, Y, eps=(0.0, 0.1), attacks=("pgd", "square"), steps=5, queries=300)
    assert results[0].zero_gradients >= 0.5
    accuracy = {(result.attack, result.eps): result.accuracy for result in results}
    assert accuracy["square", 0.1] == 0.25
    assert masked_at(results) == [0.1]
    open_model = evaluate_attacks(Largest(), X, Y, eps=(0.0, 0.1), steps=5, queries=300)
    assert open_model[0].zero_gradients == 0
    assert masked_at(open_model) == []
    black_box = [AttackResult("pgd", "linf", 0.1, 4, 0.8, 0.0), AttackResult("square", "linf", 0.1, 4, 0.7, 0.0)]
    assert masked_at(black_box) == [0.1]


def test_the_seed_decides():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 5))
    x, y = torch.rand(64, 1, 8, 8), torch.randint(5, (64,))
    first, second = (
        evaluate_attacks(model, x, y, eps=(0.05,), attacks=("square",), queries=20, seed=7) for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": X * 2}, r"in \[0, 1\]"),
        ({"x": X[:0], "y": Y[:0]}, r"in \[0, 1\]"),
        ({"y": Y.float()}, "int64"),
        ({"y": Y[:2]}, "a label >= 0 a sample"),
        ({"y": Y + 9}, "knows 5 classes"),
        ({"eps": (-0.1,)}, "numbers >= 0"),
        ({"attacks": ("fgsm",)}, "attack 'fgsm'; give one of pgd"),
        ({"norm": "l1"}, "norm 'l1'; give one of linf"),
        ({"steps": 0}, "at least 1 of each"),
        ({"model": nn.Sequential(nn.Flatten(), nn.Linear(320, 3)), "y": Y % 3, "attacks": ("auto",)}, "at least 4"),
        ({"x": X[:, :, 0, 0]}, "only 'pgd'"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    arguments = {"model": Largest(), "x": X, "y": Y} | change
    with pytest.raises(ValueError, match=message):
        evaluate_attacks(**arguments)


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "art.attacks", None)
    with pytest.raises(ModuleNotFoundError, match=r"relnet\[attacks\]"):
        evaluate_attacks(Largest(), X, Y, eps=(0.1,))
