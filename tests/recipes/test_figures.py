"""The papers' figures as sweeps: their runs, and what they say is not as in the paper."""

import dataclasses

import numpy as np
import pytest

from relnet import recipes, run

FIGURES = {
    "figure2": (recipes.figure2, 6),
    "figure3": (recipes.figure3, 2),
    "figure4": (recipes.figure4, 60),
    "heads-lr": (recipes.heads_lr, 22),
}


@pytest.mark.parametrize("name", FIGURES)
def test_the_paper_size_has_the_paper_settings_and_the_cpu_size_says_what_it_changes(name):
    recipe, many = FIGURES[name]
    plan = recipe()
    assert (plan.name, len({planned.name for planned in plan.runs})) == (f"{name}-cpu", many)
    assert "batches of 64 for 320; float32 for bfloat16; training ends when 99 % has stayed for" in plan.changes
    assert recipe(size="paper", max_steps=7).changes == "7 updates for 2,000"
    paper = recipe(size="paper")
    assert (paper.name, paper.changes) == (f"{name}-paper", "")
    for planned in paper.runs:
        told = planned.config.train
        assert (told.batch_size, told.steps, told.precision, told.warmup_steps) == (320, 2000, "bfloat16", 50)
        assert (told.beta1, told.beta2, told.clip, told.give_up_after) == (0.9, 0.999, 1.0, None)
        assert told.stay >= told.steps - 1, "it goes on to the end"
        assert told.stop_accuracy == 0.99
        assert (planned.config.model.width, planned.config.model.depth) == (192, 12)


def test_figure6_has_the_published_or_the_said_learning_rate_at_the_paper_size():
    said, published = (recipes.figure6(size="paper", rate=rate).runs[0].config for rate in ("constant", "cosine"))
    assert (said.train.lr, said.train.schedule, said.train.steps) == (1e-4, "constant", 6375)
    assert (published.train.lr, published.train.final_lr, published.train.schedule) == (5e-4, 5e-5, "cosine")
    for rate in ("constant", "cosine"):
        assert recipes.figure6(size="paper", rate=rate).changes == ""


def test_what_figure6_changes_is_told_in_full():
    assert recipes.figure6(("texts/a.txt",), None).changes == (
        "text a.txt for wikitext-103; width 128 for 768; 4 blocks for 12; hidden 512 for 3,072 (linear-causalrn); "
        "600 updates for 6,375; batches of 8 for 320; learning rate 0.001 for 0.0001; warm-up of 50 updates for 2,000; "
        "cosine schedule for constant; float32 for bfloat16; heads 1 for 12 (transformer, linear-transformer); "
        "MLP 512 for 3,072 (transformer, linear-transformer)"
    )
    other = recipes.figure6(("texts/a.txt",), None, "paper", rate="cosine", lr=1e-3)
    assert other.changes == "text a.txt for wikitext-103; learning rate 0.001 for 0.0005; falling to 0.0001 for 5e-05"
    own = recipes.figure6(validation="mine.txt", size="paper")
    assert own.changes == "validated on mine.txt for wikitext-103/validation"


def test_what_figure7_changes_is_told_in_full(tmp_path):
    assert recipes.figure7().changes == (
        "shifts by 1 for 0 pixels; width 64 for 768; 4 blocks for 12; hidden 256 for 3,072 (linear-birn); "
        "heads 4 for 1 (linear-birn); 600 updates for 15,625; batches of 64 for 320; learning rate 0.002 for 0.0005; "
        "warm-up of 50 updates for 2,000; cosine schedule for constant; float32 for bfloat16; "
        "heads 4 for 12 (transformer, linear-transformer); MLP 256 for 3,072 (transformer, linear-transformer); "
        "images digits for CIFAR-5m"
    )
    for name, changes in (("other", "images other.npz for CIFAR-5m"), ("cifar5m_part0", "")):
        part = tmp_path / f"{name}.npz"
        np.savez(part, X=np.zeros((20, 32, 32, 3), np.uint8), Y=np.arange(20) % 10)
        assert recipes.figure7((str(part),), size="paper").changes == changes


def test_a_learning_rate_of_ones_own_is_told_at_the_paper_size():
    for recipe in (recipes.figure2, recipes.figure3, recipes.figure4):
        assert recipe(size="paper", lr=1e-3).changes == "learning rate 0.001 for 0.0005"
    assert recipes.figure2(size="paper", length=64).changes == "strings of 64 letters for 128"


