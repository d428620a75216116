import pytest
import torch
import torch.nn.functional as F

from relnet import curvature
from relnet.curvature import HessianRegularizer, IterationSchedule, JacobianRegularizer, Stage, WarmStart, targets
from tests.assertions import assert_close, assert_same_bits
from tests.curvature.matrices import network, symmetric_with

X = torch.randn(6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def test_a_regulariser_is_the_penalty_of_its_operator():
    model = network(5, 4)
    energy = lambda x: model(x).square().sum(-1)  # noqa: E731
    for regularizer, A, f in [
        (JacobianRegularizer, curvature.jacobian(model, X), model),
        (HessianRegularizer, curvature.hessian(energy, X), energy),
    ]:
        spectral = regularizer(method="exact")
        assert_close(spectral(f, X), curvature.spectral_penalty(A, method="exact")[0], 1e-12)
        assert spectral.last.exact
        exact = regularizer("frobenius", method="exact")
        assert_close(exact(f, X), curvature.frobenius_penalty(A, exact=True), 1e-12)
        probes = regularizer("frobenius", probes=3, generator=torch.Generator().manual_seed(4))
        expected = curvature.frobenius_penalty(A, probes=3, generator=torch.Generator().manual_seed(4))
        assert_close(probes(f, X), expected, 1e-12)
    square = network(5, 5)
    found = JacobianRegularizer(target=targets.transpose(), method="exact")(square, X)
    assert_close(found, curvature.symmetry_penalty(curvature.jacobian(square, X), method="exact"), 1e-12)


def test_a_regulariser_adds_nothing_to_the_network_that_is_trained_or_saved():
    regularizer = JacobianRegularizer(warm_start=WarmStart(6))
    regularizer(network(5, 4), X, torch.arange(6))
    assert not list(regularizer.parameters())
    assert not regularizer.state_dict()


def train(model, regularizer, weight, steps=60):
    data = torch.randn(64, 5, generator=torch.Generator().manual_seed(0))
    labels = (data[:, 0] * data[:, 1] > 0).long()
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(steps):
        loss = F.cross_entropy(model(data), labels)
        if weight:
            loss = loss + weight * regularizer(lambda x: F.cross_entropy(model(x), labels, reduction="none"), data)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return curvature.spectral_norm(
        curvature.hessian(lambda x: F.cross_entropy(model(x), labels, reduction="none"), data), "exact"
    ).sigma.mean()


def test_training_with_a_hessian_penalty_lowers_the_hessian():
    plain, penalised = (
        train(network(5, 2, dtype=torch.float32), HessianRegularizer(iters=2), weight) for weight in (0.0, 3.0)
    )
    assert penalised < 0.5 * plain


def test_a_warm_start_goes_on_from_what_was_found_for_each_sample():
    values = 0.9 ** torch.arange(40, dtype=torch.float64)
    A = curvature.from_dense(symmetric_with(values.expand(8, 40)), "symmetric")
    table = WarmStart(100)
    index = torch.tensor([5, 3, 70, 11, 0, 99, 42, 7])
    torch.manual_seed(0)
    sigmas = []
    for _ in range(6):
        _, result = curvature.spectral_penalty(A, iters=2, v0=table.start(A, index))
        table.keep(index, result.u)
        sigmas.append(result.sigma)
    cold = [curvature.spectral_norm(A, iters=2).sigma.mean() for _ in range(6)]
    assert sigmas[-1].mean() > 0.99
    assert sigmas[-1].mean() > max(cold) + 0.02
    # Rows belong to samples, not to places in the batch.
    order = torch.tensor([3, 1, 0, 2, 4, 5, 6, 7])
    moved = table.start(A, index[order])
    kept = torch.linalg.vecdot(moved / moved.norm(dim=-1, keepdim=True), result.u[order])
    assert (kept > 0.9).all()


def test_a_warm_start_finds_a_direction_that_has_overtaken_the_one_it_kept():
    table, index = WarmStart(1), torch.tensor([0])
    first = torch.eye(5, dtype=torch.float64)[0]
    for values in ([3.0, 1, 1, 1, 1], [1.0, 3, 1, 1, 1]):
        A = curvature.from_dense(torch.diag(torch.tensor(values, dtype=torch.float64))[None], "symmetric")
        start = table.start(A, index)
        result = curvature.spectral_norm(A, "lanczos", 2, v0=start)
        table.keep(index, first[None])
    assert_close(result.sigma, torch.tensor([3.0], dtype=torch.float64), 1e-6)


def test_a_vector_that_is_not_finite_is_not_kept():
    table, index = WarmStart(2), torch.tensor([0, 1])
    A = curvature.from_dense(torch.eye(3).expand(2, 3, 3))
    table.start(A, index)
    table.keep(index, torch.tensor([[float("nan"), 0.0, 0.0], [0.0, 1.0, 0.0]]))
    start = table.start(A, index)
    assert start.isfinite().all()
    assert start[1, 1] > 0.8


def test_a_warm_start_goes_on_in_another_precision():
    table, index = WarmStart(2), torch.tensor([0, 1])
    for dtype in (torch.float32, torch.float64, torch.float32):
        A = curvature.from_dense(torch.eye(3, dtype=dtype).expand(2, 3, 3))
        start = table.start(A, index)
        assert start.dtype == dtype
        table.keep(index, torch.eye(3, dtype=dtype)[:2])
    assert (table.start(A, index).diagonal() > 0.8).all()


def test_the_paper_s_schedule_by_epoch():
    schedule = IterationSchedule()
    stages = {0: (2, 0.25), 49.9: (2, 0.25), 50: (4, 0.5), 70: (8, 0.75), 90: (16, 0.95), 1000: (16, 0.95)}
    assert {time: tuple(schedule.at(time)) for time in stages} == stages
    assert IterationSchedule((0,), (3,), (1.0,)).at(5) == Stage(iters=3, weight=1.0)


def test_the_same_generator_gives_the_same_penalty():
    model = network(5, 4)
    first, second = (
        JacobianRegularizer(method="golub_kahan", iters=1, generator=torch.Generator().manual_seed(3))(model, X)
        for _ in range(2)
    )
    assert_same_bits(first, second)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: JacobianRegularizer("frobenius", warm_start=WarmStart(3)), "the spectral norm's"),
        (lambda: JacobianRegularizer("frobenius", method="lanczos"), "the spectral norm's"),
        (lambda: JacobianRegularizer("nuclear")(lambda x: x, X), "spectral or frobenius"),
        (lambda: JacobianRegularizer(warm_start=WarmStart(9))(lambda x: x, X), "needs the samples' numbers"),
        (lambda: JacobianRegularizer()(lambda x: x, X, torch.arange(6)), "needs the samples' numbers"),
        (lambda: JacobianRegularizer(warm_start=WarmStart(9))(lambda x: x, X, torch.arange(3)), r"\(6,\) int64"),
        (lambda: JacobianRegularizer("frobenius")(lambda x: x, X, torch.arange(6)), "needs the samples' numbers"),
        (lambda: JacobianRegularizer(warm_start=WarmStart(9))(lambda x: x, X, torch.arange(6) - 1), "from -1 to 4"),
        (lambda: JacobianRegularizer(warm_start=WarmStart(5))(lambda x: x, X, torch.arange(6)), "from 0 to 5"),
        (lambda: WarmStart(0), "at least one sample"),
        (lambda: WarmStart(3, noise=0.0), "noise > 0"),
        (lambda: IterationSchedule(starts=(0, 1)), "as many starts"),
        (lambda: IterationSchedule((0, 2, 2, 3)), "begin at 0 and rise"),
        (lambda: IterationSchedule((1, 2, 3, 4)), "begin at 0 and rise"),
        (lambda: IterationSchedule(iters=(0, 1, 2, 3)), "iters >= 1"),
        (lambda: IterationSchedule(weights=(0.1, 0.2, 0.3, float("nan"))), "finite weights"),
        (lambda: IterationSchedule().at(-1), "begins at 0"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_one_warm_start_serves_one_size_of_matrix():
    table = WarmStart(6)
    regularizer = JacobianRegularizer(warm_start=table)
    regularizer(network(5, 4), X, torch.arange(6))
    with pytest.raises(ValueError, match="make another"):
        regularizer(network(5, 3), X, torch.arange(6))
