"""The model as a PyTorch module: checkpointing, precision, compilation, copies; and the package's examples."""

import copy
import doctest
import importlib
import io
import pickle
import pkgutil

import pytest
import torch
from torch import Tensor

import relnet.nn
from relnet import nn
from tests.assertions import assert_close, assert_same_bits
from tests.nn.cases import CAUSAL, MODELS, WIDTH, make_mixer, make_model, model_config, random_ids, random_values

MASK = torch.tensor([[1] * 9, [0] * 3 + [1] * 6], dtype=torch.bool)


def gradients(model: nn.SequenceModel, mask: Tensor | None = None) -> dict[str, Tensor]:
    model.zero_grad()
    logits, _ = model(random_ids(2, 9), None, mask)
    logits.float().square().mean().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def saved_bytes(model: nn.SequenceModel, ids: Tensor) -> int:
    """Bytes that autograd keeps from the forward pass for the backward pass, each memory once."""
    kept = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = (storage.nbytes(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        logits, _ = model(ids)
    logits.sum().backward()
    return sum(size for size, _ in kept.values())


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", ["causalrn", "attention-rope", "linear-attention", "hybrid"])
def test_checkpointing_changes_no_bit_of_a_gradient_and_keeps_no_state(name, masked):
    model = make_model(name)
    recomputing = nn.SequenceModel(dataclass_with(MODELS[name], checkpointing=True))
    recomputing.load_state_dict(model.state_dict())
    mask = MASK if masked else None
    assert recomputing(random_ids(2, 9), None, mask)[1] is None
    actual, expected = gradients(recomputing, mask), gradients(model, mask)
    for parameter, value in expected.items():
        assert_same_bits(actual[parameter], value, parameter)


def dataclass_with(config: nn.ModelConfig, **changes) -> nn.ModelConfig:
    return nn.ModelConfig(**({name: getattr(config, name) for name in config.__dataclass_fields__} | changes))


@pytest.mark.parametrize("mixer", [nn.CausalRNConfig(), nn.AttentionConfig(heads=2), nn.LinearCausalRNConfig()])
def test_checkpointing_keeps_less_memory(mixer):
    sizes = {}
    for checkpointing in (False, True):
        model = nn.SequenceModel(model_config(mixer, depth=6, checkpointing=checkpointing, context=128))
        weights = sum(p.numel() * p.element_size() for p in model.parameters())
        sizes[checkpointing] = saved_bytes(model, random_ids(4, 128)) - weights
    # A block keeps its input, instead of a dozen tensors of that size.
    assert sizes[True] < sizes[False] / 3


def test_checkpointing_stops_where_there_is_no_backward_or_a_state():
    model = nn.SequenceModel(model_config(nn.CausalRNConfig(), checkpointing=True))
    ids = random_ids(2, 5)
    assert isinstance(model.eval()(ids)[1], nn.ModelState)
    with torch.no_grad():
        _, state = model.train()(ids)
    assert isinstance(state, nn.ModelState)
    assert isinstance(model(ids, state)[1], nn.ModelState)


# bfloat16 keeps 8 bits: 4e-3 a rounding, some roundings a block.
BFLOAT16_TOLERANCE = 0.05


def initial_model(name: str) -> nn.SequenceModel:
    torch.manual_seed(0)
    return nn.SequenceModel(MODELS[name])


@pytest.mark.parametrize("name", MODELS)
def test_autocast_to_bfloat16_is_close_to_single_precision(name):
    model = initial_model(name)
    ids = random_ids(2, 9)
    for mask in (None, MASK):
        expected, _ = model(ids, None, mask)
        with torch.autocast("cpu", torch.bfloat16):
            logits, state = model(ids, None, mask)
            first, state = model(ids[:, :5], None, None if mask is None else mask[:, :5])
            rest, _ = model(ids[:, 5:], state, None if mask is None else mask[:, 5:])
        real = MASK if mask is not None else torch.ones_like(MASK)
        assert_close(logits[real].float(), expected[real], BFLOAT16_TOLERANCE)
        assert_close(torch.cat([first, rest], 1)[real].float(), expected[real], BFLOAT16_TOLERANCE)


@pytest.mark.parametrize("name", MODELS)
def test_gradients_under_autocast_to_bfloat16_are_close_to_single_precision(name):
    model = initial_model(name)
    expected = gradients(model, MASK)
    with torch.autocast("cpu", torch.bfloat16):
        actual = gradients(model, MASK)
    for parameter, value in expected.items():
        assert actual[parameter].dtype == torch.float32
        assert_close(actual[parameter], value, 2 * BFLOAT16_TOLERANCE, parameter)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_in_bfloat16_is_close_to_the_same_weights_in_single_precision(name):
    model = initial_model(name).bfloat16()
    expected_model = copy.deepcopy(model).float()
    ids = random_ids(2, 9)
    logits, state = model(ids, None, MASK)
    assert logits.dtype == torch.bfloat16
    expected, expected_state = expected_model(ids, None, MASK)
    assert_close(logits[MASK].float(), expected[MASK], BFLOAT16_TOLERANCE)
    logits, _ = model(ids[:, :2], state)
    assert_close(logits.float(), expected_model(ids[:, :2], expected_state)[0], BFLOAT16_TOLERANCE)
    logits.float().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.blocks.parameters())


@pytest.mark.parametrize("sum_norm", [True, False])
def test_logs_of_a_linear_relation_are_not_rounded_to_bfloat16(sum_norm):
    """A log of 10 in bfloat16 would be wrong by 3 %."""
    mixer = make_mixer(nn.LinearCausalRNConfig(pair_norm="none", sum_norm=sum_norm), torch.bfloat16)
    with torch.no_grad():
        mixer.target.bias.add_(10.0)
        mixer.out.bias.zero_()
    x = random_values(2, 20, WIDTH, dtype=torch.bfloat16)
    source, target = mixer.source(x).double(), mixer.target(x).double()
    mean = (target + source.logcumsumexp(1)).exp() / torch.arange(1, 21)[:, None]
    mean = torch.nn.functional.layer_norm(mean, mean.shape[-1:], eps=0.0) if sum_norm else mean
    assert_close(mixer(x)[0].float(), mean @ mixer.out.weight.double().T, 8e-3)


@pytest.mark.parametrize("modes", [(True, False), (False, True)])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("name", CAUSAL)
def test_a_state_goes_on_in_another_precision(name, grad, modes):
    """Prefill under autocast and decode without, and the reverse."""
    mixer = make_mixer(CAUSAL[name])
    x = random_values(2, 8, WIDTH)
    expected, _ = mixer(x)
    state, parts = None, []
    with torch.set_grad_enabled(grad):
        for half, part in zip((*modes, modes[1]), x.split((5, 2, 1), 1), strict=True):
            with torch.autocast("cpu", torch.bfloat16, enabled=half):
                y, state = mixer(part, state)
            parts.append(y.float())
    assert_close(torch.cat(parts, 1), expected, BFLOAT16_TOLERANCE)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_survives_deepcopy_pickle_and_state_dict(name, tmp_path):
    model, ids = make_model(name), random_ids(2, 9)
    logits, _ = model(ids)
    again = nn.SequenceModel(model.config)
    again.load_state_dict(model.state_dict())
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=False)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), again, loaded):
        assert other.config == model.config
        assert_same_bits(other(ids)[0], logits)


