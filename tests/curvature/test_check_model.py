import copy

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import nn

from relnet.curvature import check_model
from tests.assertions import assert_same_bits
from tests.curvature.matrices import network

X = torch.rand(4, 1, 6, 6, generator=torch.Generator().manual_seed(1))


class Calls(nn.Module):
    """A smooth network with a function of one's own in the middle."""

    def __init__(self, function):
        super().__init__()
        self.first, self.function, self.last = nn.Linear(36, 16), function, nn.Linear(16, 3)

    def forward(self, x):
        return self.last(self.function(F.softplus(self.first(x.flatten(1)))))


class DetachesItsBackward(torch.autograd.Function):
    """Right first derivative, silently no second one: what a compiled or hand-written backward does wrong."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos().detach()


@torch.library.custom_op("relnet_tests::silent_sine", mutates_args=())
def silent_sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


silent_sine.register_fake(torch.empty_like)
silent_sine.register_autograd(
    lambda ctx, grad: grad * ctx.saved_tensors[0].cos(),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def attention(x):
    x = x.view(len(x), 1, 4, 4)
    return F.scaled_dot_product_attention(x, x, x).flatten(1)


def explicit_attention(x):
    x = x.view(len(x), 4, 4)
    return ((x @ x.mT).softmax(-1) @ x).flatten(1)


def rounds(x):
    return x.detach().round()


# name of the finding: what it is found in
SICK = {
    "batch_norm": lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.BatchNorm1d(8), nn.Softplus()),
    "coupled_samples": lambda: Calls(lambda x: x - x.mean(0)),
    "dropout": lambda: nn.Sequential(nn.Flatten(), nn.Softplus(), nn.Dropout(0.5)),
    "random": lambda: Calls(lambda x: x * torch.rand_like(x)),
    "zero_hessian": lambda: nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 3)),
    "no_second_derivative": lambda: Calls(attention),
    "wrong_second_derivative": lambda: Calls(DetachesItsBackward.apply),
    "forward_mode": lambda: Calls(lambda x: x.tanh() + silent_sine(x)),
    "no_gradient": lambda: Calls(rounds),
    "not_finite": lambda: Calls(lambda x: (x - 100).log()),
}


def names(model, x=X):
    return {finding.name for finding in check_model(model, x)}


@pytest.mark.parametrize("name", SICK)
def test_each_fault_is_found_by_its_name_with_a_cure(name):
    torch.manual_seed(0)
    found = {finding.name: finding for finding in check_model(SICK[name](), X)}
    assert name in found
    # What it brings with it is found too; nothing else is.
    assert found.keys() - {name} <= {"batch_norm": {"coupled_samples"}, "dropout": {"random"}}.get(name, set())
    assert found[name].cure
    assert str(found[name]).startswith(f"{name}: {found[name].message}")


def test_an_operation_without_a_second_derivative_is_named():
    (finding,) = check_model(Calls(attention), X)
    assert "scaled_dot_product" in finding.message
    assert "explicit softmax" in finding.cure


def test_a_healthy_network_has_no_finding():
    torch.manual_seed(0)
    smooth = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.GroupNorm(2, 4), nn.Softplus(8), nn.Dropout(0.0), nn.Flatten(), nn.Linear(64, 3)
    )
    assert not check_model(smooth, X)
    assert not check_model(Calls(explicit_attention), X)
    assert not check_model(lambda x: x.flatten(1).sin(), X)
    assert not check_model(network(5, 2), torch.randn(3, 5, dtype=torch.float64))
    frozen = SICK["batch_norm"]().eval()
    assert not check_model(frozen, X)
    assert not check_model(nn.Sequential(*SICK["dropout"]()).eval(), X)


def test_float16_gets_a_finding_in_parameters_inputs_and_autocast():
    model = Calls(torch.tanh)
    assert "float16" in names(model, X.half())
    with torch.autocast("cpu", torch.float16):
        assert "float16" in names(model)
    assert "float16" not in names(model.bfloat16(), X.bfloat16())
    assert "float16" in names(lambda x: x, X.half())


def through_autocast(x):
    with torch.autocast("cpu", torch.float16):
        return (x @ x.mT).float()


@pytest.mark.parametrize("inside", [through_autocast, lambda x: (3 * x.half()).float(), lambda x: checkpointed(x)])
def test_float16_inside_of_the_forward_pass_is_found(inside):
    model = Calls(inside)
    model.last = nn.Identity()
    assert names(model) == {"float16"}
    assert names(lambda x: model(x)) == {"float16"}


def checkpointed(x):
    return torch.utils.checkpoint.checkpoint(through_autocast, x, use_reentrant=False)


def test_a_derivative_that_is_not_finite_at_the_given_samples_is_told_by_its_order():
    x = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))
    x[1, 2] = 0
    for power, name, message in [
        (0.5, "not_finite", "first"),
        (1.5, "not_finite", "second"),
        (2.5, "no_third_derivative", "third"),
    ]:
        (finding,) = check_model(lambda x, power=power: x.clamp(min=0) ** power, x)
        assert (finding.name, finding.message) == (name, f"the {message} derivative holds NaN or inf")


@pytest.mark.parametrize("scale", [1e-6, 1e-2, 1.0, 1e4])
def test_the_size_of_the_input_hides_no_wrong_second_derivative(scale):
    sine = DetachesItsBackward.apply
    assert names(lambda x: sine(x / scale), X * scale) == {"wrong_second_derivative"}
    assert not names(lambda x: (x / scale).sin(), X * scale)


def test_a_right_second_derivative_beside_it_hides_no_wrong_one():
    assert names(lambda x: DetachesItsBackward.apply(x) + 5 * x.tanh()) == {"wrong_second_derivative"}


def test_the_module_behind_a_function_is_named_and_left_as_it_was():
    model = SICK["batch_norm"]()
    before = copy.deepcopy(model.state_dict())
    found = {finding.name: finding.message for finding in check_model(lambda x: model(x), X, module=model)}
    assert found.keys() == {"batch_norm", "coupled_samples"}
    assert found["batch_norm"] == "batch statistics in 2"
    for name, value in model.state_dict().items():
        assert_same_bits(value, before[name], name)


def test_a_backward_that_is_differentiable_once_is_found():
    """PyTorch refuses only where the incoming gradient has a graph; else such a function is a constant to the second derivative."""

    class OnceOnly(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, grad):
            return grad * ctx.saved_tensors[0].cos()

    assert names(Calls(OnceOnly.apply)) == {"wrong_second_derivative"}


def test_the_check_leaves_everything_as_it_was():
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.BatchNorm1d(8), nn.Dropout(0.5))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch.manual_seed(3)
    generator = torch.get_rng_state()
    check_model(model, X)
    assert torch.equal(generator, torch.get_rng_state())
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    for name, value in model.state_dict().items():
        assert_same_bits(value, before[name], name)


@pytest.mark.parametrize("dim", [0, "reversed"])
def test_a_running_sum_over_the_batch_is_found_whichever_way_it_runs(dim):
    run = (lambda x: x.cumsum(0)) if dim == 0 else (lambda x: x.flip(0).cumsum(0).flip(0))
    assert names(Calls(run)) == {"coupled_samples"}


def test_a_network_in_float16_gets_its_finding_where_it_cannot_even_be_called():
    assert names(Calls(torch.tanh).half()) == {"float16"}


def test_classes_have_no_gradient():
    assert names(lambda x: x.flatten(1).argmax(-1)) == {"no_gradient"}


def test_a_compiled_network_is_found_to_differentiate_itself_wrongly_twice():
    """AOT autograd says so only where the incoming gradient has a graph; else its backward is a constant, in silence."""
    assert names(torch.compile(Calls(torch.tanh), backend="aot_eager")) == {"wrong_second_derivative"}


@pytest.mark.parametrize(
    ("model", "told"),
    [(lambda x: (x, None), "returns tuple"), (lambda x: x[:1], "returns"), (lambda x: x.sum(), "returns")],
)
def test_a_model_that_returns_something_else_is_refused(model, told):
    with pytest.raises(ValueError, match=told):
        check_model(model, X)


def test_inference_mode_is_refused_and_no_grad_is_no_hindrance():
    with torch.inference_mode(), pytest.raises(ValueError, match="no_grad is no hindrance"):
        check_model(Calls(torch.tanh), X)
    with torch.no_grad():
        assert not check_model(Calls(torch.tanh), X)


@pytest.mark.parametrize("x", [X[:1], torch.tensor(1.0), torch.arange(4)])
def test_what_cannot_be_checked_is_refused(x):
    with pytest.raises(ValueError, match="at least 2 samples"):
        check_model(lambda x: x, x)
