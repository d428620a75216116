"""The rules of test_relation_rules.py for the kernels of every instruction set, and what only some of them could get wrong."""

import math

import pytest
import torch

from relnet import ops
from tests.assertions import assert_close
from tests.ops import test_relation_rules as rules
from tests.ops.backends import needs_cpu
from tests.ops.test_relation_cpu import run

pytestmark = [needs_cpu, pytest.mark.usefixtures("isa")]
FORMS = rules.EVERY_FORM
every_form = pytest.mark.parametrize(("norm", "activation"), FORMS, ids=[" ".join(form) for form in FORMS])


@every_form
def test_the_rules_hold(norm, activation):
    form = "cpu", norm, activation
    rules.test_nan_in_a_valid_pair_gives_nan_and_only_there(*form)
    for value in (math.inf, -math.inf):
        rules.test_inf_gives_what_the_formula_gives(*form, value)
    for value in (math.nan, math.inf, -math.inf, 3e38, 0.0):
        rules.test_what_stands_at_a_masked_source_changes_no_bit(*form, value)
    for causal in (True, False):
        rules.test_a_target_without_a_source_gives_0_and_no_gradient(*form, causal)
    rules.test_targets_before_the_first_real_source_give_0(*form)
    rules.test_a_pad_target_changes_no_bit_elsewhere(*form)
    rules.test_later_tokens_change_no_earlier_bit(*form, 4)
    if norm in ("exact", "rms"):
        rules.test_a_pair_of_zero_variance_gives_psi_of_0_and_no_gradient("cpu", activation, norm)


def test_the_rules_of_extremes_hold():
    for value in (0.0, 0.1, -3e7, 1e-30):
        rules.test_rows_of_equal_channels_centre_to_exactly_0("cpu", value)
    for variance in (1e-20, 1e-26, 1e-30, 1e-36):
        rules.test_tiny_variances_keep_their_digits("cpu", variance)
    rules.test_variances_below_the_smallest_float_count_as_0("cpu")
    rules.test_retrieved_pairs_keep_their_digits("cpu")
    rules.test_one_channel_a_head_has_no_variance("cpu")


# Elsewhere the formula's own gradient is finite: 0 or 1.
NOT_FINITE = [(*form, math.nan) for form in FORMS if form[0] in ("exact", "rms") or form[1] in ("exp", "gelu")]
NOT_FINITE += [(*form, math.inf) for form in FORMS if form[0] in ("exact", "rms")]


@pytest.mark.parametrize(("norm", "activation", "value"), NOT_FINITE)
def test_a_source_that_is_not_finite_makes_gradients_that_are_not(norm, activation, value):
    """Of the whole row after an exact or RMS norm, whatever the activation makes of the channel itself, also for one target alone."""
    for targets in (6, 1):
        source, target = rules.draw(0, 1, 6, 20), rules.draw(1, 1, targets, 20)
        source[0, 2, 3] = value
        y, dp, dq = run(source, target, norm=norm, activation=activation)
        assert bool(y[0, -1, 3].isnan())
        channels = [3] if norm == "none" else slice(None)
        assert not bool(dp[0, 2, channels].isfinite().any())
        assert not bool(dq[0, -1, channels].isfinite().any())


@pytest.mark.parametrize("activation", ["relu", "elu", "gelu"])
@pytest.mark.parametrize("value", [1e37, -1e37, 1e38, -1e38, 3e38, -3e38])
def test_large_sums_without_a_norm_are_the_activations_own(activation, value):
    rows = torch.full((1, 1, 20), value)
    y, dp, _ = run(rows, torch.zeros_like(rows), norm="none", activation=activation)
    x = rows.double().requires_grad_()
    expected = rules.ACTIVATIONS[activation](x)
    (slope,) = torch.autograd.grad(expected.sum(), x)
    torch.testing.assert_close(y.double(), expected.detach(), rtol=1e-6, atol=0)
    torch.testing.assert_close(dp.double(), slope, rtol=1e-6, atol=0)


@pytest.mark.parametrize("size", [3.2e-22, 6.5e-22, 3.5e-21, 1e-20, 1e-19])
@pytest.mark.parametrize("D", [4, 700, 4095, 4096, 5999])
def test_the_smallest_variances_leave_no_channel_out_of_range(size, D):
    """The mean square is a few of the smallest floats, good to half of one: exp's argument may be a fifth larger than sqrt(d)."""
    rows = torch.zeros(1, 1, D)
    rows[..., 0] = size * D**0.5 / 4
    y, _, _ = run(rows, torch.zeros_like(rows))
    assert bool((y >= 0).all())
    assert bool((y[..., 0] >= y[..., 1]).all()), "the largest channel has the largest value"


@pytest.mark.parametrize("activation", ["exp", "gelu"])
def test_one_target_of_many_sources_keeps_its_digits(activation):
    # Equal terms: every rounding of a running sum goes the same way.
    row = rules.draw(0, 1, 1, 33)
    source, target = row.expand(1, 40_000, 33).contiguous(), rules.draw(1, 1, 1, 33)
    y = ops.relation_mean(source, target, activation=activation, causal=False, backend="cpu")
    one = ops.relation_mean(row.double(), target.double(), activation=activation, causal=False, backend="reference")
    assert_close(y, one, 3e-6)