def test_a_model_draws_on_no_random_numbers_when_it_runs():
    model, ids = make_model("hybrid"), random_ids(2, 9)
    before = torch.get_rng_state()
    logits, _ = model.train()(ids)
    logits.sum().backward()
    assert_same_bits(torch.get_rng_state(), before)


def test_32_bit_ids_are_taken():
    model, ids = make_model("hybrid"), random_ids(2, 9)
    assert_same_bits(model(ids.int(), None, MASK)[0], model(ids, None, MASK)[0])


def test_the_mixers_of_a_config_are_those_of_the_blocks():
    model = make_model("hybrid")
    assert [type(block.mixer) for block in model.blocks] == [config.mixer for config in MODELS["hybrid"].mixers]
    assert len(make_model("causalrn").blocks) == 2


def test_the_input_of_a_call_is_not_changed():
    ids = random_ids(2, 9).masked_fill(~MASK, -1)
    kept = ids.clone()
    make_model("causalrn")(ids, None, MASK)
    assert torch.equal(ids, kept)
    for name, config in CAUSAL.items():
        x = random_values(2, 9, WIDTH)
        make_mixer(config)(x, None, MASK)
        assert_same_bits(x, random_values(2, 9, WIDTH), name)


@pytest.mark.parametrize("name", ["causalrn", "linear-causalrn", "attention-rope", "lstm", "hybrid"])
@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "padded"])
def test_the_last_logits_are_those_of_all_and_the_state_is_the_same(name, mask):
    model, ids = make_model(name), random_ids(2, 9)
    logits, state = model(ids, None, mask)
    more = random_ids(2, 4)
    after, _ = model(more, state)
    for last in (1, 3, 9, 20):
        found, new_state = model(ids, None, mask, last=last)
        assert_close(found, logits[:, -last:], 1e-6)
        assert_close(model(more, new_state, last=last)[0], after[:, -last:], 1e-6)
    for wrong in (0, -1, True, 1.5):
        with pytest.raises(ValueError, match=f"last={wrong}; give an integer of at least 1"):
            model(ids, last=wrong)


COMPILED = ["causalrn", "linear-causalrn", "attention-rope", "linear-attention"]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "masked"), [(name, False) for name in COMPILED] + [("causalrn", True)])
def test_a_compiled_model_equals_the_eager_one(name, masked):
    torch._dynamo.reset()
    model, ids, mask = make_model(name), random_ids(2, 9), MASK if masked else None
    compiled = torch.compile(lambda ids, mask: model(ids, None, mask)[0], fullgraph=True)
    logits, expected = compiled(ids, mask), model(ids, None, mask)[0]
    assert_close(logits, expected, 1e-5)
    actual = torch.autograd.grad(logits.square().sum(), list(model.parameters()))
    for gradient, value in zip(
        actual, torch.autograd.grad(expected.square().sum(), list(model.parameters())), strict=True
    ):
        assert_close(gradient, value, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPILED)
def test_a_compiled_model_hands_on_its_state(name):
    torch._dynamo.reset()
    model, ids = make_model(name), random_ids(2, 9)
    compiled = torch.compile(model, fullgraph=True)
    with torch.no_grad():
        first, state = compiled(ids[:, :5])
        rest, state = compiled(ids[:, 5:], state)
        assert_close(torch.cat([first, rest], 1), model(ids)[0], 1e-5)
        assert_close(compiled(ids, last=2)[0], model(ids)[0][:, -2:], 1e-5)


@pytest.mark.parametrize("name", [module.name for module in pkgutil.iter_modules(relnet.nn.__path__)])
def test_the_examples_in_the_documentation_run(name):
    result = doctest.testmod(importlib.import_module(f"relnet.nn.{name}"))
    assert result.failed == 0
    assert result.attempted > 0 or name in ("mixer", "positions", "state")


def test_the_package_exports_what_it_says():
    assert all(hasattr(nn, name) for name in nn.__all__)
    assert len(set(nn.__all__)) == len(nn.__all__)
