"""Higher derivatives through every mixer that has them, against finite differences in float64."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from relnet import nn, ops
from tests.assertions import assert_close
from tests.nn.cases import CAUSAL, draw, make_mixer, model_config, random_ids, random_values

WIDTH = 6
MASK = torch.tensor([[1, 0, 1, 1], [1, 1, 1, 0]], dtype=torch.bool)
# The fused attention kernel and PyTorch's LSTM on a CPU have a first derivative only.
SMOOTH = {
    name: config
    for name, config in CAUSAL.items()
    if (not isinstance(config, nn.AttentionConfig) or config.explicit) and name not in ("lstm", "causalrn-windows")
}


def small(config: nn.MixerConfig) -> nn.Mixer:
    return make_mixer(config, torch.float64, width=WIDTH)


def small_x() -> Tensor:
    return random_values(2, 4, WIDTH, dtype=torch.float64).requires_grad_()


def parameters_of(module: torch.nn.Module) -> list[Tensor]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def hessian_penalty(output: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """|| H v ||^2 with H the Hessian in x of a scalar of the output."""
    weights, v = random_values(*x.shape, seed=1, dtype=x.dtype), random_values(*x.shape, seed=2, dtype=x.dtype)
    y = output(x)
    (gradient,) = torch.autograd.grad((y * weights[..., : y.shape[-1]]).sum(), x, create_graph=True)
    (product,) = torch.autograd.grad((gradient * v).sum(), x, create_graph=True)
    return product.square().sum()


def check_against_differences(penalty: Callable[[], Tensor], parameters: list[Tensor]) -> None:
    """The gradient along a random direction against a central difference."""
    directions = [random_values(*p.shape, seed=3 + k, dtype=p.dtype) for k, p in enumerate(parameters)]
    gradients = torch.autograd.grad(penalty(), parameters, materialize_grads=True)
    along = sum((g * d).sum() for g, d in zip(gradients, directions, strict=True))
    step, values = 1e-6, []
    for sign in (1, -1):
        with torch.no_grad():
            for p, d in zip(parameters, directions, strict=True):
                p.add_(d, alpha=sign * step)
        values.append(penalty().detach())
        with torch.no_grad():
            for p, d in zip(parameters, directions, strict=True):
                p.sub_(d, alpha=sign * step)
    assert_close(along, (values[0] - values[1]) / (2 * step), 1e-6)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", SMOOTH)
def test_the_gradient_of_a_hessian_penalty_is_right(name, masked):
    mixer, x = small(SMOOTH[name]), small_x()
    mask = MASK if masked else None
    penalty = lambda: hessian_penalty(lambda x: mixer(x, None, mask)[0], x)  # noqa: E731
    check_against_differences(penalty, parameters_of(mixer))


@pytest.mark.parametrize("name", SMOOTH)
def test_the_gradient_of_a_hessian_penalty_passes_through_a_state(name):
    mixer, x = small(SMOOTH[name]), small_x()

    def output(x: Tensor) -> Tensor:
        first, state = mixer(x[:, :2])
        return torch.cat([first, mixer(x[:, 2:], state)[0]], 1)

    check_against_differences(lambda: hessian_penalty(output, x), parameters_of(mixer))


@pytest.mark.parametrize("name", SMOOTH)
def test_first_and_second_derivatives_are_right(name):
    mixer = small(SMOOTH[name])
    x = random_values(1, 3, WIDTH, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: mixer(x)[0], x, fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda x: mixer(x)[0], x, fast_mode=True)


@pytest.mark.parametrize("name", ["lstm", "attention", "attention-hard-alibi"])
def test_first_derivatives_are_right_where_there_are_no_higher_ones(name):
    config = nn.AttentionConfig(heads=2, positions="hard_alibi") if "hard" in name else CAUSAL[name]
    mixer = small(config)
    x = random_values(1, 3, WIDTH, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: mixer(x)[0], x, fast_mode=True)


@pytest.mark.parametrize("positions", ["none", "rope", "alibi", "hard_alibi"])
def test_fused_attention_raises_for_a_second_derivative_and_the_definition_has_it(positions):
    mixer, x = small(nn.AttentionConfig(heads=2, head_width=4, positions=positions)), small_x()
    penalty = lambda: hessian_penalty(lambda x: mixer(x)[0], x)  # noqa: E731
    with pytest.raises(RuntimeError, match="is not implemented"):
        penalty()
    with ops.use_reference():
        check_against_differences(penalty, parameters_of(mixer))


def test_a_hessian_penalty_goes_through_a_whole_model():
    config = model_config(
        (nn.CausalRNConfig(heads=2), nn.LinearCausalRNConfig(), nn.AttentionConfig(explicit=True)), mlp=8
    )
    model = nn.SequenceModel(config).double()
    draw(model)
    ids = random_ids(2, 4)

    def output(x: Tensor) -> Tensor:
        return model.run_blocks(x)[0]

    x = model.embedding(ids).detach().requires_grad_()
    check_against_differences(lambda: hessian_penalty(output, x), parameters_of(model.blocks))


@pytest.mark.parametrize("name", SMOOTH)
def test_forward_mode_exists_in_the_definitions_and_equals_backward_mode(name):
    mixer, x = small(SMOOTH[name]), small_x().detach()
    v, w = random_values(*x.shape, seed=1, dtype=x.dtype), random_values(*x.shape, seed=2, dtype=x.dtype)
    with ops.use_reference():
        y, tangent = torch.func.jvp(lambda x: mixer(x)[0], (x,), (v,))
        _, pullback = torch.func.vjp(lambda x: mixer(x)[0], x)
        assert_close((tangent * w).sum(), (pullback(w)[0] * v).sum(), 1e-12)
    assert_close(y, mixer(x)[0], 1e-12)


@pytest.mark.parametrize("name", [name for name in SMOOTH if "rn" in name])
def test_forward_mode_is_refused_by_the_fast_paths(name):
    mixer, x = small(SMOOTH[name]), small_x().detach()
    with pytest.raises(NotImplementedError, match=r"use_reference\(\)"):
        torch.func.jvp(lambda x: mixer(x)[0], (x,), (x,))
