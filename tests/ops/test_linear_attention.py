"""linear_attention equals the quadratic sum it stands for, in any split, with pads left out of numerator and normaliser."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from relnet import ops
from relnet.ops.linear_attention import features
from tests.assertions import assert_close, assert_same_bits
from tests.ops.oracles import MASKS, linear_attention_by_pairs, make_mask
from tests.ops.recording import largest_input

# One chunk up to 64 tokens.
LENGTHS = (1, 2, 63, 64, 65, 129, 200)


def draw(*shape: int, dtype=torch.float64, seed: int = 0) -> list[torch.Tensor]:
    """Query, key, value; shape (B, H, T, d, e)."""
    generator = torch.Generator().manual_seed(seed)
    widths = (shape[3], shape[3], shape[4])
    return [torch.randn(*shape[:3], d, generator=generator, dtype=torch.float64).to(dtype) for d in widths]


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("causal", [True, False])
def test_it_equals_the_quadratic_sum(mask, length, causal):
    inputs = [x.requires_grad_() for x in draw(2, 2, length, 5, 3)]
    key_mask = make_mask(mask, 2, length)
    y, state = ops.linear_attention(*inputs, causal=causal, key_mask=key_mask)
    expected = linear_attention_by_pairs(*inputs, causal, key_mask)
    assert_close(y, expected, 1e-12)
    assert (state is None) == (not causal)
    weights = torch.linspace(-1, 1, y.numel(), dtype=y.dtype).view(y.shape)
    gradients = [torch.autograd.grad(result, inputs, weights) for result in (y, expected)]
    for name, got, want in zip(("dq", "dk", "dv"), *gradients, strict=True):
        # One real key has the weight 1 whatever query and key: no gradient but rounding.
        if name == "dv" or length > 2:
            assert_close(got, want, 1e-11, name)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("shift", [0.0, -12.0, -30.0, 20.0])
def test_float32_keeps_its_digits_far_below_0_too(causal, shift):
    """elu(x) + 1 cancels there: nothing is left of it at -17."""
    query, key, value = draw(2, 2, 100, 8, 8, dtype=torch.float32)
    y, _ = ops.linear_attention(query + shift, key + shift, value, causal=causal)
    assert_close(y, linear_attention_by_pairs(query + shift, key + shift, value, causal, None), 1e-5)


def test_bfloat16_is_computed_in_float32():
    inputs = draw(2, 2, 100, 8, 8, dtype=torch.bfloat16)
    y, state = ops.linear_attention(*inputs)
    assert y.dtype == torch.bfloat16
    assert state.key.dtype == state.key_value.dtype == torch.float32
    assert_close(y, linear_attention_by_pairs(*inputs, True, None), 4e-3)


@given(st.lists(st.integers(1, 70), min_size=1, max_size=5), st.sampled_from(MASKS))
@settings(max_examples=30, derandomize=True, deadline=None)
def test_any_split_into_chunks_gives_the_same(lengths, kind):
    T = sum(lengths)
    inputs, mask = draw(2, 2, T, 4, 3), make_mask(kind, 2, T)
    whole, last = ops.linear_attention(*inputs, key_mask=mask)
    state, parts = None, []
    for part in torch.arange(T).split(lengths):
        chunk_mask = None if mask is None else mask[:, part]
        y, state = ops.linear_attention(*(x[:, :, part] for x in inputs), key_mask=chunk_mask, state=state)
        parts.append(y)
    assert_close(torch.cat(parts, dim=2), whole, 1e-12)
    assert_close(state.key_value, last.key_value, 1e-12)
    assert_close(state.key, last.key, 1e-12)


def test_gradients_flow_through_the_state():
    gradients = []
    inputs = [x.requires_grad_() for x in draw(1, 2, 9, 4, 3)]
    for lengths in ([9], [4, 5], [1] * 9):
        state, loss = None, 0.0
        for part in torch.arange(9).split(lengths):
            y, state = ops.linear_attention(*(x[:, :, part] for x in inputs), state=state)
            loss = loss + y.square().sum()
        gradients.append(torch.autograd.grad(loss + state.key_value.sum(), inputs))
    for split in gradients[1:]:
        for got, want in zip(split, gradients[0], strict=True):
            assert_close(got, want, 1e-12)


def test_the_state_is_a_value():
    inputs = draw(1, 2, 9, 4, 3)
    _, state = ops.linear_attention(*inputs)
    kept = [x.clone() for x in state]
    first, _ = ops.linear_attention(*inputs, state=state)
    again, _ = ops.linear_attention(*inputs, state=state)
    assert_same_bits(again, first)
    for now, before in zip(state, kept, strict=True):
        assert_same_bits(now, before)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30])
@pytest.mark.parametrize("causal", [True, False])
def test_what_stands_at_a_masked_key_changes_no_bit(value, causal):
    """Nor the normaliser, which padded keys must not enter."""
    mask = torch.cat([make_mask(kind, 1, 70) for kind in ("left", "right", "inner")] + [torch.zeros(1, 70) > 0])
    results = []
    for poison in (False, True):
        inputs = draw(4, 2, 70, 4, 3, dtype=torch.float32)
        if poison:
            inputs[1:] = [torch.where(mask[:, None, :, None], x, value) for x in inputs[1:]]
        inputs = [x.requires_grad_() for x in inputs]
        y, state = ops.linear_attention(*inputs, causal=causal, key_mask=mask)
        results.append((y, *(state or ()), *torch.autograd.grad(y.sin().sum(), inputs)))
    for got, want in zip(*results, strict=True):
        assert_same_bits(got, want)
        assert bool(got.isfinite().all())
    assert_same_bits(results[1][0][3], torch.zeros_like(results[1][0][3]))


def test_later_tokens_change_no_earlier_bit():
    results = []
    for change in (1.0, -20.0):
        query, key, value = draw(2, 2, 130, 4, 3, dtype=torch.float32)
        for x in (query, key, value):
            x[:, :, 70:] *= change
        inputs = [x.requires_grad_() for x in (query, key, value)]
        early = ops.linear_attention(*inputs)[0][:, :, :70]
        results.append((early, *(g[:, :, :70] for g in torch.autograd.grad(early.sin().sum(), inputs))))
    for got, want in zip(*results, strict=True):
        assert_same_bits(got, want)


@pytest.mark.parametrize("causal", [True, False])
def test_second_derivatives_are_those_of_the_output(causal):
    mask = torch.tensor([[False, True, True, False, True]])
    inputs = tuple(x.requires_grad_() for x in draw(1, 1, 5, 3, 2))

    def op(*inputs):
        return ops.linear_attention(*inputs, causal=causal, key_mask=mask)[0]

    assert torch.autograd.gradcheck(op, inputs)
    assert torch.autograd.gradgradcheck(op, inputs)


@pytest.mark.parametrize("causal", [True, False])
def test_it_passes_through_every_transform(causal):
    """Forward mode, torch.func, vmap and batched gradients find the derivatives that backward finds."""
    inputs = tuple(x.requires_grad_() for x in draw(1, 2, 6, 3, 2))

    def op(*inputs):
        return ops.linear_attention(*inputs, causal=causal)[0]

    jacobians = torch.autograd.functional.jacobian(op, inputs)
    detached = tuple(x.detach() for x in inputs)
    everything = (0, 1, 2)
    for name, got in {
        "jacrev": torch.func.jacrev(op, everything)(*detached),
        "jacfwd": torch.func.jacfwd(op, everything)(*detached),
        "batched": torch.autograd.functional.jacobian(op, inputs, vectorize=True),
    }.items():
        for x, want in zip(got, jacobians, strict=True):
            assert_close(x, want, 1e-12, name)
    rows = tuple(torch.stack([x, -x, 2 * x]) for x in detached)
    assert_close(torch.func.vmap(op)(*rows), torch.stack([op(*row) for row in zip(*rows, strict=True)]), 1e-12)


def test_features_keep_nothing_but_their_result():
    x = draw(1, 1, 9, 5, 3)[0].requires_grad_()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        y = features(x)
    assert [t.data_ptr() for t in kept] == [y.data_ptr()]
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert_close(grad, x.detach().clamp(max=0).exp(), 1e-15)


def test_by_the_definition_it_takes_all_pairs_at_once():
    inputs = draw(1, 2, 200, 4, 3)
    with ops.use_reference():
        y, state = ops.linear_attention(*inputs)
    fast, fast_state = ops.linear_attention(*inputs)
    assert_close(y, fast, 1e-12)
    assert_close(state.key_value, fast_state.key_value, 1e-12)


def test_no_tensor_is_quadratic_in_length():
    T = 1000
    inputs = [x.requires_grad_() for x in draw(1, 1, T, 2, 2)]

    def everything():
        torch.autograd.grad(ops.linear_attention(*inputs)[0].sum(), inputs)

    assert largest_input(everything) <= 64 * T
    with ops.use_reference():
        assert largest_input(everything) >= T * T
