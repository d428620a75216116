import math

import pytest
import torch

from relnet.train import TrainConfig
from relnet.train.optim import learning_rate, make_optimiser, optimiser_tensors, restore_optimiser
from tests.assertions import assert_close, assert_same_bits
from tests.train.fakes import TinyModel, tiny_model


def test_warm_up_starts_at_zero_and_is_linear():
    config = TrainConfig(lr=5e-4, warmup_steps=50)
    assert learning_rate(config, 0) == 0.0
    assert learning_rate(config, 25) == pytest.approx(2.5e-4)
    assert learning_rate(config, 49) == pytest.approx(4.9e-4)
    assert {learning_rate(config, step) for step in (50, 51, 299, 10_000)} == {5e-4}


def test_without_warm_up_the_first_update_has_the_whole_learning_rate():
    assert learning_rate(TrainConfig(lr=5e-4, warmup_steps=0), 0) == 5e-4


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_schedules_go_from_lr_to_final_lr_and_stay_there(schedule):
    config = TrainConfig(lr=1e-3, final_lr=1e-4, warmup_steps=10, steps=110, schedule=schedule)
    rates = [learning_rate(config, step) for step in range(10, 111)]
    assert rates[0] == pytest.approx(1e-3)
    assert rates[50] == pytest.approx(5.5e-4)
    assert rates[-1] == pytest.approx(1e-4)
    assert rates == sorted(rates, reverse=True)
    assert learning_rate(config, 500) == pytest.approx(1e-4)


def test_linear_and_cosine_differ_at_a_quarter_of_the_way():
    at_quarter = {
        schedule: learning_rate(TrainConfig(lr=1.0, warmup_steps=0, steps=100, schedule=schedule), 25)
        for schedule in ("linear", "cosine")
    }
    assert at_quarter["linear"] == pytest.approx(0.75)
    assert at_quarter["cosine"] == pytest.approx((1 + math.cos(math.pi / 4)) / 2)


def test_a_warm_up_longer_than_the_run_is_only_a_warm_up():
    config = TrainConfig(lr=1.0, warmup_steps=50, steps=2, schedule="cosine")
    assert [learning_rate(config, step) for step in range(2)] == [0.0, 0.02]


def adam_by_hand(weight, gradients, lr, beta1, beta2, decay):
    m = v = torch.zeros_like(weight)
    for n, gradient in enumerate(gradients, start=1):
        m = beta1 * m + (1 - beta1) * gradient
        v = beta2 * v + (1 - beta2) * gradient**2
        step = m / (1 - beta1**n) / ((v / (1 - beta2**n)).sqrt() + 1e-8)
        weight = weight * (1 - lr * decay) - lr * step
    return weight


def test_updates_are_adam_with_decoupled_decay_of_matrices_only():
    model = TinyModel().double()
    config = TrainConfig(lr=1e-2, beta1=0.8, beta2=0.95, weight_decay=0.3)
    optimiser = make_optimiser(model, config)
    generator = torch.Generator().manual_seed(0)
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    gradients = {name: torch.randn(3, *p.shape, generator=generator).double() for name, p in start.items()}
    for n in range(3):
        for name, parameter in model.named_parameters():
            parameter.grad = gradients[name][n]
        optimiser.step()
    for name, parameter in model.named_parameters():
        decay = 0.0 if name.endswith("bias") else 0.3
        expected = adam_by_hand(start[name], gradients[name], 1e-2, 0.8, 0.95, decay)
        assert_close(parameter, expected, tolerance=1e-12, name=name)


def test_frozen_parameters_are_not_trained():
    model = tiny_model()
    model.embedding.weight.requires_grad_(False)
    groups = make_optimiser(model, TrainConfig()).param_groups
    assert all(p is not model.embedding.weight for group in groups for p in group["params"])


def test_a_restored_optimiser_goes_on_with_the_same_bits():
    models = [tiny_model(dropout=0.0) for _ in range(2)]
    optimisers = [make_optimiser(model, TrainConfig()) for model in models]

    def update(which):
        logits, _ = models[which](torch.arange(8)[None])
        optimisers[which].zero_grad()
        logits.square().mean().backward()
        optimisers[which].step()

    update(0)
    models[1].load_state_dict(models[0].state_dict())
    restore_optimiser(optimisers[1], models[1], optimiser_tensors(optimisers[0], models[0]))
    for which in (0, 1):
        update(which)
    for (name, one), two in zip(models[0].named_parameters(), models[1].parameters(), strict=True):
        assert_same_bits(two, one, name)


def test_the_papers_cosine_goes_from_its_peak_after_2000_updates_to_a_tenth():
    config = TrainConfig(lr=5e-4, final_lr=5e-5, warmup_steps=2000, steps=6375, schedule="cosine")
    assert learning_rate(config, 1000) == pytest.approx(2.5e-4)
    assert learning_rate(config, 2000) == pytest.approx(5e-4)
    assert learning_rate(config, 2000 + 4375 // 2) == pytest.approx(2.75e-4, rel=1e-3)
    assert learning_rate(config, 6375) == pytest.approx(5e-5)
