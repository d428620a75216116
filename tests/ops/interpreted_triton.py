"""The Triton kernels under Triton's interpreter: run by test_relation_triton.py in a process that has TRITON_INTERPRET=1."""

from unittest import mock

import pytest
import torch
import triton
import triton.language as tl

from relnet import ops
from relnet.ops import relation_triton, relation_triton_kernels
from tests.assertions import assert_close, assert_same_bits
from tests.ops.backends import INTERPRETED
from tests.ops.oracles import make_mask
from tests.ops.test_relation import (
    CASES,
    EVERY_FORM,
    Case,
    assert_equals_reference,
    draw,
    hessian_penalty_gradient,
)

assert INTERPRETED
assert relation_triton_kernels.INTERPRETED

SHAPES = {
    "one of each": Case(1, 1, 1, 1, 1, None, "none", "none", "exp", True, "contiguous"),
    "two parts a row": Case(20, 20, 90, 2, 1, None, "none", "exact", "exp", True, "transposed"),
    "a masked tail": Case(33, 33, 60, 1, 1, None, "right", "exact", "exp", True, "strided"),
    "more targets than sources": Case(20, 45, 24, 2, 2, None, "left", "exact", "exp", False, "expanded"),
    "decoding": Case(100, 1, 24, 2, 2, [7, None], "inner", "exact", "exp", True, "contiguous"),
    "splits and windows": Case(100, 70, 24, 1, 2, [30, 90], "inner", "exact", "gelu", True, "contiguous"),
    "an empty row": Case(20, 12, 24, 3, 1, [3], "empty row", "rms", "elu", True, "contiguous"),
    "narrow heads": Case(20, 20, 24, 1, 4, None, "only the middle", "exact", "exp", True, "contiguous"),
}


@pytest.mark.parametrize("case", SHAPES.values(), ids=SHAPES.keys())
def test_any_shape_equals_the_reference(case):
    assert_equals_reference(*case.inputs(torch.float32), "triton", 2e-6, **case.arguments())


@pytest.mark.parametrize(("norm", "activation"), EVERY_FORM)
def test_every_form_equals_the_reference(norm, activation):
    case = Case(21, 13, 12, 2, 2, [4, None], "inner", norm, activation, True, "contiguous")
    assert_equals_reference(*case.inputs(torch.float32), "triton", 1e-6, **case.arguments())


@pytest.mark.parametrize("case", [SHAPES["decoding"], SHAPES["an empty row"]], ids=str)
def test_bfloat16_is_storage_only(case):
    assert_equals_reference(*case.inputs(torch.bfloat16), "triton", 4e-3, **case.arguments())


@pytest.mark.parametrize("exp_on_fma", [False, True])
def test_errors_at_the_width_of_the_paper(monkeypatch, exp_on_fma):
    monkeypatch.setattr(relation_triton, "EXP_ON_FMA", exp_on_fma)
    source, target = draw(0, 1, 130, 192, dtype=torch.float32), draw(1, 1, 130, 192, dtype=torch.float32)
    assert_equals_reference(source, target, "triton", 5e-7)


@pytest.mark.parametrize("d", [1, 24, 40])
@pytest.mark.parametrize("index", range(3))
def test_every_tile_gives_the_same(monkeypatch, d, index):
    values = relation_triton_kernels.VALUES_A_LANE[relation_triton_kernels.gradient_over_pairs]
    tile = relation_triton_kernels.tiles(d, values)[index].kwargs
    monkeypatch.setattr(relation_triton_kernels, "_INTERPRETED_TILE", tile)
    case = Case(11, 7, d, 1, 1, [5], "inner", "none" if d == 1 else "exact", "exp", True, "contiguous")
    assert_equals_reference(*case.inputs(torch.float32), "triton", 2e-6, **case.arguments())


def test_a_row_is_one_part_or_two_that_hold_it_with_few_lanes_idle():
    for d in range(1, 5000):
        found = relation_triton_kernels.parts(d)
        widths = [width for _, width in found]
        assert [first for first, _ in found] == [0, widths[0]][: len(found)]
        assert all(width & (width - 1) == 0 for width in widths)
        assert sum(widths) >= d
        assert sum(widths) == 16 or sum(widths) < 1.5 * d + 16
    assert relation_triton_kernels.parts(192) == ((0, 128), (128, 64))
    assert relation_triton_kernels.parts(60) == ((0, 64),)