def test_figure4_takes_the_paper_s_batches_on_a_cpu_too():
    ours, mine = recipes.figure4(), recipes.figure4(batch_size=320)
    assert "batches of 64 for 320" in ours.changes
    assert "batches" not in mine.changes
    for one, other in zip(mine.runs, ours.runs, strict=True):
        train = one.config.train
        assert dataclasses.replace(train, batch_size=64) == other.config.train
        assert train.batch_size == 320
        assert train.precision == "float32"
    assert recipes.figure4(size="paper", batch_size=8).changes == "batches of 8 for 320"


def test_what_only_some_runs_have_is_told_with_their_names():
    assert recipes.figure4().changes.endswith(
        "given up below 50 % after 1,000 updates (linear-causalrn, linear-transformer)"
    )


def test_every_number_of_heads_runs_at_the_learning_rates_that_are_named():
    found = [(one.config.model.mixer.heads, one.config.train.lr) for one in recipes.heads_lr(lrs=(2e-4,)).runs]
    assert found == [(heads, 2e-4) for heads in (1, 2, 4, 8)] * 2
    few = [
        (one.config.model.mixer.heads, one.config.train.lr)
        for one in recipes.heads_lr(heads=(1, 2), lrs=(2e-4, 1e-3)).runs
    ]
    assert few == [(1, 2e-4), (1, 1e-3), (2, 1e-3)] * 2


def test_the_ablations_change_what_their_names_say():
    found = {planned.config.name: planned.config.model.mixer for planned in recipes.figure2().runs}
    changed = {
        name: {key: value for key, value in vars(mixer).items() if value != getattr(found["causalrn"], key)}
        for name, mixer in found.items()
    }
    assert changed == {
        "causalrn": {},
        "causalrn-no-sum-norm": {"sum_norm": False},
        "causalrn-approximate": {"pair_norm": "approximate"},
        "causalrn-no-pair-norm": {"pair_norm": "none"},
        "causalrn-relu": {"activation": "relu"},
        "causalrn-elu": {"activation": "elu"},
    }


@pytest.mark.parametrize(
    ("recipe", "many", "asked"),
    [
        (recipes.exam_copying, 21, {5, 10, 15}),
        (recipes.exam_lengths, 7, {10, 20, 30, 50, 100, 200}),
        (recipes.exam_lookup, 14, {10, 20, 30, 50}),
    ],
)
def test_the_exams_ask_every_model_what_they_say(recipe, many, asked):
    plan = recipe()
    assert len({planned.name for planned in plan.runs}) == many
    assert {length for planned in plan.runs for length in planned.lengths} == asked
    for planned in plan.runs:
        config = planned.config
        run.build_model(config)
        assert (config.model.context, config.model.positions, config.task.layout) == (None, "none", "jelassi2024")
    for planned in recipe(size="paper").runs:
        model, told = planned.config.model, planned.config.train
        assert (model.width, model.depth, planned.gpus) == (1024, 12, 1)
        assert (told.weight_decay, told.schedule, told.warmup_steps) == (0.1, "linear", 100)
        assert plan.changes.startswith(
            "2 blocks for 12, 128 wide for 1,024, 4 heads for 16; batches of 32 rows, float32, at most 3,000 updates, "
        )
    assert recipe(size="paper").changes == (
        "batches of 64 rows, bfloat16, at most 15,000 updates, learning rate 0.001, an end once 99 % has stayed for 20 updates"
    )


def test_a_sweep_that_is_stopped_leaves_what_can_be_compared():
    plan = recipes.figure4(lengths=(32, 16), seeds=2)
    order = [(one.config.task.length, one.config.name, one.config.train.seed) for one in plan.runs]
    assert order[:5] == [
        (16, "causalrn", 0),
        (16, "transformer", 0),
        (16, "causalrn", 1),
        (16, "transformer", 1),
        (16, "linear-causalrn", 0),
    ]
    assert [length for length, _, _ in order] == [16] * 8 + [32] * 8


def test_figure8_is_figure7_s_run_of_the_same_seed():
    (run,) = recipes.figure8(seed=2).runs
    assert run.config in [planned.config for planned in recipes.figure7(mixers=("linear-birn",), seeds=3).runs]
    assert run.config.train.seed == 2


def test_only_linear_models_are_given_up_on_a_cpu():
    patience = {planned.config.name: planned.config.train.give_up_after for planned in recipes.figure4().runs}
    assert patience == {"causalrn": None, "transformer": None, "linear-causalrn": 1000, "linear-transformer": 1000}
