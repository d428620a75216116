"""Our models against the published definitions, written out here once more, plainly and on their own, in float64."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from relnet import nn
from tests.assertions import assert_close

Weights = dict[str, Tensor]


def norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=0.0)


def lower_triangle(length: int) -> Tensor:
    return torch.ones(length, length, dtype=torch.bool).tril()


def causal_rn(r: Tensor, w: Weights) -> Tensor:
    q = F.linear(r, w["target.weight"], w["target.bias"])
    p = F.linear(r, w["source.weight"])
    pairs = norm(q[:, :, None] + p[:, None, :]).exp()
    pairs = pairs * lower_triangle(r.shape[1])[:, :, None]
    y = pairs.sum(2) / torch.arange(1, r.shape[1] + 1)[:, None]
    return F.linear(norm(y), w["out.weight"], w["out.bias"])


def linear_causal_rn(r: Tensor, w: Weights) -> Tensor:
    q = norm(F.linear(r, w["target.weight"], w["target.bias"]))
    p = norm(F.linear(r, w["source.weight"]))
    y = q.exp() * p.exp().cumsum(1) / torch.arange(1, r.shape[1] + 1)[:, None]
    return F.linear(norm(y), w["out.weight"], w["out.bias"])


def attention(r: Tensor, w: Weights) -> Tensor:
    q, k, v = F.linear(r, w["query_key_value.weight"]).chunk(3, -1)
    scores = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~lower_triangle(r.shape[1]), -math.inf)
    return F.linear(scores.softmax(-1) @ v, w["out.weight"])


def linear_attention(r: Tensor, w: Weights) -> Tensor:
    q, k, v = F.linear(r, w["query_key_value.weight"]).chunk(3, -1)
    weights = (F.elu(q) + 1) @ (F.elu(k) + 1).transpose(1, 2) * lower_triangle(r.shape[1])
    return F.linear(weights @ v / weights.sum(-1, keepdim=True), w["out.weight"])


def part(weights: Weights, prefix: str) -> Weights:
    return {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}


def published_logits(mixer: Callable[[Tensor, Weights], Tensor], weights: Weights, ids: Tensor, depth: int) -> Tensor:
    x = weights["embedding.weight"][ids] + weights["position.weight"][: ids.shape[1]]

    def block(x: Tensor, w: Weights) -> Tensor:
        x = x + mixer(norm(x), part(w, "mixer."))
        if "mlp.hidden.weight" not in w:
            return x
        hidden = F.gelu(F.linear(norm(x), w["mlp.hidden.weight"], w["mlp.hidden.bias"]))
        return x + F.linear(hidden, w["mlp.out.weight"], w["mlp.out.bias"])

    for index in range(depth):
        # Only to bound the memory: 12 blocks of all pairs at length 258 are 5 GB.
        x = checkpoint(block, x, part(weights, f"blocks.{index}."), use_reentrant=False)
    return F.linear(norm(x), weights["head.weight"])


MODELS: dict[str, tuple[Callable[[Tensor, Weights], Tensor], nn.CausalMixerConfig, bool]] = {
    "causal rn": (causal_rn, nn.CausalRNConfig(), False),
    "linear causal rn": (linear_causal_rn, nn.LinearCausalRNConfig(), False),
    "transformer": (attention, nn.AttentionConfig(), True),
    "explicit transformer": (attention, nn.AttentionConfig(explicit=True), True),
    "linear transformer": (linear_attention, nn.LinearAttentionConfig(), True),
}


def make_model(name: str, length: int, width: int, depth: int) -> nn.SequenceModel:
    mixer, mlp = MODELS[name][1:]
    torch.manual_seed(length)
    return nn.SequenceModel(nn.ModelConfig(29, width, depth, 2 * (length + 1), mixer, 4 * width if mlp else None))


def enlarge(model: nn.SequenceModel) -> None:
    """Weights of the blocks five times larger, biases no longer 0."""
    with torch.no_grad():
        for parameter in model.blocks.parameters():
            if parameter.dim() == 1:
                parameter.normal_(std=0.3)
            else:
                parameter.mul_(5.0)


def check(name: str, length: int, width: int, depth: int, rows: int, large: bool = False) -> None:
    """Copying strings, the published loss: logits and the gradient of every parameter."""
    model = make_model(name, length, width, depth)
    if large:
        enlarge(model)
    strings = torch.randint(3, 29, (rows, length))
    ids = torch.cat(
        [torch.zeros(rows, 1, dtype=torch.int64), strings, torch.ones(rows, 1, dtype=torch.int64), strings], 1
    )
    targets = torch.cat([ids[:, 1:], torch.full((rows, 1), 2)], 1)
    targets[:, : length + 1] = -1

    logits, _ = model(ids)
    F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1).backward()
    weights = {name: value.detach().double().requires_grad_() for name, value in model.named_parameters()}
    expected = published_logits(MODELS[name][0], weights, ids, depth)
    F.cross_entropy(expected.flatten(0, 1), targets.flatten(), ignore_index=-1).backward()

    assert_close(logits, expected, 1e-5, "logits")
    for name, parameter in model.named_parameters():
        assert_close(parameter.grad, weights[name].grad, 1e-5, name)


@pytest.mark.parametrize("length", [16, 64])
@pytest.mark.parametrize("name", MODELS)
def test_logits_and_gradients_equal_the_published_definition(name, length):
    check(name, length, width=48, depth=3, rows=2)


@pytest.mark.parametrize("name", MODELS)
def test_logits_and_gradients_equal_the_published_definition_at_large_weights(name):
    check(name, 16, width=48, depth=3, rows=2, large=True)


@pytest.mark.parametrize("length", [16, 64, pytest.param(128, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", MODELS)
def test_logits_and_gradients_equal_the_published_definition_at_the_published_size(name, length):
    check(name, length, width=192, depth=12, rows=1)


def test_parameter_counts_are_the_published_ones():
    assert make_model("causal rn", 16, 192, 12).num_parameters == 1_337_280
    assert make_model("linear causal rn", 16, 192, 12).num_parameters == 1_337_280
    assert make_model("transformer", 16, 192, 12).num_parameters == 5_325_504
    assert make_model("linear transformer", 16, 192, 12).num_parameters == 5_325_504


def test_parameter_counts_leave_out_embeddings_and_nothing_else():
    model = make_model("transformer", 16, 48, 2)
    assert model.num_parameters == sum(p.numel() for p in model.parameters()) - 48 * (29 + 34)


def assert_std(values: Tensor, std: float) -> None:
    """Five standard errors of mean and standard deviation."""
    error = 5 * std / math.sqrt(values.numel())
    assert abs(float(values.mean())) < error
    assert abs(float(values.std()) - std) < error


@pytest.mark.parametrize("name", MODELS)
def test_initial_weights_are_drawn_as_published(name):
    depth = 12
    model = make_model(name, 128, 192, depth)
    num_additions = 2 * depth if MODELS[name][2] else depth
    for parameter_name, values in model.named_parameters():
        if parameter_name.endswith("bias"):
            assert not values.any(), parameter_name
        elif parameter_name in ("embedding.weight", "position.weight"):
            assert_std(values.detach(), 1.0)
        elif ".out." in parameter_name:
            assert_std(values.detach(), 0.02 / math.sqrt(num_additions))
        else:
            assert_std(values.detach(), 0.02)


def test_linear_layers_have_biases_where_published():
    causal_rn_names = {name for name, _ in make_model("causal rn", 16, 48, 1).named_parameters()}
    assert causal_rn_names == {
        *("embedding.weight", "position.weight", "head.weight"),
        *("blocks.0.mixer.target.weight", "blocks.0.mixer.target.bias", "blocks.0.mixer.source.weight"),
        *("blocks.0.mixer.out.weight", "blocks.0.mixer.out.bias"),
    }
    transformer_names = {name for name, _ in make_model("transformer", 16, 48, 1).named_parameters()}
    assert transformer_names == {
        *("embedding.weight", "position.weight", "head.weight"),
        *("blocks.0.mixer.query_key_value.weight", "blocks.0.mixer.out.weight"),
        *("blocks.0.mlp.hidden.weight", "blocks.0.mlp.hidden.bias", "blocks.0.mlp.out.weight", "blocks.0.mlp.out.bias"),
    }


def test_one_seed_gives_one_model():
    first, again = (make_model("causal rn", 16, 48, 2).state_dict() for _ in range(2))
    assert all(torch.equal(first[name], again[name]) for name in first)
