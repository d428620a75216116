"""linear_relation and the linear path of relation_mean: definition, state, masks, large values, derivatives, memory."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relnet import ops
from relnet.ops.linear_sums import decayed_cumsum
from tests.assertions import assert_close, assert_same_bits
from tests.ops.oracles import MASKS, decayed_cumsum_by_loops, make_mask, relation_by_loops
from tests.ops.recording import largest_input

BACKENDS = ("auto", "reference")


def draw(seed: int, *shape: int, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def assert_log_close(actual, expected, source, target):
    """Absolutely within 4 eps (1 + max|p| + max|q|), and -inf in the same places."""
    actual, expected = actual.detach(), expected.detach()
    bound = 4 * torch.finfo(actual.dtype).eps * float(1 + source.abs().max() + target.abs().max())
    assert_same_bits(actual.isneginf(), expected.isneginf())
    finite = ~expected.isneginf()
    error = float((actual.double() - expected.double())[finite].abs().max()) if finite.any() else 0.0
    assert error <= bound, f"absolute error {error:.3e}, allowed {bound:.3e}"


def in_chunks(source, target, lengths, key_mask=None, **arguments):
    """Feed the tokens in chunks of these lengths; return all log-means and the last state."""
    state, parts = None, []
    for part in torch.arange(source.shape[1]).split(lengths):
        mask = None if key_mask is None else key_mask[:, part]
        y, state = ops.linear_relation(source[:, part], target[:, part], key_mask=mask, state=state, **arguments)
        parts.append(y)
    return torch.cat(parts, dim=1), state


# Against the definition


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("norm", ["none", "approximate"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("T", "S", "causal"), [(1, 1, True), (5, 5, True), (5, 2, True), (4, 6, False), (1, 1, False)])
def test_the_log_mean_is_the_log_of_the_definition(backend, norm, mask, T, S, causal):
    source, target = draw(0, 2, T, 6), draw(1, 2, S, 6)
    arguments = {"norm": norm, "causal": causal, "heads": 2, "key_mask": make_mask(mask, 2, T)}
    log_mean, state = ops.linear_relation(source, target, backend=backend, **arguments)
    assert_close(log_mean.exp(), relation_by_loops(source, target, **arguments), 1e-13)
    assert (state is None) == (not causal)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_float32_is_within_four_eps_of_the_largest_value(backend, mask, causal, scale):
    source, target = scale * draw(0, 3, 63, 20, dtype=torch.float32), scale * draw(1, 3, 63, 20, dtype=torch.float32)
    arguments = {"causal": causal, "key_mask": make_mask(mask, 3, 63)}
    log_mean, _ = ops.linear_relation(source, target, backend=backend, **arguments)
    expected, _ = ops.linear_relation(source.double(), target.double(), backend="reference", **arguments)
    assert_log_close(log_mean, expected, source, target)


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 99, 100, 101, 257])
def test_every_length_equals_the_reference(length):
    """The scan works in chunks of about sqrt(T): lengths below, at and above a multiple."""
    source, target = draw(0, 2, length, 5).requires_grad_(), draw(1, 2, length, 5).requires_grad_()
    results = []
    for backend in BACKENDS:
        log_mean, state = ops.linear_relation(source, target, backend=backend)
        results.append((log_mean, state.log_sum, *torch.autograd.grad(log_mean.sin().sum(), (source, target))))
    for got, want in zip(*results, strict=True):
        assert_close(got, want, 1e-12)


def test_bfloat16_is_computed_in_float32_and_the_state_stays_there():
    source, target = draw(0, 2, 100, 8, dtype=torch.bfloat16), draw(1, 2, 100, 8, dtype=torch.bfloat16)
    log_mean, state = ops.linear_relation(source, target)
    expected, expected_state = ops.linear_relation(source.double(), target.double())
    assert log_mean.dtype == torch.bfloat16
    assert_close(log_mean, expected, 4e-3)
    assert state.log_sum.dtype == torch.float32
    assert_close(state.log_sum, expected_state.log_sum, 1e-6)


# State


@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=6),
    st.sampled_from(MASKS),
    st.sampled_from(["none", "approximate"]),
    st.sampled_from(BACKENDS),
)
@settings(max_examples=60, derandomize=True, deadline=None)
def test_any_split_into_chunks_gives_the_same(lengths, kind, norm, backend):
    T = sum(lengths)
    source, target, mask = draw(0, 3, T, 4), draw(1, 3, T, 4), make_mask(kind, 3, T)
    arguments = {"key_mask": mask, "norm": norm, "backend": backend, "heads": 2}
    whole, state = ops.linear_relation(source, target, **arguments)
    parts, last = in_chunks(source, target, lengths, **arguments)
    assert_log_close(parts, whole, source, target)
    assert_log_close(last.log_sum, state.log_sum, source, target)
    assert_same_bits(last.count, state.count)


@pytest.mark.parametrize("kind", MASKS)
def test_the_state_counts_real_tokens(kind):
    mask = make_mask(kind, 3, 10)
    expected = torch.full((3,), 10) if mask is None else mask.sum(1)
    for lengths in ([10], [3, 4, 3], [1] * 10):
        _, state = in_chunks(draw(0, 3, 10, 4), draw(1, 3, 10, 4), lengths, key_mask=mask)
        assert state.count.dtype == torch.int64
        assert_same_bits(state.count, expected)
        assert state.log_sum.shape == (3, 4)


def test_the_state_is_constant_in_length_in_memory_too():
    for length in (1, 300):
        _, state = ops.linear_relation(draw(0, 2, length, 4), draw(1, 2, length, 4))
        assert state.log_sum.untyped_storage().nbytes() == 2 * 4 * 8
        assert state.count.untyped_storage().nbytes() == 2 * 8


def test_the_state_is_a_value():
    source, target = draw(0, 2, 6, 4), draw(1, 2, 6, 4)
    _, state = ops.linear_relation(source, target)
    kept = state.log_sum.clone()
    first, _ = ops.linear_relation(source, target, state=state)
    ops.linear_relation(2 * source, target, state=state)
    again, _ = ops.linear_relation(source, target, state=state)
    assert_same_bits(again, first)
    assert_same_bits(state.log_sum, kept)


@pytest.mark.parametrize("kind", MASKS)
def test_gradients_flow_through_the_state(kind):
    mask = make_mask(kind, 3, 9)
    source, target = draw(0, 3, 9, 4).requires_grad_(), draw(1, 3, 9, 4).requires_grad_()
    gradients = []
    for lengths in ([9], [4, 5], [1] * 9):
        log_mean, state = in_chunks(source, target, lengths, key_mask=mask, norm="approximate")
        loss = log_mean.exp().square().sum() + state.log_sum.exp().sum()
        first = torch.autograd.grad(loss, (source, target), create_graph=True)
        gradients.append((*first, *torch.autograd.grad(sum(g.sin().sum() for g in first), (source, target))))
    for split in gradients[1:]:
        for got, want in zip(split, gradients[0], strict=True):
            assert_close(got, want, 1e-11)


# Masks


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("causal", [True, False])
def test_a_target_without_a_source_gives_minus_inf_and_no_gradient(backend, causal):
    source, target = draw(0, 2, 4, 3).requires_grad_(), draw(1, 2, 4, 3)
    target[0, 0] = float("nan")
    target[0, 1] = float("inf")
    target.requires_grad_()
    mask = torch.tensor([[False] * 4, [False, False, True, True]])
    log_mean, _ = ops.linear_relation(source, target, key_mask=mask, causal=causal, backend=backend)
    empty = torch.tensor([[True] * 4, [causal, causal, False, False]])
    assert bool(log_mean[empty].isneginf().all())
    assert bool(log_mean[~empty].isfinite().all())
    dp, dq = torch.autograd.grad(log_mean, (source, target), torch.ones_like(log_mean))
    assert_same_bits(dq, torch.where(empty[..., None], 0.0, 1.0).double().expand(2, 4, 3))
    assert_same_bits(dp[~mask], torch.zeros_like(dp[~mask]))
    assert bool(dp.isfinite().all())


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 3e38])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("norm", ["none", "approximate"])
@pytest.mark.parametrize("causal", [True, False])
def test_what_stands_at_a_masked_source_changes_no_bit(value, backend, norm, causal):
    mask = torch.cat([make_mask(kind, 1, 9) for kind in ("left", "right", "inner")] + [torch.zeros(1, 9) > 0])
    clean = draw(0, 4, 9, 6, dtype=torch.float32)
    results = []
    for source in (clean, torch.where(mask[..., None], clean, value)):
        source, target = source.clone().requires_grad_(), draw(1, 4, 9, 6, dtype=torch.float32).requires_grad_()
        arguments = {"norm": norm, "causal": causal, "backend": backend, "key_mask": mask}
        log_mean, state = ops.linear_relation(source, target, **arguments)
        outputs = [log_mean] if state is None else [log_mean, state.log_sum]
        grads = torch.autograd.grad(outputs, (source, target), [draw(2, *y.shape).float() for y in outputs])
        results.append((*outputs, *grads))
    for got, want in zip(*results, strict=True):
        assert_same_bits(got, want)
        assert not bool(got.isnan().any())


def test_later_tokens_change_no_earlier_bit():
    source, target = draw(0, 2, 20, 6, dtype=torch.float32), draw(1, 2, 20, 6, dtype=torch.float32)
    results = []
    for change in (1.0, -1e3, 1e3):
        p, q = source.clone(), target.clone()
        p[:, 7:] *= change
        q[:, 7:] *= change
        p.requires_grad_()
        log_mean, _ = ops.linear_relation(p, q)
        early = log_mean[:, :7]
        results.append((early, torch.autograd.grad(early.sin().sum(), p)[0]))
    for early, gradient in results[1:]:
        assert_same_bits(early, results[0][0])
        assert_same_bits(gradient, results[0][1])


def test_the_same_call_gives_the_same_bits():
    source, target = draw(0, 3, 100, 24, dtype=torch.float32), draw(1, 3, 100, 24, dtype=torch.float32)
    first, state = ops.linear_relation(source, target)
    for _ in range(3):
        again, again_state = ops.linear_relation(source, target)
        assert_same_bits(again, first)
        assert_same_bits(again_state.log_sum, state.log_sum)


# Large values


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("scale", [1.0, 1e2, 1e4])
def test_relation_mean_keeps_its_digits_where_exp_of_p_alone_overflows(kind, scale):
    """Maximum and sum apart: m + log S would cost four digits of y at 1e4."""
    mask = make_mask(kind, 3, 63)
    source = scale * draw(0, 3, 63, 20, dtype=torch.float32)
    visible = source if mask is None else source.masked_fill(~mask[..., None], -torch.inf)
    largest = visible.cummax(1).values
    target = draw(1, 3, 63, 20, dtype=torch.float32) - torch.where(largest.isinf(), 0.0, largest)
    results = []
    for backend, dtype in (("linear", torch.float32), ("reference", torch.float64)):
        p, q = (x.detach().to(dtype).requires_grad_() for x in (source, target))
        y = ops.relation_mean(p, q, norm="none", key_mask=mask, backend=backend)
        results.append((y, *torch.autograd.grad(y, (p, q), draw(2, *y.shape).to(dtype))))
    for name, got, want in zip(("y", "dp", "dq"), *results, strict=True):
        assert_close(got, want, 1e-5, name)


@pytest.mark.parametrize("start", [-1e4, 1e4])
def test_rising_and_falling_sources_over_the_whole_range_keep_their_digits(start):
    source = torch.linspace(start, -start, 200).view(1, 200, 1).requires_grad_()
    log_mean, state = ops.linear_relation(source, torch.zeros_like(source))
    expected, _ = ops.linear_relation(source.double(), torch.zeros_like(source).double(), backend="reference")
    assert_log_close(log_mean, expected, source.detach(), torch.zeros(1))
    (gradient,) = torch.autograd.grad(log_mean.sum() + state.log_sum.sum(), source)
    # Each log-mean is a mean of its sources, with weights that add to 1.
    assert abs(float(gradient.sum()) - 201) < 1e-2


# Derivatives


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("norm", ["none", "approximate"])
@pytest.mark.parametrize("causal", [True, False])
def test_first_and_second_derivatives_are_those_of_the_output(backend, norm, causal):
    mask = torch.tensor([[False, True, False, True, True]])

    def op(source, target):
        log_mean, state = ops.linear_relation(
            source, target, norm=norm, causal=causal, key_mask=mask, heads=2, backend=backend
        )
        # -inf has no numerical derivative.
        log_mean = log_mean.where(log_mean.isfinite(), 0.0)
        return log_mean if state is None else (log_mean, state.log_sum)

    inputs = (draw(3, 1, 5, 6).requires_grad_(), draw(4, 1, 5, 6).requires_grad_())
    assert torch.autograd.gradcheck(op, inputs)
    assert torch.autograd.gradgradcheck(op, inputs)


def test_the_third_derivative_equals_the_reference():
    source, target = draw(0, 2, 9, 4).requires_grad_(), draw(1, 2, 9, 4).requires_grad_()
    results = []
    for backend in BACKENDS:
        log_mean, _ = ops.linear_relation(source, target, norm="approximate", backend=backend)
        grads = torch.autograd.grad(log_mean.sin().sum(), (source, target), create_graph=True)
        products = torch.autograd.grad(sum(g.square().sum() for g in grads), (source, target), create_graph=True)
        results.append(torch.autograd.grad(sum(p.square().sum() for p in products), (source, target)))
    for got, want in zip(*results, strict=True):
        assert_close(got, want, 1e-11)


# The scan


@pytest.mark.parametrize("length", [1, 2, 3, 8, 9, 10, 50])
def test_the_decayed_sum_equals_its_loop(length):
    decay, x = draw(0, 2, length, 3).sigmoid(), draw(1, 2, length, 3)
    assert_close(decayed_cumsum(decay, x), decayed_cumsum_by_loops(decay, x), 1e-14)
    # Non-contiguous inputs.
    turned = [t.transpose(0, 2).contiguous().transpose(0, 2) for t in (decay, x)]
    assert_close(decayed_cumsum(*turned), decayed_cumsum_by_loops(decay, x), 1e-14)


def test_the_decayed_sum_is_differentiable_in_its_terms():
    decay, x = draw(0, 1, 7, 2).sigmoid(), draw(1, 1, 7, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: decayed_cumsum(decay, x), (x,))
    assert torch.autograd.gradgradcheck(lambda x: decayed_cumsum(decay, x).sin(), (x,))


def test_no_tensor_is_quadratic_in_length():
    rows, T, D = 1, 400, 2
    source, target = draw(0, rows, T, D).requires_grad_(), draw(1, rows, T, D).requires_grad_()

    def everything():
        log_mean, _ = ops.linear_relation(source, target, norm="approximate")
        y = ops.relation_mean(source, target, norm="none")
        torch.autograd.grad(log_mean.sum() + y.sum(), (source, target))

    assert largest_input(everything) <= 4 * rows * T * D
    assert largest_input(lambda: ops.linear_relation(source, target, backend="reference")) >= T * T
