"""ImageModel: patches are a set without positions, pads leak nothing, the linear form is the quadratic one's, and it resumes."""

import json
import math

import pytest
import torch

from relnet import nn
from tests.assertions import assert_close, assert_same_bits
from tests.nn.cases import BIDIRECTIONAL, WIDTH, draw, random_values

PATCHES, PATCH_WIDTH, CLASSES = 7, 5, 4


def make(mixer, dtype=torch.float32, **changes):
    arguments = {"num_classes": CLASSES, "num_patches": PATCHES, "patch_width": PATCH_WIDTH, "width": WIDTH, "depth": 2}
    model = nn.ImageModel(nn.ImageModelConfig(**(arguments | {"mixer": mixer} | changes)))
    draw(model)
    return model.to(dtype)


# Without positions, ALiBi and RoPE still count places.
UNORDERED = [name for name in BIDIRECTIONAL if "rope" not in name and "alibi" not in name]


@pytest.mark.parametrize("name", UNORDERED)
def test_without_positions_the_order_of_patches_says_nothing(name):
    model = make(BIDIRECTIONAL[name], torch.float64, positions="none", mlp=16)
    patches = random_values(3, PATCHES, PATCH_WIDTH, dtype=torch.float64)
    order = torch.tensor([3, 0, 6, 2, 5, 1, 4])
    assert_close(model(patches[:, order]), model(patches), 1e-12)
    inputs, permuted = (nn.mixer_inputs(model, some)[1][1] for some in (patches, patches[:, order]))
    assert_close(permuted[:, :-1], inputs[:, :-1][:, order], 1e-12)
    ordered = make(BIDIRECTIONAL[name], torch.float64, mlp=16)
    assert not torch.allclose(ordered(patches[:, order]), ordered(patches))


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_linear_birn_is_birn_with_the_approximate_norm(dtype, tolerance, heads):
    linear = make(nn.LinearBiRNConfig(8, heads), dtype)
    quadratic = make(nn.BiRNConfig(8, heads, pair_norm="approximate"), dtype)
    quadratic.load_state_dict(linear.state_dict())
    patches = random_values(3, PATCHES, PATCH_WIDTH, dtype=dtype)
    mask = torch.tensor([[1] * 7, [1, 0, 1, 1, 0, 1, 1], [0] * 6 + [1]]).bool()
    for given in (None, mask):
        assert_close(linear(patches, given), quadratic(patches, given), tolerance)
    results = [
        torch.autograd.grad(model(patches, mask).square().sum(), list(model.parameters()))
        for model in (linear, quadratic)
    ]
    for name, actual, expected in zip(dict(linear.named_parameters()), *results, strict=True):
        assert_close(actual, expected, 10 * tolerance, name)


@pytest.mark.parametrize("junk", [3e38, math.nan, math.inf])
@pytest.mark.parametrize("name", BIDIRECTIONAL)
def test_what_stands_at_a_masked_patch_changes_no_bit(name, junk):
    model = make(BIDIRECTIONAL[name], mlp=16)
    mask = torch.tensor([[1] * 7, [0, 0, 1, 1, 0, 1, 0], [0] * 7]).bool()

    def results(value):
        patches = random_values(3, PATCHES, PATCH_WIDTH).masked_fill(~mask[..., None], value).requires_grad_()
        logits = model(patches, mask)
        return [logits, *torch.autograd.grad(logits.square().sum(), [patches, *model.parameters()])]

    for actual, expected in zip(results(junk), results(1.0), strict=True):
        assert actual.isfinite().all()
        assert_same_bits(actual, expected)


@pytest.mark.parametrize("name", UNORDERED)
def test_a_masked_patch_counts_as_if_it_were_not_there(name):
    model = make(BIDIRECTIONAL[name], torch.float64, positions="none")
    patches = random_values(2, PATCHES, PATCH_WIDTH, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 0, 1, 0, 1, 0]] * 2).bool()
    assert_close(model(patches, mask), model(patches[:, mask[0]]), 1e-12)


def test_every_patch_and_the_cls_row_reach_the_logits():
    model = make(nn.BiRNConfig(8))
    patches = random_values(1, PATCHES, PATCH_WIDTH).requires_grad_()
    model(patches).sum().backward()
    assert patches.grad.abs().sum(-1).min() > 0
    assert model.cls.weight.grad.abs().min() > 0


def test_recomputing_blocks_changes_no_gradient():
    patches = random_values(3, PATCHES, PATCH_WIDTH)
    gradients = []
    for checkpointing in (False, True):
        model = make(nn.LinearBiRNConfig(8), checkpointing=checkpointing).train()
        gradients.append(torch.autograd.grad(model(patches).square().sum(), list(model.parameters())))
    for plain, recomputed in zip(*gradients, strict=True):
        assert_same_bits(recomputed, plain)


@pytest.mark.parametrize("name", UNORDERED)
def test_a_compiled_model_is_the_same(name):
    model = make(BIDIRECTIONAL[name])
    patches = random_values(3, PATCHES, PATCH_WIDTH)
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    assert_close(compiled(patches), model(patches), 1e-5)


def test_a_configuration_comes_back_from_json():
    converter = nn.converter()
    for mixer in (nn.BiRNConfig(8), (nn.LinearBiRNConfig(8), nn.AttentionConfig(3, causal=False))):
        config = nn.ImageModelConfig(CLASSES, PATCHES, PATCH_WIDTH, WIDTH, 2, mixer)
        assert converter.structure(json.loads(json.dumps(converter.unstructure(config))), nn.ImageModelConfig) == config


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"num_patches": 0}, "num_patches=0"),
        ({"mixer": nn.AttentionConfig(3)}, "AttentionConfig is causal"),
        ({"mixer": nn.CausalRNConfig(8)}, "CausalRNConfig is causal"),
        ({"mixer": (nn.BiRNConfig(8),)}, "1 mixers for depth=2"),
        ({"mixer": "birn"}, "mixer is 'b'|2 mixers|mixer is 'birn'"),
        ({"positions": "rope"}, "positions"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        make(changes.pop("mixer", nn.BiRNConfig(8)), **changes)


@pytest.mark.parametrize(
    ("patches", "mask", "said"),
    [
        (torch.zeros(1, PATCHES, 3), None, "patches have 3 numbers"),
        (torch.zeros(1, 6, PATCH_WIDTH), None, "6 patches, and the model takes 7"),
        (torch.zeros(PATCHES, PATCH_WIDTH), None, "batch, patches"),
        (torch.zeros(1, PATCHES, PATCH_WIDTH, dtype=torch.uint8), None, "uint8"),
        (torch.zeros(1, PATCHES, PATCH_WIDTH), torch.ones(1, PATCHES), "bool"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(patches, mask, said):
    with pytest.raises(ValueError, match=said):
        make(nn.BiRNConfig(8))(patches, mask)
