"""The fused CPU kernels of the linear form, by every instruction set: definition, derivatives, bits, range, memory layouts."""

import threading

import pytest
import torch

from relnet import ops
from relnet.ops import cpu_library, relation_linear_cpu
from tests.assertions import assert_close, assert_same_bits
from tests.ops.backends import needs_cpu
from tests.ops.oracles import MASKS, make_mask
from tests.ops.test_linear import assert_log_close, draw, in_chunks

pytestmark = [needs_cpu, pytest.mark.usefixtures("isa")]


def draw32(seed, *shape):
    return draw(seed, *shape, dtype=torch.float32)


def log_mean(source, target, **arguments):
    """linear_relation's outputs, with -inf, which has no gradient, replaced by 0."""
    y, state = ops.linear_relation(source, target, **arguments)
    outputs = (y,) if state is None else (y, state.log_sum)
    return tuple(output.where(output.isfinite(), 0.0) for output in outputs)


def mean(source, target, **arguments):
    return (ops.relation_mean(source, target, norm="none", **arguments),)


OPS = {"log-mean": log_mean, "mean": mean}
every_op = pytest.mark.parametrize("op", OPS.values(), ids=OPS.keys())


def outputs_and_gradients(op, source, target, **arguments):
    source, target = source.detach().requires_grad_(), target.detach().requires_grad_()
    outputs = op(source, target, **arguments)
    cotangents = [draw(7, *y.shape).to(y.dtype) for y in outputs]
    return *(y.detach() for y in outputs), *torch.autograd.grad(outputs, (source, target), cotangents)


def assert_equals_double(op, source, target, tolerance=1e-5, **arguments):
    """Outputs and gradients against those of float64, which goes by PyTorch (or by the definition, where it is named)."""
    actual = outputs_and_gradients(op, source, target, **arguments)
    expected = outputs_and_gradients(op, source.double(), target.double(), **arguments)
    for got, want in zip(actual, expected, strict=True):
        assert_close(got, want, tolerance)


@every_op
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("T", "S", "causal"), [(1, 1, True), (70, 70, True), (70, 33, True), (40, 50, False)])
def test_outputs_and_gradients_equal_those_of_double_precision(op, mask, T, S, causal):
    arguments = {"causal": causal, "key_mask": make_mask(mask, 3, T)}
    assert_equals_double(op, draw32(0, 3, T, 20), draw32(1, 3, S, 20), 1e-6, **arguments)


@pytest.mark.parametrize("mask", MASKS)
def test_the_log_mean_is_within_four_eps_of_the_definition(mask):
    source, target, mask = draw32(0, 3, 70, 20), draw32(1, 3, 70, 20), make_mask(mask, 3, 70)
    got, state = ops.linear_relation(source, target, backend="cpu", key_mask=mask)
    want, want_state = ops.linear_relation(source.double(), target.double(), backend="reference", key_mask=mask)
    assert_log_close(got, want, source, target)
    assert_log_close(state.log_sum, want_state.log_sum, source, target)
    assert_same_bits(state.count, want_state.count)


@every_op
@pytest.mark.parametrize(
    ("T", "D"),
    [(1, 1), (2, 3), (63, 60), (64, 192), (65, 33), (257, 16), (997, 3), (1000, 17), (1, 3072), (34, 3072), (31, 1), (32, 48)],
)  # fmt: skip
@pytest.mark.parametrize("causal", [True, False])
def test_any_length_and_width(op, T, D, causal):
    assert_equals_double(op, draw32(0, 1, T, D), draw32(1, 1, T, D), 2e-6, causal=causal)


@every_op
@pytest.mark.parametrize("causal", [True, False])
def test_bfloat16_is_storage_only(op, causal):
    source, target = draw(0, 2, 70, 21, dtype=torch.bfloat16), draw(1, 2, 70, 21, dtype=torch.bfloat16)
    assert_equals_double(op, source, target, 4e-3, causal=causal)


@pytest.mark.parametrize("kind", MASKS)
def test_chunks_and_single_tokens_equal_the_whole_with_their_gradients(kind):
    source, target, mask = draw32(0, 3, 70, 12), draw32(1, 3, 70, 12), make_mask(kind, 3, 70)

    def split(lengths):
        def op(source, target):
            y, state = in_chunks(source, target, lengths, key_mask=mask)
            return y.where(y.isfinite(), 0.0), state.log_sum.where(state.log_sum.isfinite(), 0.0)

        return op

    want = outputs_and_gradients(split([70]), source.double(), target.double())
    for lengths in ([70], [33, 37], [1] * 70):
        for got, expected in zip(outputs_and_gradients(split(lengths), source, target), want, strict=True):
            assert_close(got, expected, 1e-5)


# Higher derivatives


