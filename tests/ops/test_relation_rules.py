"""The rules that relation_mean rests on: zero variance, empty and masked pairs, NaN and inf, causality, bits, extremes."""

import math

import pytest
import torch
import torch.nn.functional as F

from relnet import ops
from tests.assertions import assert_close, assert_same_bits
from tests.ops.backends import PAIRWISE
from tests.ops.oracles import MASKS, make_mask
from tests.ops.recording import recorded

NAN, INF = math.nan, math.inf
NORMS = ("exact", "rms", "approximate", "none")
ACTIVATIONS = {"exp": torch.exp, "relu": F.relu, "elu": F.elu, "gelu": F.gelu}
EVERY_FORM = [(norm, activation) for norm in NORMS for activation in ACTIVATIONS]
# Every path with a form that it takes.
PATHS = [(backend, *form) for backend in PAIRWISE for form in EVERY_FORM]
PATHS += [("linear", "none", "exp"), ("linear", "approximate", "exp")]
every_path = pytest.mark.parametrize(("backend", "norm", "activation"), PATHS)


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def run(source, target, weights=None, **arguments):
    """Return y and the gradients of <weights, y>; weights default to random ones."""
    source, target = source.clone().requires_grad_(), target.clone().requires_grad_()
    y = ops.relation_mean(source, target, **arguments)
    weights = draw(2, *y.shape).to(y.dtype) if weights is None else weights
    return y.detach(), *torch.autograd.grad(y, (source, target), weights)


@pytest.fixture
def poisoned_memory():
    """Every uninitialised tensor holds NaN."""
    torch.use_deterministic_algorithms(True)
    assert torch.utils.deterministic.fill_uninitialized_memory
    yield
    torch.use_deterministic_algorithms(False)


# Zero variance


def assert_psi_of_0(y: torch.Tensor, expected: torch.Tensor, backend: str) -> None:
    """The pair is exactly 0 in every backend; the kernels' exp of it is 1 to a rounding, in the linear form a product of two of them."""
    if backend in ("cpu", "linear"):
        assert_close(y, expected, 2e-7 if backend == "cpu" else 5e-7)
        assert_same_bits(y == 0, expected == 0)
    else:
        assert_same_bits(y, expected)


@pytest.mark.parametrize("backend", PAIRWISE)
@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("norm", ["exact", "rms"])
def test_a_pair_of_zero_variance_gives_psi_of_0_and_no_gradient(backend, activation, norm):
    source, target = draw(0, 1, 4, 6), draw(1, 1, 4, 6)
    source[:, 1] = -target[:, 3]  # the pair (3, 1) is 0
    alone = torch.tensor([[False, True, False, False]])
    y, dp, dq = run(source, target, norm=norm, activation=activation, key_mask=alone, backend=backend)
    psi_of_0 = 1.0 if activation == "exp" else 0.0
    assert_psi_of_0(y[:, 3], torch.full((1, 6), psi_of_0), backend)
    assert_same_bits(dq[:, 3], torch.zeros(1, 6))
    weights = torch.zeros(1, 4, 6)
    weights[:, 3] = 1.0
    _, at_zero, _ = run(source, target, weights, norm=norm, activation=activation, key_mask=alone, backend=backend)
    assert_same_bits(at_zero, torch.zeros_like(dp))


@pytest.mark.parametrize("backend", [*PAIRWISE, "linear"])
@pytest.mark.parametrize("value", [0.0, 0.1, -3e7, 1e-30])
def test_rows_of_equal_channels_centre_to_exactly_0(backend, value):
    norm = "approximate" if backend == "linear" else "exact"
    rows = torch.full((2, 5, 7), value)
    y, dp, dq = run(rows, rows, norm=norm, backend=backend)
    assert_psi_of_0(y, torch.ones_like(rows), backend)
    assert_same_bits(dp.abs(), torch.zeros_like(rows))
    assert_same_bits(dq.abs(), torch.zeros_like(rows))


@pytest.mark.parametrize("backend", [*PAIRWISE, "linear"])
def test_one_channel_a_head_has_no_variance(backend):
    norm = "approximate" if backend == "linear" else "exact"
    y, dp, dq = run(draw(0, 2, 5, 3), draw(1, 2, 5, 3), heads=3, norm=norm, backend=backend)
    assert_psi_of_0(y, torch.ones(2, 5, 3), backend)
    assert_same_bits(dp, torch.zeros(2, 5, 3))
    assert_same_bits(dq, torch.zeros(2, 5, 3))


