"""relation_mean equals its definition: the reference against loops, every backend against the reference, all derivatives."""

from typing import NamedTuple
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relnet import ops
from relnet.ops import relation_blocked
from tests.assertions import assert_close
from tests.ops.backends import FUSED, PAIRWISE
from tests.ops.oracles import MASKS, make_mask, relation_by_loops

NORMS = ("exact", "rms", "approximate", "none")
ACTIVATIONS = ("exp", "relu", "elu", "gelu")
EVERY_FORM = [(norm, activation) for norm in NORMS for activation in ACTIVATIONS]
# Every path with a form that it takes.
PATHS = [("reference", norm, activation) for norm, activation in EVERY_FORM]
PATHS += [("blocked", norm, activation) for norm, activation in EVERY_FORM]
PATHS += [("linear", "none", "exp"), ("linear", "approximate", "exp")]


def draw(seed: int, *shape: int, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


@pytest.mark.parametrize(("norm", "activation"), EVERY_FORM)
@pytest.mark.parametrize(
    ("T", "S", "heads", "windows", "mask", "causal"),
    [
        (1, 1, 1, None, "none", True),
        (5, 5, 1, None, "none", True),
        (5, 3, 2, [2, None], "left", True),
        (5, 5, 2, [1, 3], "inner", True),
        (4, 4, 1, [2], "right", True),
        (4, 2, 2, None, "empty row", True),
        (5, 3, 2, None, "none", False),
        (3, 5, 1, None, "inner", False),
        (4, 4, 2, None, "empty row", False),
    ],
)
def test_the_reference_is_the_definition(norm, activation, T, S, heads, windows, mask, causal):
    source, target = draw(0, 2, T, 6), draw(1, 2, S, 6)
    arguments = {"norm": norm, "activation": activation, "causal": causal, "heads": heads, "windows": windows}
    arguments["key_mask"] = make_mask(mask, 2, T)
    y = ops.relation_mean(source, target, backend="reference", **arguments)
    assert_close(y, relation_by_loops(source, target, **arguments), 1e-13)


def differentiate(source, target, weights, backend, **arguments):
    """Return the output and the gradients of <weights, output>."""
    y = ops.relation_mean(source, target, backend=backend, **arguments)
    return y, *torch.autograd.grad((y * weights).sum(), (source, target))


def assert_equals_reference(source, target, backend, tolerance, **arguments):
    """Output and gradients against the reference in float64 on the same inputs."""
    weights = draw(2, *target.shape, dtype=target.dtype)
    inputs = (source.requires_grad_(), target.requires_grad_())
    doubles = [x.detach().double().requires_grad_() for x in inputs]
    actual = differentiate(*inputs, weights, backend, **arguments)
    expected = differentiate(*doubles, weights.double(), "reference", **arguments)
    for name, got, want in zip(("y", "dp", "dq"), actual, expected, strict=True):
        assert got.dtype == source.dtype
        assert_close(got, want, tolerance, name)


class Case(NamedTuple):
    """One call; together they cover the pairs of lengths, widths, batches, windows, masks, norms, activations and layouts."""

    T: int
    S: int
    D: int
    rows: int
    heads: int
    windows: list[int | None] | None
    mask: str
    norm: str
    activation: str
    causal: bool
    layout: str

    def inputs(self, dtype: torch.dtype) -> list[torch.Tensor]:
        return [lay_out(seed, self.layout, self.rows, n, self.D, dtype) for seed, n in ((0, self.T), (1, self.S))]

    def arguments(self) -> dict:
        arguments = {name: getattr(self, name) for name in ("norm", "activation", "causal", "heads", "windows")}
        return arguments | {"key_mask": make_mask(self.mask, self.rows, self.T)}


def lay_out(seed: int, layout: str, rows: int, length: int, D: int, dtype: torch.dtype) -> torch.Tensor:
    if layout == "expanded":
        return draw(seed, 1, length, D, dtype=dtype).expand(rows, length, D)
    if layout == "transposed":
        return draw(seed, D, rows, length, dtype=dtype).permute(1, 2, 0)
    if layout == "strided":
        return draw(seed, rows, 2 * length, 2 * D, dtype=dtype)[:, ::2, ::2]
    return draw(seed, rows, length, D, dtype=dtype)


CASES = [
    Case(1, 1, 1, 1, 1, None, "none", "exact", "exp", True, "contiguous"),
    Case(1, 1, 192, 3, 4, [1, None, 2, 3], "none", "exact", "gelu", True, "transposed"),
    Case(1, 1, 60, 3, 1, None, "empty row", "approximate", "exp", False, "expanded"),
    Case(2, 1, 64, 3, 2, None, "left", "rms", "relu", True, "expanded"),
    Case(2, 2, 60, 1, 3, [1, 2, None], "right", "exact", "elu", True, "strided"),
    Case(2, 2, 1, 3, 1, None, "none", "none", "exp", True, "contiguous"),
    Case(63, 63, 60, 3, 1, None, "inner", "exact", "exp", True, "transposed"),
    Case(63, 20, 64, 1, 2, [5, None], "left", "exact", "exp", True, "strided"),
    Case(63, 63, 1, 3, 1, None, "empty row", "none", "gelu", True, "expanded"),
    Case(63, 1, 192, 3, 1, [7], "right", "rms", "exp", True, "contiguous"),
    Case(63, 100, 60, 3, 4, None, "inner", "exact", "exp", False, "expanded"),
    Case(100, 100, 64, 1, 4, [1, 2, 3, None], "none", "exact", "exp", True, "transposed"),
    Case(100, 100, 192, 1, 1, None, "none", "exact", "exp", True, "contiguous"),
    Case(100, 37, 60, 3, 1, None, "only the middle", "approximate", "elu", True, "strided"),
    Case(100, 1, 192, 3, 3, None, "empty row", "exact", "gelu", True, "expanded"),
    Case(100, 100, 1, 3, 1, [3], "inner", "approximate", "gelu", True, "contiguous"),
    Case(100, 100, 192, 1, 2, None, "right", "rms", "gelu", False, "transposed"),
    Case(100, 100, 64, 1, 1, None, "left", "none", "exp", True, "contiguous"),
    Case(257, 257, 64, 1, 1, None, "none", "exact", "exp", True, "contiguous"),
    Case(257, 257, 192, 1, 2, [16, None], "right", "exact", "exp", True, "strided"),
    Case(257, 100, 60, 1, 1, [30], "inner", "rms", "elu", True, "transposed"),
    Case(257, 63, 64, 1, 1, None, "none", "approximate", "exp", False, "expanded"),
    Case(257, 257, 1, 3, 1, None, "only the middle", "none", "exp", True, "expanded"),
]
LINEAR_CASES = [case for case in CASES if case.activation == "exp" and case.norm in ("none", "approximate")]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_blocked_equals_the_reference(case):
    assert_equals_reference(*case.inputs(torch.float32), "blocked", 1e-5, **case.arguments())


@pytest.mark.parametrize("case", LINEAR_CASES, ids=str)
def test_linear_equals_the_reference(case):
    assert_equals_reference(*case.inputs(torch.float32), "linear", 1e-5, **case.arguments())


@pytest.mark.parametrize("case", CASES[3:12], ids=str)
def test_the_reference_in_float32_equals_itself_in_float64(case):
    assert_equals_reference(*case.inputs(torch.float32), "reference", 1e-5, **case.arguments())


@pytest.mark.parametrize("case", CASES[3:12] + CASES[17:18], ids=str)
@pytest.mark.parametrize("backend", ["blocked", "reference", "auto"])
def test_bfloat16_is_computed_in_float32(case, backend):
    assert_equals_reference(*case.inputs(torch.bfloat16), backend, 4e-3, **case.arguments())


@pytest.mark.parametrize("case", CASES[3:12] + CASES[17:18], ids=str)
def test_float64_stays_float64(case):
    for backend in ("blocked", "linear") if case in LINEAR_CASES else ("blocked",):
        assert_equals_reference(*case.inputs(torch.float64), backend, 1e-13, **case.arguments())


@st.composite
def calls(draw_from):
    T = draw_from(st.integers(1, 9))
    causal = draw_from(st.booleans())
    S = draw_from(st.integers(1, T if causal else 9))
    rows, heads, d = draw_from(st.integers(1, 3)), draw_from(st.integers(1, 3)), draw_from(st.sampled_from([3, 4]))
    windows = draw_from(st.none() | st.lists(st.none() | st.integers(1, 10), min_size=heads, max_size=heads))
    mask = draw_from(st.none() | st.lists(st.booleans(), min_size=rows * T, max_size=rows * T))
    norm, activation = draw_from(st.sampled_from(EVERY_FORM))
    arguments = {
        "norm": norm,
        "activation": activation,
        "causal": causal,
        "heads": heads,
        "windows": windows if causal else None,
    }
    arguments["key_mask"] = None if mask is None else torch.tensor(mask).view(rows, T)
    return (
        rows,
        T,
        S,
        heads * d,
        arguments,
        draw_from(st.sampled_from([1, 24, 200, 1 << 18])),
        draw_from(st.integers(1, 9)),
    )


@given(calls())
@settings(max_examples=150, derandomize=True, deadline=None)
def test_any_mask_window_and_block_size_gives_the_definition(call):
    rows, T, S, D, arguments, block_elements, block_targets = call
    with mock.patch.multiple(relation_blocked, BLOCK_ELEMENTS=block_elements, BLOCK_TARGETS=block_targets):
        assert_equals_reference(draw(0, rows, T, D), draw(1, rows, S, D), "blocked", 1e-12, **arguments)
    if T <= 5 and rows == 1:
        y = ops.relation_mean(draw(0, rows, T, D), draw(1, rows, S, D), backend="reference", **arguments)
        assert_close(y, relation_by_loops(draw(0, rows, T, D), draw(1, rows, S, D), **arguments), 1e-13)


# "approximate" normalises rows before the backend sees them: one activation stands for all.
@pytest.mark.parametrize(
    ("backend", "norm", "activation"), [path for path in PATHS if path[1] != "approximate" or path[2] == "exp"]
)
def test_first_and_second_derivatives_are_those_of_the_output(backend, norm, activation):
    heads, windows = (2, None) if backend == "linear" else (2, [2, None])
    mask = torch.tensor([[True, False, True, True]])

    def op(source, target):
        arguments = {"norm": norm, "activation": activation, "heads": heads, "windows": windows, "key_mask": mask}
        return ops.relation_mean(source, target, backend=backend, **arguments)

    inputs = (draw(3, 1, 4, 6).requires_grad_(), draw(4, 1, 2, 6).requires_grad_())
    assert torch.autograd.gradcheck(op, inputs)
    # Random projections of the second derivative, not each of its entries.
    assert torch.autograd.gradgradcheck(op, inputs, fast_mode=True)


@pytest.mark.parametrize("backend", ["blocked", "linear"])
def test_derivatives_exist_when_one_input_is_a_constant(backend):
    def op(source, target):
        return ops.relation_mean(source, target, norm="approximate", backend=backend)

    inputs = (draw(3, 1, 3, 4), draw(4, 1, 3, 4))
    for constant in (0, 1):
        variables = tuple(x.clone().requires_grad_(index != constant) for index, x in enumerate(inputs))
        assert torch.autograd.gradcheck(op, variables)
        assert torch.autograd.gradgradcheck(op, variables)


@pytest.mark.parametrize("backend", ["blocked", "linear"])
@pytest.mark.parametrize("kept", [0, 1])
def test_one_of_the_two_gradients_can_be_differentiated_alone(backend, kept):
    results = []
    for name in (backend, "reference"):
        inputs = (draw(3, 1, 4, 6).requires_grad_(), draw(4, 1, 3, 6).requires_grad_())
        y = ops.relation_mean(*inputs, norm="approximate", backend=name)
        gradient = torch.autograd.grad(y.sin().sum(), inputs, create_graph=True)[kept]
        results.append(torch.autograd.grad(gradient.square().sum(), inputs))
    for got, want in zip(*results, strict=True):
        assert_close(got, want, 1e-12)


def hessian_penalty_gradient(source, target, backend, **arguments):
    """Gradient of ||H v||^2, H the Hessian of a loss with respect to source and target: a third derivative."""
    inputs = (source.requires_grad_(), target.requires_grad_())
    vectors = [draw(10 + index, *x.shape).to(x.dtype) for index, x in enumerate(inputs)]
    y = ops.relation_mean(*inputs, backend=backend, **arguments)
    loss = (y.sin() * draw(9, *y.shape).to(y.dtype)).sum()
    grads = torch.autograd.grad(loss, inputs, create_graph=True)
    products = torch.autograd.grad(
        sum((g * v).sum() for g, v in zip(grads, vectors, strict=True)), inputs, create_graph=True
    )
    return torch.autograd.grad(sum(product.square().sum() for product in products), inputs)


@pytest.mark.parametrize(("backend", "norm", "activation"), PATHS)
def test_the_gradient_of_a_hessian_penalty_equals_the_reference(backend, norm, activation):
    arguments = {
        "norm": norm,
        "activation": activation,
        "heads": 2,
        "windows": None,
        "key_mask": make_mask("inner", 2, 7),
    }
    if backend != "linear":
        arguments["windows"] = [3, None]
    source, target = draw(5, 2, 7, 10, dtype=torch.float32), draw(6, 2, 5, 10, dtype=torch.float32)
    # Small blocks, so that the sums over blocks are differentiated too.
    with mock.patch.multiple(relation_blocked, BLOCK_ELEMENTS=64, BLOCK_TARGETS_HIGHER=2):
        actual = hessian_penalty_gradient(source, target, backend, **arguments)
    expected = hessian_penalty_gradient(source.double().detach(), target.double().detach(), "reference", **arguments)
    for got, want in zip(actual, expected, strict=True):
        assert_close(got, want, 1e-4)


def test_the_third_derivative_of_the_reference_is_that_of_its_second():
    source, target = draw(7, 1, 3, 4).requires_grad_(), draw(8, 1, 2, 4).requires_grad_()

    def hessian_product(source, target):
        y = ops.relation_mean(source, target, backend="reference")
        grads = torch.autograd.grad(y.square().sum(), (source, target), create_graph=True)
        return torch.autograd.grad(sum(g.sin().sum() for g in grads), (source, target), create_graph=True)

    assert torch.autograd.gradcheck(hessian_product, (source, target))


def test_bidirectional_targets_are_independent_of_each_other():
    source, target = draw(0, 2, 6, 8), draw(1, 2, 5, 8)
    y = ops.relation_mean(source, target, causal=False, backend="blocked")
    for j in range(5):
        assert_close(
            ops.relation_mean(source, target[:, j : j + 1], causal=False, backend="blocked"), y[:, j : j + 1], 1e-13
        )


@pytest.mark.parametrize("kind", MASKS[1:])
def test_masked_sources_may_as_well_not_be_there(kind):
    """Each row equals the row without its pads: positions, windows and counts count real tokens."""
    mask = make_mask(kind, 3, 12)
    arguments = {"heads": 2, "windows": [3, None]}
    for backend in PAIRWISE:
        dtype, tolerance = (torch.float32, 1e-6) if backend in FUSED else (torch.float64, 1e-13)
        source, target = draw(0, 3, 12, 8, dtype=dtype), draw(1, 3, 12, 8, dtype=dtype)
        y = ops.relation_mean(source, target, key_mask=mask, backend=backend, **arguments)
        for row in range(3):
            real = mask[row].nonzero()[:, 0]
            if len(real):
                alone = ops.relation_mean(
                    source[row : row + 1, real], target[row : row + 1, real], backend=backend, **arguments
                )
                assert_close(y[row, real], alone[0], tolerance)