@triton.jit
def powers(t_pointer, out_pointer, ON_FMA: tl.constexpr):
    at = tl.program_id(0) * 1024 + tl.arange(0, 1024)
    tl.store(out_pointer + at, relation_triton_kernels._exp2(tl.load(t_pointer + at), ON_FMA))


def test_the_exp_of_the_fma_units_is_right_to_a_rounding():
    t = torch.linspace(-126, 126, 1 << 16)
    t[5] = torch.nan
    y = torch.empty_like(t)
    powers[(64,)](t, y, ON_FMA=True)
    error = (y.double() / t.double().exp2() - 1).abs()
    assert error[5].isnan()
    assert float(error.nan_to_num().max()) < 2e-7


def test_no_two_calls_differ_and_no_program_adds_to_another_ones_sum():
    source, target = draw(0, 1, 70, 24, dtype=torch.float32), draw(1, 1, 70, 24, dtype=torch.float32)
    first = ops.relation_mean(source, target, backend="triton")
    assert_same_bits(ops.relation_mean(source, target, backend="triton"), first)
    with mock.patch.object(relation_triton, "ENOUGH_ROWS", 0):
        assert_close(ops.relation_mean(source, target, backend="triton"), first, 1e-6)


def test_an_empty_batch_is_empty():
    source = torch.zeros(0, 5, 6, requires_grad=True)
    y = ops.relation_mean(source, source, backend="triton")
    assert y.shape == (0, 5, 6)
    assert torch.autograd.grad(y.sum(), source)[0].shape == (0, 5, 6)


def test_third_derivatives_go_through_the_kernels():
    form = {"heads": 2, "windows": [3, None], "key_mask": make_mask("inner", 2, 7)}
    source, target = draw(5, 2, 7, 10, dtype=torch.float32), draw(6, 2, 5, 10, dtype=torch.float32)
    actual = hessian_penalty_gradient(source, target, "triton", **form)
    expected = hessian_penalty_gradient(source.double().detach(), target.double().detach(), "reference", **form)
    for got, want in zip(actual, expected, strict=True):
        assert_close(got, want, 1e-4)


def test_auto_leaves_cpu_tensors_to_the_cpu():
    x = torch.zeros(1, 3, 4)
    assert "triton" not in ops.explain(x, x).split(":")[0]
    assert ops.explain(x, x, backend="triton") == "triton: fused Triton kernels (asked for)"
    with pytest.raises(ValueError, match=r"backend 'triton' cannot be used: tensors are torch.float64"):
        ops.relation_mean(x.double(), x.double(), backend="triton")


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in CASES if case.T <= 130], ids=str)
def test_the_kernels_equal_the_reference(case):
    assert_equals_reference(*case.inputs(torch.float32), "triton", 2e-6, **case.arguments())


@pytest.mark.slow
@pytest.mark.parametrize("checks", ["test_schema", "test_autograd_registration", "test_faketensor"])
def test_the_custom_ops_pass_opcheck(checks):
    source, target = draw(0, 2, 5, 6, dtype=torch.float32), draw(1, 2, 4, 6, dtype=torch.float32)
    arguments = (
        source.requires_grad_(),
        target.requires_grad_(),
        make_mask("left", 2, 5),
        "exp",
        "exact",
        True,
        2,
        [2, 0],
    )
    torch.library.opcheck(torch.ops.relnet.relation_triton.default, (*arguments, True), test_utils=checks)


@pytest.mark.slow
def test_the_op_compiles_into_one_graph_equal_to_eager():
    def call(source, target):
        return ops.relation_mean(source, target, backend="triton", windows=[3])

    results = []
    for function in (call, torch.compile(call, fullgraph=True, backend="aot_eager")):
        source, target = draw(0, 2, 9, 8, dtype=torch.float32), draw(1, 2, 9, 8, dtype=torch.float32)
        y = function(source.requires_grad_(), target.requires_grad_())
        results.append((y, *torch.autograd.grad(y.sin().sum(), (source, target))))
    for got, want in zip(*results, strict=True):
        assert_same_bits(got, want)