@pytest.mark.parametrize("backend", PAIRWISE)
def test_a_head_of_equal_channels_leaves_the_other_heads_alone(backend):
    source, target = draw(0, 1, 4, 6), draw(1, 1, 4, 6)
    source[..., :3], target[..., :3] = 2.0, -0.7
    y = ops.relation_mean(source, target, heads=2, backend=backend)
    assert_psi_of_0(y[..., :3], torch.ones(1, 4, 3), backend)
    assert_close(y[..., 3:], ops.relation_mean(source[..., 3:], target[..., 3:], backend=backend), 1e-6)


# Empty and masked


@every_path
@pytest.mark.parametrize("causal", [True, False])
def test_a_target_without_a_source_gives_0_and_no_gradient(backend, norm, activation, causal):
    source, target = draw(0, 2, 5, 6), draw(1, 2, 5, 6)
    target[0] = 300.0 * target[0].abs()  # exp overflows
    mask = torch.tensor([[False] * 5, [True] * 5])
    form = {"norm": norm, "activation": activation, "key_mask": mask, "causal": causal, "backend": backend}
    y, dp, dq = run(source, target, **form)
    for result in (y, dp, dq):
        assert_same_bits(result[0], torch.zeros(5, 6))
        assert bool(result[1].isfinite().all())
        assert float(result[1].abs().max()) > 0


@every_path
def test_targets_before_the_first_real_source_give_0(backend, norm, activation):
    mask = torch.tensor([[False, False, True, True]])
    y, dp, dq = run(
        draw(0, 1, 4, 6), draw(1, 1, 4, 6), norm=norm, activation=activation, key_mask=mask, backend=backend
    )
    for result in (y, dp, dq):
        assert_same_bits(result[:, :2], torch.zeros(1, 2, 6))
        assert float(result[:, 2:].abs().max()) > 0


@pytest.mark.parametrize("backend", PAIRWISE)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_masked_pair_adds_exactly_0(backend, activation):
    """Its fill value shows: elu(-inf) = -1, gelu(-inf) = NaN, exp(0) = 1."""
    source, target = draw(0, 1, 5, 6), draw(1, 1, 5, 6)
    mask = torch.tensor([[False, True, False, False, False]])
    y = ops.relation_mean(source, target, activation=activation, norm="none", key_mask=mask, backend=backend)
    assert_close(y[:, 1:], ACTIVATIONS[activation](source[:, 1:2] + target[:, 1:]), 1e-6)


@every_path
@pytest.mark.parametrize("value", [NAN, INF, -INF, 3e38, 0.0])
def test_what_stands_at_a_masked_source_changes_no_bit(backend, norm, activation, value):
    source, target = draw(0, 6, 9, 6), draw(1, 6, 7, 6)
    mask = torch.cat([make_mask(kind, 1, 9) for kind in MASKS[1:] if kind != "empty row"] + [torch.zeros(2, 9) > 0])
    poisoned = torch.where(mask[..., None], source, value)
    form = {"norm": norm, "activation": activation, "key_mask": mask, "heads": 2, "backend": backend}
    if backend != "linear":
        form["windows"] = [2, None]
    for got, want in zip(run(poisoned, target, **form), run(source, target, **form), strict=True):
        assert_same_bits(got, want)
        assert bool(got.isfinite().all())
    dp = run(poisoned, target, **form)[1]
    assert_same_bits(dp[~mask], torch.zeros_like(dp[~mask]))


@every_path
def test_a_pad_target_changes_no_bit_elsewhere(backend, norm, activation):
    source, target = draw(0, 2, 8, 6), draw(1, 2, 8, 6)
    mask = make_mask("inner", 2, 8)
    form = {"norm": norm, "activation": activation, "key_mask": mask, "backend": backend}
    changed = torch.where(mask[..., None], target, 5 - target)
    weights = draw(2, 2, 8, 6) * mask[..., None]
    for got, want in zip(run(source, changed, weights, **form), run(source, target, weights, **form), strict=True):
        assert_same_bits(got[mask], want[mask])


