"""Curvature penalties of our own models: derivatives through every mixer and backend, runs, the command line."""

import contextlib
import dataclasses
import json

import pytest
import torch

from relnet import cli, nn, ops, recipes, run
from relnet.train import CurvaturePenalty
from relnet.train.log import read_log
from tests.assertions import assert_close, assert_same_bits
from tests.nn.cases import MODELS, make_model, random_ids

SMALL = {"length": 3, "width": 16, "depth": 2, "max_steps": 2, "batch_size": 4}
BOTH = CurvaturePenalty(0.3, 0.2, iters=2)


def config_of(mixer="causalrn", penalty=BOTH, **changes):
    return dataclasses.replace(recipes.copying(mixer=mixer, **{**SMALL, **changes}), penalty=penalty)


@pytest.mark.parametrize("name", MODELS)
def test_the_function_of_the_embedded_input_is_the_model(name):
    model, ids = make_model(name, torch.float64), random_ids(2, 6)
    x, f = model.embedded(ids)
    assert_close(f(x), model(ids)[0], 1e-12)


@pytest.mark.parametrize("surroundings", [contextlib.nullcontext, ops.use_reference], ids=["fast", "reference"])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_both_penalties_are_those_of_double_precision(name, surroundings):
    inputs, targets = random_ids(2, 4), random_ids(2, 4, seed=1)
    gradients, values = [], []
    for dtype in (torch.float32, torch.float64):
        model = make_model(name, dtype)
        # A start that does not depend on the precision; two steps, whose vector is nowhere near a degenerate pair.
        with (
            pytest.MonkeyPatch.context() as patch,
            surroundings() if dtype == torch.float32 else contextlib.nullcontext(),
        ):
            patch.setattr(torch, "randn", _same_start)
            value = BOTH(model, inputs, targets)
        values.append(value)
        gradients.append(torch.autograd.grad(value, list(model.parameters()), materialize_grads=True))
    assert_close(values[0], values[1], 1e-4)
    for (parameter, _), one, exact in zip(model.named_parameters(), *gradients, strict=True):
        assert_close(one, exact, 1e-3, name=parameter)


def _same_start(*shape, dtype=None, device=None, generator=None):
    size = shape if isinstance(shape[0], int) else shape[0]
    return torch.linspace(-1, 1, steps=torch.Size(size).numel(), dtype=torch.float64).sin().view(size).to(dtype)


def test_the_value_does_not_depend_on_recomputation():
    model, ids = make_model("causalrn"), random_ids(2, 6)
    again = nn.SequenceModel(dataclasses.replace(model.config, checkpointing=True))
    again.load_state_dict(model.state_dict())
    values = []
    for one in (model, again):
        torch.manual_seed(0)
        value = BOTH(one.train(), ids, ids)
        values.append((value, torch.autograd.grad(value, one.embedding.weight)[0]))
    assert_same_bits(values[1][0], values[0][0])
    assert_same_bits(values[1][1], values[0][1])


@pytest.mark.parametrize(
    "mixer", ["causalrn", "linear-causalrn", "transformer", "linear-transformer", "lstm", "hybrid"]
)
def test_every_model_trains_with_both_penalties_and_resumes(tmp_path, mixer):
    config = config_of(mixer)
    finished = run.train(config, tmp_path / "run", device="cpu")
    lines = read_log(tmp_path / "run" / "log.jsonl")
    assert [line["penalty"] > 0 for line in lines] == [True, True]
    assert run.load(tmp_path / "run")[0] == config
    assert run.train(config, tmp_path / "run", device="cpu", resume=True).result == finished.result


def test_what_a_model_has_no_derivatives_for_is_refused_by_name_before_anything_is_written(tmp_path, monkeypatch):
    def fused(model, ids):
        return model.embedding(ids), lambda x: model.head(model.run_blocks(x)[0])

    monkeypatch.setattr(nn.SequenceModel, "embedded", fused)
    with pytest.raises(ValueError, match=r"jacobian_weight cannot be had of this model: no_second_derivative"):
        run.train(config_of("transformer"), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_run_is_not_resumed_with_another_weight(tmp_path):
    run.train(config_of(), tmp_path, device="cpu")
    with pytest.raises(ValueError, match=r"penalty\.jacobian_weight 0\.3 there, 0\.4 here"):
        run.train(config_of(penalty=dataclasses.replace(BOTH, jacobian_weight=0.4)), tmp_path, resume=True)


def test_configs_of_before_there_were_penalties_are_read():
    content = json.loads(run.config_to_json(config_of(penalty=None)))
    del content["penalty"]
    assert run.config_from_json(json.dumps(content)) == config_of(penalty=None)


def test_the_command_trains_with_a_penalty(tmp_path):
    command = ["train", "copying", "--length", "3", "--width", "16", "--depth", "1", "--batch-size", "4"]
    command += ["--max-steps", "2", "--device", "cpu", "--out", str(tmp_path / "run")]
    command += ["--jacobian-weight", "0.1", "--penalty-norm", "frobenius", "--penalty-iters", "1"]
    assert cli.main(command) == 0
    config, _ = run.load(tmp_path / "run")
    assert config.penalty == CurvaturePenalty(0.1, norm="frobenius", iters=1)


@pytest.mark.parametrize(
    ("option", "told"),
    [("--jacobian-weight=-1", "jacobian_weight=-1.0"), ("--hessian-weight=nan", "hessian_weight=nan")],
)
def test_a_weight_that_is_none_gets_one_line_and_exit_2(tmp_path, capsys, option, told):
    assert cli.main(["train", "copying", "--out", str(tmp_path / "run"), option]) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