@every_op
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mask", ["none", "inner", "empty row"])
def test_second_and_third_derivatives_equal_those_of_double_precision(op, causal, mask):
    def penalty(dtype):
        # Halved: the sine of a large mean would magnify its rounding.
        source, target = ((draw(seed, 2, 9, 5, dtype=dtype) / 2).requires_grad_() for seed in (0, 1))
        outputs = op(source, target, causal=causal, key_mask=make_mask(mask, 2, 9))
        loss = sum((y * draw(3 + k, *y.shape, dtype=dtype)).sin().sum() for k, y in enumerate(outputs))
        slopes = torch.autograd.grad(loss, (source, target), create_graph=True)
        along = sum((slope * draw(5, 2, 9, 5, dtype=dtype)).sum() for slope in slopes)
        products = torch.autograd.grad(along, (source, target), create_graph=True)
        third = torch.autograd.grad(sum(p.square().sum() for p in products), (source, target))
        return [p.detach() for p in products], third

    for tolerance, actual, expected in zip((1e-5, 1e-4), penalty(torch.float32), penalty(torch.float64), strict=True):
        for got, want in zip(actual, expected, strict=True):
            assert_close(got, want, tolerance)


def test_second_derivatives_go_through_the_state():
    def products(dtype):
        source, target = (draw(seed, 2, 6, 4, dtype=dtype).requires_grad_() for seed in (0, 1))
        y, state = in_chunks(source, target, [2, 4])
        slopes = torch.autograd.grad(y.sin().sum() + state.log_sum.square().sum(), (source, target), create_graph=True)
        return torch.autograd.grad(sum(slope.sin().sum() for slope in slopes), (source, target))

    for got, want in zip(products(torch.float32), products(torch.float64), strict=True):
        assert_close(got, want, 1e-5)


# Bits