@pytest.mark.parametrize("backend", PAIRWISE)
@pytest.mark.parametrize("window", [1, 2, 3, 100])
def test_a_window_keeps_the_last_real_sources(backend, window):
    mask = torch.tensor([[True, False, True, True, False, False, True, False]])
    # With psi = relu, no norm and target 0, source i adds its own channel: y shows which sources count.
    source, target = torch.eye(8)[None], torch.zeros(1, 8, 8)
    arguments = {"norm": "none", "activation": "relu", "key_mask": mask, "windows": [window], "backend": backend}
    y = ops.relation_mean(source, target, **arguments)
    for j in range(8):
        seen = [i for i in range(j + 1) if mask[0, i]][-window:]
        expected = torch.zeros(8)
        expected[seen] = 1 / len(seen)
        assert_close(y[0, j], expected, 1e-7)


@pytest.mark.parametrize("backend", [*PAIRWISE, "linear"])
def test_the_mean_of_equal_pairs_is_that_pair_whatever_the_count(backend):
    zeros = torch.zeros(2, 50, 4)
    for kind in ("none", "left", "inner"):
        mask = make_mask(kind, 2, 50)
        y = ops.relation_mean(zeros, zeros, norm="none", key_mask=mask, backend=backend)
        expected = torch.ones_like(zeros) if mask is None else (mask.cumsum(1) > 0)[..., None] * torch.ones_like(zeros)
        assert_psi_of_0(y, expected, backend)


# NaN and inf


@every_path
def test_nan_in_a_valid_pair_gives_nan_and_only_there(backend, norm, activation):
    source, target = draw(0, 1, 6, 4), draw(1, 1, 6, 4)
    source[0, 2, 1] = NAN
    y = ops.relation_mean(source, target, norm=norm, activation=activation, backend=backend)
    channels = [1] if norm == "none" else slice(None)
    assert bool(y[:, 2:, channels].isnan().all())
    assert bool(y[:, :2].isfinite().all())
    target[0, 4, 0] = NAN
    y = ops.relation_mean(source[:, 3:], target, norm=norm, activation=activation, causal=False, backend=backend)
    assert bool(y[:, 4, 0].isnan().all())
    assert bool(y[:, [0, 1, 2, 3, 5]].isfinite().all())


@every_path
@pytest.mark.parametrize("value", [INF, -INF])
def test_inf_gives_what_the_formula_gives(backend, norm, activation, value):
    source, target = draw(0, 1, 6, 4), draw(1, 1, 6, 4)
    source[0, 2, 1] = value
    y, _, dq = run(source, target, norm=norm, activation=activation, backend=backend)
    x = source[:, None].double() + target[:, :, None].double()
    if norm == "exact":
        x = x - x.mean(-1, keepdim=True)
    if norm == "approximate":
        x = ops.plain_norm(source.double())[:, None] + ops.plain_norm(target.double())[:, :, None]
    if norm in ("exact", "rms"):
        x = x / x.square().mean(-1, keepdim=True).sqrt()
    x = ACTIVATIONS[activation](x)
    y64 = torch.stack([x[:, j, : j + 1].mean(1) for j in range(6)], dim=1)
    if activation == "gelu":
        # torch's float32 gelu is NaN at +inf, its float64 one is inf: neither is finite.
        y, y64 = (torch.where(result.isfinite(), result, NAN) for result in (y, y64))
    torch.testing.assert_close(y.double(), y64, rtol=1e-5, atol=1e-6, equal_nan=True)
    if norm == "exact":
        assert bool(y[:, 2:].isnan().all())
    assert bool(dq[:, :2].isfinite().all())


@pytest.mark.parametrize("backend", PAIRWISE)
@pytest.mark.parametrize(("norm", "activation"), [("exact", "exp"), ("none", "gelu")])
@pytest.mark.parametrize("value", [NAN, INF])
def test_a_gradient_that_is_not_finite_reaches_the_sources_that_its_target_sees_and_no_other(
    backend, norm, activation, value
):
    weights = draw(2, 1, 40, 20)
    weights[0, 21, 3] = value
    form = {"norm": norm, "activation": activation, "windows": [3], "backend": backend}
    _, dp, dq = run(draw(0, 1, 40, 20), draw(1, 1, 40, 20), weights, **form)
    touched = (~dp[0].isfinite().all(-1)).nonzero()[:, 0].tolist()
    assert touched == [19, 20, 21]
    assert (~dq[0].isfinite().all(-1)).nonzero()[:, 0].tolist() == [21]


