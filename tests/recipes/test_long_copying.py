import torch

from relnet import nn, recipes, run
from relnet.tasks import UnrepeatedCopying
from relnet.theory import longest_string_of

SMALL = {"length": 6, "width": 16, "windows": (1, 2), "window_width": 8, "heads": 1, "head_width": 8, "before": 5}


def test_the_model_gathers_in_windows_and_then_looks_everywhere_at_any_length():
    config = recipes.long_copying()
    gather, look_up = config.model.mixers
    assert gather.windows == (1, 2, 3, 4, 5)
    assert look_up.windows is None
    assert config.model.positions == "none"
    assert config.model.context is None
    assert config.task == UnrepeatedCopying(length=20, layout="jelassi2024", min_length=5, openings=0.1, before=120)
    # What it keeps grows with the string, or none so long could be copied.
    assert longest_string_of(nn.SequenceModel(recipes.long_copying(**SMALL).model)) == float("inf")


def test_a_run_is_examined_at_lengths_far_beyond_the_trained_one(tmp_path):
    config = recipes.long_copying(**SMALL, max_steps=2, batch_size=4)
    assert run.config_from_json(run.config_to_json(config)) == config
    run.train(config, tmp_path / "run", device="cpu")
    rows = run.examine(tmp_path / "run", lengths=[6, 60], num=3)
    assert {(row.task, row.length, row.items, row.note) for row in rows} == {
        ("unrepeated-copying-4-jelassi2024", length, 3, "") for length in (6, 60)
    }


def test_another_seed_is_another_model_and_other_strings():
    one, two = (recipes.long_copying(**SMALL, seed=seed) for seed in (0, 1))
    assert one.train.seed != two.train.seed
    first, second = (one.task.sample(8, seed=config.train.seed, index=0).inputs for config in (one, two))
    assert not torch.equal(first, second)