@every_op
def test_bits_depend_on_nothing_that_threads_do(op, threads):
    source, target = draw32(0, 3, 100, 90), draw32(1, 3, 100, 90)
    threads(1)
    expected = outputs_and_gradients(op, source, target)
    wrong: list[int] = []

    def call(number: int) -> None:
        for _ in range(3):
            found = outputs_and_gradients(op, source, target)
            wrong.extend(number for got, want in zip(found, expected, strict=True) if not torch.equal(got, want))

    for number in (1, 2, 5, 16):
        threads(number)
        call(number)
    workers = [threading.Thread(target=call, args=(-number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


@every_op
@pytest.mark.parametrize("cut", [1, 31, 32, 33, 64, 99])
def test_later_tokens_change_no_earlier_bit(op, cut):
    source, target = draw32(0, 2, 100, 18), draw32(1, 2, 100, 18)

    def early(p, q):
        return (op(p, q)[0][:, :cut],)

    results = []
    # The mean itself has to stay finite.
    for change in (1.0, -10.0, 10.0) if op is mean else (1.0, -1e3, 3e37):
        p, q = source.clone(), target.clone()
        p[:, cut:] *= change
        q[:, cut:] *= change
        y, dp, dq = outputs_and_gradients(early, p, q)
        results.append((y, dp[:, :cut], dq[:, :cut]))
    for later in results[1:]:
        for got, want in zip(later, results[0], strict=True):
            assert_same_bits(got, want)


@every_op
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 3e38])
@pytest.mark.parametrize("causal", [True, False])
def test_what_stands_at_a_masked_source_changes_no_bit(op, value, causal):
    mask = torch.cat([make_mask(kind, 1, 70) for kind in ("left", "right", "inner")] + [torch.zeros(1, 70) > 0])
    source, target = draw32(0, 4, 70, 18), draw32(1, 4, 70, 18)
    dirty = torch.where(mask[..., None], source, value)
    results = [outputs_and_gradients(op, p, target, causal=causal, key_mask=mask) for p in (source, dirty)]
    for got, want in zip(*results, strict=True):
        assert_same_bits(got, want)
        assert bool(got.isfinite().all())


# The ends of the range


@pytest.mark.parametrize("start", [-1e4, 1e4])
@every_op
def test_sources_from_one_end_of_the_range_to_the_other_keep_their_digits(op, start):
    source = torch.linspace(start, -start, 200).view(1, 200, 1).expand(1, 200, 20)
    target = draw32(1, 1, 200, 20)
    if op is mean:
        target = target - source.cummax(1).values
    assert_equals_double(op, source, target, 1e-5)


def test_a_long_sum_loses_no_digits():
    """Without compensation 200,000 terms below 1 are off by some hundred eps."""
    source = draw32(0, 1, 200_000, 2)
    got, state = ops.linear_relation(source, torch.zeros_like(source), backend="cpu")
    want = source.double().logcumsumexp(1) - torch.arange(1, 200_001).log()[:, None]
    assert float((got - want).abs().max()) < 3e-6
    assert_close(state.log_sum, source.double().logsumexp(1), 1e-7)


@every_op
@pytest.mark.parametrize("causal", [True, False])
def test_nan_stays_in_its_channel_and_after_its_place(op, causal):
    source, target = draw32(0, 1, 70, 20), torch.zeros(1, 70, 20)
    source[0, 40, 3] = torch.nan
    form = {"norm": "none", "causal": causal, "backend": "cpu"}
    y, _ = ops.linear_relation(source, target, **form)
    m = ops.relation_mean(source, target, norm="none", causal=causal)
    poisoned = torch.zeros(1, 70, 20, dtype=torch.bool)
    poisoned[:, 40 if causal else 0 :, 3] = True
    assert_same_bits(y.isnan(), poisoned)
    assert_same_bits(m.isnan(), poisoned)


@pytest.mark.parametrize("causal", [True, False])
def test_infinite_sources_give_what_the_formula_gives(causal):
    source, target = draw32(0, 1, 70, 20), draw32(1, 1, 70, 20)
    source[0, :5, 0] = -torch.inf
    source[0, 3:50:9, 1] = torch.inf
    source[0, 20, 2] = -torch.inf
    for op in (lambda p, q: ops.linear_relation(p, q, causal=causal)[0], lambda p, q: mean(p, q, causal=causal)[0]):
        got, want = op(source, target), op(source.double(), target.double())
        assert_same_bits(got.isinf(), want.isinf())
        assert_same_bits(got.isnan(), want.isnan())
        assert_close(got[want.isfinite()], want[want.isfinite()], 1e-6)


# Memory layouts, the operators


@every_op
def test_strided_expanded_and_misaligned_inputs(op):
    both = draw32(0, 2, 40, 60)
    turned = draw32(1, 40, 20, 2).permute(2, 0, 1)
    mask = make_mask("left", 2, 80)[:, ::2]
    for source, target in (
        (both[..., 20:40], both[..., 41:]),
        (turned, draw32(2, 40, 20).expand(2, 40, 20)),
        (draw32(3, 2, 20)[:, None].expand(2, 40, 20), both[:, ::1, 1:39:2][..., :19].repeat(1, 1, 2)[..., :20]),
    ):
        size = min(source.shape[2], target.shape[2])
        assert_equals_double(op, source[..., :size], target[..., :size], 2e-6, key_mask=mask)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mean", [True, False])
def test_the_custom_ops_pass_opcheck(causal, mean):
    checks = ("test_schema", "test_autograd_registration", "test_faketensor")
    source, target = draw32(0, 2, 40, 6).requires_grad_(), draw32(1, 2, 37, 6).requires_grad_()
    mask = make_mask("left", 2, 40)
    past = (draw32(2, 2, 6).requires_grad_(), torch.tensor([3, 0])) if causal and not mean else (None, None)
    arguments = (source, target, mask, *past, causal, mean)
    forward, backward = torch.ops.relnet.relation_linear_cpu, torch.ops.relnet.relation_linear_cpu_backward
    torch.library.opcheck(forward.default, (*arguments, True), test_utils=checks)
    torch.library.opcheck(forward.default, (*arguments, False), test_utils=checks[::2])
    y, log_sum, _, kept = (x.detach() for x in forward(*arguments, True))
    grads = (draw32(3, *y.shape).requires_grad_(), draw32(4, 2, 6).requires_grad_() if log_sum.numel() else None)
    arguments = (*grads, source, target, mask, *past, kept, causal, mean)
    torch.library.opcheck(backward.default, arguments, test_utils=checks)


def test_the_kernels_run_where_explain_says_so():
    source, target = draw32(0, 2, 5, 6), draw32(1, 2, 5, 6)
    for backend in ("auto", "cpu"):
        assert ops.explain(source, target, norm="none", op="linear_relation", backend=backend).startswith("cpu: ")
    text = ops.explain(source.double(), target.double(), norm="approximate", op="linear_relation")
    assert text.startswith("plain: ")
    assert "cpu: tensors are torch.float64" in text
    assert "fused C++ kernels" in ops.explain(source, target, norm="none")
    with pytest.raises(ValueError, match=r"backend 'cpu' cannot be used: tensors are torch\.float64"):
        ops.linear_relation(source.double(), target.double(), backend="cpu")
    with pytest.raises(ValueError, match="does not factorise"):
        ops.explain(source, target, op="linear_relation")
    with ops.use_reference():
        assert ops.explain(source, target, norm="none", op="linear_relation").startswith("reference: ")


def test_without_the_kernels_the_same_is_computed_in_pytorch(monkeypatch):
    source, target = draw32(0, 2, 40, 6), draw32(1, 2, 40, 6)
    fused = [outputs_and_gradients(op, source, target) for op in OPS.values()]
    monkeypatch.setattr(relation_linear_cpu, "refuses", lambda source: "not built")
    assert ops.explain(source, target, norm="none").endswith("in PyTorch; cpu: not built")
    for op, results in zip(OPS.values(), fused, strict=True):
        for got, want in zip(outputs_and_gradients(op, source, target), results, strict=True):
            assert_close(got, want, 1e-6)
    assert cpu_library.missing() is None