def test_an_infinite_source_stays_infinite_in_the_running_sum():
    """A decay of 0 before it and an infinite one after it must not meet."""
    source = torch.zeros(1, 40, 1)
    source[0, :9], source[0, 20], source[0, 21] = -INF, 200.0, INF
    for value in (0.0, 50.0):
        source[0, 22:] = value
        y = ops.relation_mean(source, torch.zeros_like(source), norm="none", backend="linear")
        blocked = ops.relation_mean(source, torch.zeros_like(source), norm="none", backend="blocked")
        torch.testing.assert_close(y, blocked, rtol=1e-6, atol=0)
        assert bool(y[:, 21:].isposinf().all())


# Causality and bits


@every_path
@pytest.mark.parametrize("first", [1, 4, 9])
def test_later_tokens_change_no_earlier_bit(backend, norm, activation, first):
    """Neither of outputs nor of gradients of earlier outputs; S = T and S < T; more than one block."""
    form = {"norm": norm, "activation": activation, "heads": 2, "backend": backend}
    if backend != "linear":
        form["windows"] = [None, 3]
    for S in (12, 5):
        source, target = draw(0, 2, 12, 6), draw(1, 2, S, 6)
        early = torch.zeros(2, S, 6)
        keep = max(0, first - (12 - S))
        early[:, :keep] = draw(2, 2, keep, 6)
        changed_source, changed_target = source.clone(), target.clone()
        changed_source[:, first:] = 30 * draw(3, 2, 12 - first, 6)
        changed_target[:, keep:] = -draw(4, 2, S - keep, 6)
        before, after = run(source, target, early, **form), run(changed_source, changed_target, early, **form)
        assert_same_bits(after[0][:, :keep], before[0][:, :keep])
        assert_same_bits(after[1][:, :first], before[1][:, :first])
        assert_same_bits(after[2][:, :keep], before[2][:, :keep])
        assert float(after[1][:, first:].abs().max()) == 0


@every_path
def test_the_same_call_gives_the_same_bits(backend, norm, activation):
    source, target = draw(0, 3, 40, 24), draw(1, 3, 40, 24)
    form = {
        "norm": norm,
        "activation": activation,
        "heads": 2,
        "backend": backend,
        "key_mask": make_mask("left", 3, 40),
    }
    first = run(source, target, **form)
    for _ in range(3):
        for got, want in zip(run(source, target, **form), first, strict=True):
            assert_same_bits(got, want)


VALUES = {
    "random": lambda x: x,
    "equal": torch.ones_like,
    "large": lambda x: 1e4 * x,
    "tiny": lambda x: 1e-20 * x,
    "NaN": lambda x: torch.where(x > 1, NAN, x),
}


@pytest.mark.parametrize(("backend", "norm"), [("reference", "exact"), ("blocked", "exact"), ("linear", "approximate")])
def test_no_path_depends_on_values(backend, norm):
    """Forward, backward and its backward call the same operators on the same shapes, and never bring a value to the host."""
    sequences = []
    for change in VALUES.values():
        source, target = (change(draw(seed, 1, 10, 4)).requires_grad_() for seed in (0, 1))

        def everything(source=source, target=target):
            y = ops.relation_mean(source, target, norm=norm, backend=backend, key_mask=make_mask("left", 1, 10))
            grads = torch.autograd.grad(y.square().sum(), (source, target), create_graph=True)
            torch.autograd.grad(sum(g.square().sum() for g in grads), (source, target))

        everything()
        sequences.append(recorded(everything))
    assert len(sequences[0]) > 100
    assert all(sequence == sequences[0] for sequence in sequences[1:])
    names = {name for name, _ in sequences[0]}
    assert not names & {"aten::item", "aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::equal"}


