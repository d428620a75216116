import dataclasses

import pytest

from relnet.train import TrainConfig
from tests.train.fakes import train_tiny


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("batch_size", 0),
        ("accumulate", 0),
        ("checkpoint_every", 0),
        ("keep", 0),
        ("validate_every", 0),
        ("warmup_steps", -1),
        ("seed", -1),
        ("seed", 2**63),
        ("seed", 2**64),
        ("stay", -1),
        ("lr", 0.0),
        ("lr", float("nan")),
        ("clip", 0.0),
        ("weight_decay", -0.1),
        ("final_lr", float("inf")),
        ("beta1", 1.0),
        ("beta2", -0.1),
        ("schedule", "step"),
        ("precision", "float16"),
        ("stop_accuracy", 0.0),
        ("stop_accuracy", 99.0),
    ],
)
def test_a_setting_out_of_range_is_refused_by_name_and_value(name, value):
    with pytest.raises(ValueError, match=rf"^{name}={value}|^{name}='{value}'"):
        TrainConfig(**{name: value})


def test_the_largest_seed_trains(tmp_path):
    assert train_tiny(tmp_path, steps=1, seed=2**63 - 1).steps == 1


def test_micro_batches_must_divide_the_batch():
    with pytest.raises(ValueError, match=r"batch_size=64: must be a multiple of accumulate=3"):
        TrainConfig(accumulate=3)


def test_the_defaults_are_the_papers_at_batch_64():
    config = dataclasses.asdict(TrainConfig())
    paper = {"batch_size": 64, "lr": 5e-4, "warmup_steps": 50, "beta1": 0.9, "beta2": 0.999, "clip": 1.0}
    assert {name: config[name] for name in paper} == paper
    assert (config["schedule"], config["stop_accuracy"], config["stay"]) == ("constant", 0.99, 20)
