"""plain_norm: layer norm where that is defined, exactly 0 with a zero gradient where it is not."""

import pytest
import torch
import torch.nn.functional as F

from relnet import ops
from relnet.ops import norm_cpu
from relnet.ops.norm import centre, inverse_rms
from tests.assertions import assert_close, assert_same_bits


def draw(*shape: int, dtype=torch.float64, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def norm_and_gradient(x, function=ops.plain_norm):
    x = x.detach().requires_grad_()
    y = function(x)
    return y, torch.autograd.grad(y, x, draw(*x.shape, seed=1).to(y.dtype))[0]


def layer_norm(x):
    return F.layer_norm(x, x.shape[-1:], eps=0)


@pytest.mark.parametrize("shape", [(3,), (4, 192), (2, 3, 60), (1, 2, 3, 7)])
def test_it_is_layer_norm_without_affine_part_and_with_eps_0(shape):
    x = draw(*shape)
    for got, want in zip(norm_and_gradient(x), norm_and_gradient(x, layer_norm), strict=True):
        assert_close(got, want, 1e-13)


# bfloat16 has 8 bits: at 1e4 its neighbours are 64 apart.
SCALES = [
    (torch.float32, 1e-6, scale, offset)
    for scale, offset in [(1.0, 0.0), (1.0, 1e4), (1e4, -1e4), (1e-15, 0.0), (1e15, 0.0)]
]
SCALES += [
    (torch.bfloat16, 4e-3, scale, offset)
    for scale, offset in [(1.0, 0.0), (1e3, 1e4), (1e4, -1e4), (1e-15, 0.0), (1e15, 0.0)]
]


@pytest.mark.parametrize(("dtype", "tolerance", "scale", "offset"), SCALES)
def test_it_keeps_its_digits_at_any_scale_and_offset(isa, dtype, tolerance, scale, offset):
    x = (scale * draw(20, 192) + offset).to(dtype)
    for got, want in zip(norm_and_gradient(x), norm_and_gradient(x.double(), layer_norm), strict=True):
        assert got.dtype == dtype
        assert_close(got, want, tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("value", [0.0, 0.1, -7.3, 1e4, 3e38, 1e-40])
@pytest.mark.parametrize("width", [1, 2, 7, 192])
def test_a_constant_row_gives_exactly_0_and_no_gradient(isa, dtype, value, width):
    x = draw(3, width, dtype=dtype)
    x[1] = value
    y, gradient = norm_and_gradient(x)
    assert_same_bits(y[1], torch.zeros(width, dtype=dtype))
    assert_same_bits(gradient[1].abs(), torch.zeros(width, dtype=dtype))
    assert bool(gradient.isfinite().all())


def test_one_constant_row_poisons_no_weight_gradient():
    weight = draw(6, 6).requires_grad_()
    x = draw(4, 6)
    x[2] = 0.0
    (gradient,) = torch.autograd.grad(ops.plain_norm(x @ weight).sum(), weight)
    assert bool(gradient.isfinite().all())


def test_a_constant_row_has_zero_derivatives_of_every_order():
    x = draw(2, 5)
    x[0] = 3.0
    x.requires_grad_()
    result = ops.plain_norm(x)
    for _ in range(3):
        (result,) = torch.autograd.grad(result.sin().sum(), x, create_graph=True)
        assert_same_bits(result[0], torch.zeros(5, dtype=torch.float64))
        assert bool(result.isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("place", [0, 2, 20])
def test_nan_and_inf_never_come_out_finite(isa, dtype, place):
    for value in (float("nan"), float("inf"), -float("inf")):
        x = draw(3, 21, dtype=dtype)
        x[1, place] = value
        y = ops.plain_norm(x)
        assert bool(y[1].isnan().all())
        assert bool(y[[0, 2]].isfinite().all())
        x[1] = value
        assert bool(ops.plain_norm(x)[1].isnan().all())


def test_derivatives_are_those_of_the_output():
    x = draw(2, 3, 5).requires_grad_()
    for function in (ops.plain_norm, centre, lambda x: inverse_rms(x)):
        assert torch.autograd.gradcheck(function, (x,))
        assert torch.autograd.gradgradcheck(function, (x,))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 5e-7), (torch.bfloat16, 4e-3)])
@pytest.mark.parametrize("shape", [(2, 4), (5, 3), (2, 15), (3, 16), (3, 17), (7, 60), (300, 192), (2, 3072), (0, 4)])
def test_the_kernels_equal_the_definition(isa, dtype, tolerance, shape):
    x = draw(*shape, dtype=dtype)
    with ops.use_reference():
        wanted = norm_and_gradient(x.double())
    for got, want in zip(norm_and_gradient(x), wanted, strict=True):
        assert got.dtype == dtype
        assert_close(got, want, tolerance)


def test_rows_know_nothing_of_each_other_of_threads_and_of_where_they_lie(isa, threads):
    x = draw(2, 150, 192, dtype=torch.float32)
    threads(2)
    together = norm_and_gradient(x)
    threads(1)
    for got, want in zip(norm_and_gradient(x), together, strict=True):
        assert_same_bits(got, want)
    assert_same_bits(ops.plain_norm(x[1, 7]), together[0][1, 7])
    strided = torch.zeros(150, 2, 200)[..., :192].transpose(0, 1).copy_(x)
    assert not strided.is_contiguous()
    for got, want in zip(norm_and_gradient(strided), together, strict=True):
        assert_same_bits(got, want)


def test_without_kernels_it_is_the_definition(monkeypatch):
    x = draw(3, 20, dtype=torch.float32)
    monkeypatch.setattr(norm_cpu, "refuses", lambda x: "no compiler")
    without = norm_and_gradient(x)
    with ops.use_reference():
        wanted = norm_and_gradient(x)
    for got, want in zip(without, wanted, strict=True):
        assert_same_bits(got, want)


def test_the_parts_are_what_they_say():
    x = draw(4, 9)
    assert_close(centre(x), x - x.mean(-1, keepdim=True), 1e-14)
    assert_close(inverse_rms(x), x.square().mean(-1, keepdim=True) ** -0.5, 1e-14)
    assert_same_bits(inverse_rms(torch.zeros(2, 3)), torch.zeros(2, 1))


def test_the_input_is_left_as_it_was():
    x = draw(4, 9)
    kept = x.clone()
    ops.plain_norm(x)
    assert_same_bits(x, kept)