@pytest.mark.usefixtures("poisoned_memory")
@every_path
def test_no_uninitialised_memory_is_read(backend, norm, activation):
    assert bool(torch.empty(3).isnan().all())
    form = {
        "norm": norm,
        "activation": activation,
        "heads": 2,
        "backend": backend,
        "key_mask": make_mask("empty row", 2, 20),
    }
    if backend != "linear":
        form["windows"] = [None, 3]
    source, target = draw(0, 2, 20, 6).requires_grad_(), draw(1, 2, 13, 6).requires_grad_()
    y = ops.relation_mean(source, target, **form)
    grads = torch.autograd.grad(y.sin().sum(), (source, target), create_graph=True)
    second = torch.autograd.grad(sum(g.square().sum() for g in grads), (source, target))
    for result in (y, *grads, *second):
        assert bool(result.isfinite().all())


# Extremes


# Without a norm exp(1e4) overflows, by the formula.
@pytest.mark.parametrize(("backend", "norm", "activation"), [path for path in PATHS if path[1:] != ("none", "exp")])
@pytest.mark.parametrize(("scale", "offset"), [(1e4, 0.0), (1e-4, 0.0), (1.0, 1e4), (1.0, -1e4)])
def test_large_small_and_shifted_inputs_keep_their_digits(backend, norm, activation, scale, offset):
    source, target = scale * draw(0, 2, 20, 48) + offset, scale * draw(1, 2, 20, 48) + offset
    form = {"norm": norm, "activation": activation, "heads": 2}
    weights = draw(2, 2, 20, 48)
    actual = run(source, target, weights, backend=backend, **form)
    expected = run(source.double(), target.double(), weights.double(), backend="reference", **form)
    for name, got, want in zip(("y", "dp", "dq"), actual, expected, strict=True):
        # An rms pair at an offset is almost parallel to it: its gradient is a difference of numbers 1e4 times as large.
        assert_close(got, want, 1e-3 if norm == "rms" and offset and name != "y" else 1e-5, name)


@pytest.mark.parametrize("backend", [*PAIRWISE, "linear"])
@pytest.mark.parametrize("variance", [1e-20, 1e-26, 1e-30, 1e-36])
def test_tiny_variances_keep_their_digits(backend, variance):
    """s^3 overflows in float32 from a variance of 2e-26; s does not."""
    norms = ("approximate",) if backend == "linear" else ("exact", "rms", "approximate")
    source, target = variance**0.5 * draw(0, 2, 6, 24), variance**0.5 * draw(1, 2, 6, 24)
    weights = draw(2, 2, 6, 24)
    for norm in norms:
        actual = run(source, target, weights, norm=norm, backend=backend)
        expected = run(source.double(), target.double(), weights.double(), norm=norm, backend="reference")
        for name, got, want in zip(("y", "dp", "dq"), actual, expected, strict=True):
            assert_close(got, want, 1e-5, f"{name} of {norm}")


@pytest.mark.parametrize("backend", PAIRWISE)
def test_variances_below_the_smallest_float_count_as_0(backend):
    rows = 1e-30 * draw(0, 1, 4, 6)
    y, dp, dq = run(rows, rows, backend=backend)
    assert_psi_of_0(y, torch.ones_like(y), backend)
    assert_same_bits(dp, torch.zeros_like(dp))
    assert_same_bits(dq, torch.zeros_like(dq))


@pytest.mark.parametrize("backend", PAIRWISE)
def test_retrieved_pairs_keep_their_digits(backend):
    """Where p_i is close to -q_j the product form of the variance cancels (1e-2 here); the direct sum does not."""
    source = draw(0, 1, 20, 64)
    target = -source + 1e-2 * draw(1, 1, 20, 64)
    weights = draw(2, 1, 20, 64)
    actual = run(source, target, weights, backend=backend)
    expected = run(source.double(), target.double(), weights.double(), backend="reference")
    for got, want in zip(actual, expected, strict=True):
        assert_close(got, want, 1e-5)


def test_exp_reaches_its_bound_without_overflow():
    """|mu| <= sqrt(d - 1): one channel away from all others, at d = 7,872."""
    source = torch.zeros(1, 1, 7872)
    source[..., 0] = 1.0
    y = ops.relation_mean(source, torch.zeros_like(source))
    # The sum of 7,871 small squares beside a large one is good to 1e-5, and exp(88.7) magnifies that.
    assert_close(y[0, 0, 0], torch.tensor(7871.0).double().sqrt().exp(), 2e-3)
