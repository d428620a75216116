import itertools

import pytest
import torch
import torch.nn.functional as F

from relnet import curvature
from relnet.curvature import targets
from tests.assertions import assert_close
from tests.curvature.matrices import network

X = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
VALUES = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
OTHER = network(5, 5, seed=9)


def jacobian_of(model):
    return curvature.jacobian(model, X)


def dense(model, x=X):
    """The Jacobians by torch.func, differentiable."""
    return torch.stack([torch.func.jacrev(lambda x: model(x))(sample) for sample in x])


def diagonal_of(M):
    return torch.diag_embed(M.diagonal(dim1=1, dim2=2))


def signs():
    return torch.randint(2, (3, 5), generator=torch.Generator().manual_seed(7)).double() * 2 - 1


# name: (the target, A - A0 of a dense A)
TARGETS = {
    "zero": (targets.zero, lambda M: M),
    "constant": (lambda: targets.constant(torch.ones(5, 5)), lambda M: M - 1),
    "identity": (lambda: targets.identity(2.0), lambda M: M - 2 * torch.eye(5)),
    "diagonal": (lambda: targets.diagonal(VALUES), lambda M: M - torch.diag_embed(VALUES)),
    "operator": (lambda: targets.operator(lambda: jacobian_of(OTHER)), lambda M: M - dense(OTHER)),
    "transpose": (targets.transpose, lambda M: M - M.mT),
    "row sums": (targets.row_sums, lambda M: M - torch.diag_embed(M.sum(-1))),
    "signed row sums": (
        lambda: targets.signed_row_sums(torch.Generator().manual_seed(7)),
        lambda M: M - torch.diag_embed(signs() * (M @ signs()[..., None])[..., 0]),
    ),
    "exact diagonal": (targets.diag_exact, lambda M: M - diagonal_of(M)),
    "one's own": (lambda: lambda A: A - 3 * A.T, lambda M: M - 3 * M.mT),
}


def gradients(loss, parameters):
    return torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("kind", ["jacobian", "hessian"])
def test_penalties_and_their_gradients_equal_those_of_the_dense_matrix(name, kind):
    """Through the target too: the dense side differentiates A0 with everything else."""
    target, difference = TARGETS[name]
    model = network(5, 5)
    parameters = list(model.parameters())
    if kind == "jacobian":
        A = jacobian_of(model)
        matrix = difference(dense(model))
    else:
        energy = lambda x: model(x).square().sum(-1)  # noqa: E731
        A = curvature.hessian(energy, X)
        matrix = difference(torch.stack([torch.func.hessian(energy)(sample) for sample in X]))
    top = torch.linalg.svdvals(matrix)[:, 0].square().mean()
    expected = gradients(top, parameters)
    for method in ("exact", "golub_kahan", "lanczos"):
        loss, result = curvature.spectral_penalty(A, target(), method=method, iters=5)
        if (kind, name) == ("hessian", "transpose"):
            # Exactly symmetric: what the dense side has is rounding.
            assert loss < 1e-28
            continue
        assert_close(loss, top, 1e-9)
        assert_close(result.sigma.square().mean(), top, 1e-9)
        for mine, theirs in zip(
            gradients(loss, parameters),
            expected,
            strict=True,
        ):
            # A tie of the top two (skew matrices have nothing else) leaves u free in their plane, where the value is the same.
            assert (mine - theirs).norm() <= 1e-6 * max(float(theirs.norm()), 1e-3)
    loss = curvature.frobenius_penalty(A, target(), exact=True)
    if (kind, name) == ("hessian", "transpose"):
        assert loss < 1e-28
        return
    assert_close(loss, matrix.square().sum((1, 2)).mean(), 1e-12)
    for mine, theirs in zip(
        gradients(loss, parameters), gradients(matrix.square().sum((1, 2)).mean(), parameters), strict=True
    ):
        assert (mine - theirs).norm() <= 1e-10 * max(float(theirs.norm()), 1e-3)


def diagonals(values):
    return torch.diag_embed(values)


# name: (what the target is made of, the target, A0)
MADE_OF = {
    "constant": (VALUES[:, None] * VALUES[..., None], targets.constant, lambda values: values),
    "identity": (VALUES[:, 0], targets.identity, lambda values: diagonals(values[:, None].expand(3, 5))),
    "diagonal": (VALUES, targets.diagonal, diagonals),
    "operator": (
        VALUES,
        lambda values: targets.operator(curvature.jacobian(lambda x: values * x.sin(), X)),
        lambda values: diagonals(values * X.cos()),
    ),
}


@pytest.mark.parametrize("name", MADE_OF)
def test_gradients_flow_to_a_target_s_own_variables(name):
    values, target, dense_target = MADE_OF[name]
    values = values.clone().requires_grad_()
    A = curvature.from_dense(dense(OTHER).detach())
    matrix = A.to_dense() - dense_target(values)
    for mine, theirs in [
        (
            curvature.spectral_penalty(A, target(values), method="exact")[0],
            torch.linalg.matrix_norm(matrix, 2).square().mean(),
        ),
        (curvature.frobenius_penalty(A, target(values), exact=True), matrix.square().sum((1, 2)).mean()),
    ]:
        (found,), (expected,) = gradients(mine, [values]), gradients(theirs, [values])
        assert expected.norm() > 1e-3
        assert_close(found, expected, 1e-8)


def test_gradcheck_of_every_penalty():
    W = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).requires_grad_()
    x = X[:2, :4]

    def make(penalty):
        return lambda W: penalty(curvature.jacobian(lambda x: (x @ W).tanh() @ W.T, x), W)

    for penalty in (
        lambda A, W: curvature.spectral_penalty(A)[0],
        lambda A, W: curvature.spectral_penalty(A, targets.constant(W.sin()))[0],
        lambda A, W: curvature.spectral_penalty(A, targets.row_sums())[0],
        lambda A, W: curvature.frobenius_penalty(A, targets.diag_exact(), exact=True),
        lambda A, W: curvature.frobenius_penalty(A, probes=2, generator=torch.Generator().manual_seed(0)),
        lambda A, W: curvature.symmetry_penalty(A, "frobenius", exact=True),
        lambda A, W: curvature.diagonality_penalty(A, exact=True, generator=torch.Generator().manual_seed(0)),
    ):
        assert torch.autograd.gradcheck(make(penalty), (W,))


def test_theorem_1_with_its_equality_cases():
    M = torch.randn(50, 6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    coherent = torch.ones(1, 6, 6, dtype=torch.float64)
    balanced = torch.eye(6, dtype=torch.float64)[None]
    balanced[0, 0] = torch.tensor([5.0, 1.0, -1.0, 2.0, -2.0, 0.0])
    for matrices, low, high in ((M, False, False), (coherent, True, False), (balanced, False, True)):
        A = curvature.from_dense(matrices)
        off = (matrices - diagonal_of(matrices)).square().sum((1, 2))
        squared = targets.row_sums()(A).to_dense().square().sum((1, 2))
        assert (squared / 6 <= off * (1 + 1e-12)).all()
        assert (off <= squared * (1 + 1e-12)).all()
        if low:
            assert_close(off, squared / 6, 1e-12)
        if high:
            assert_close(off, squared, 1e-12)


@pytest.mark.parametrize("d", [1, 2, 3, 6, 8])
def test_signed_row_sums_are_twice_the_off_diagonal_energy_over_all_sign_vectors(d, monkeypatch):
    M = torch.randn(1, d, d, dtype=torch.float64, generator=torch.Generator().manual_seed(d)) + 1
    A = curvature.from_dense(M)
    every = torch.tensor(list(itertools.product((-1.0, 1.0), repeat=d)), dtype=torch.float64)
    total = torch.zeros((), dtype=torch.float64)
    for s in every:
        monkeypatch.setattr(targets, "draw_signs", lambda shape, A, generator, s=s: s[None])
        total += targets.signed_row_sums()(A).to_dense().square().sum()
    off = (M - diagonal_of(M)).square().sum()
    assert (total / len(every) - 2 * off).abs() <= 1e-12 * max(float(off), 1.0)


def test_signs_are_shared_by_the_products_of_a_call_and_fresh_in_the_next():
    A = curvature.from_dense(torch.randn(2, 6, 6, dtype=torch.float64))
    difference = targets.signed_row_sums(torch.Generator().manual_seed(0))(A)
    assert_close(difference.to_dense(), difference.T.to_dense().mT, 1e-13)
    again = targets.signed_row_sums(torch.Generator().manual_seed(1))(A)
    assert not torch.allclose(difference.to_dense(), again.to_dense())


@pytest.mark.parametrize("distribution", ["rademacher", "gaussian"])
def test_the_probes_estimate_is_unbiased(distribution):
    M = torch.randn(1, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    A = curvature.from_dense(M.expand(20_000, 3, 4))
    estimate = curvature.frobenius_penalty(A, distribution=distribution, generator=torch.Generator().manual_seed(1))
    assert_close(estimate, M.square().sum(), 0.03)
    single = curvature.from_dense(M)
    several = curvature.frobenius_penalty(single, probes=4000, distribution=distribution)
    assert_close(several, M.square().sum(), 0.15)
    assert single.matvecs == 4000


def test_named_penalties_are_zero_where_their_structure_holds():
    conservative = curvature.jacobian(lambda x: torch.func.grad(lambda x: (x.sin().sum(-1) ** 2).sum())(x), X)
    separable = curvature.hessian(lambda x: x.sin().sum(-1), X)
    for norm in ("spectral", "frobenius"):
        assert curvature.symmetry_penalty(conservative, norm) < 1e-25
        assert curvature.diagonality_penalty(separable, norm) < 1e-25
        assert curvature.symmetry_penalty(jacobian_of(network(5, 5)), norm) > 1e-4
        assert curvature.diagonality_penalty(jacobian_of(network(5, 5)), norm) > 1e-4


def test_symmetry_costs_two_products_a_step():
    A = jacobian_of(network(5, 5))
    _, result = curvature.spectral_penalty(A, targets.transpose(), method="lanczos", iters=3)
    assert result.matvecs == A.matvecs == 2 * (3 + 1)


@pytest.mark.parametrize("method", ["exact", "lanczos", "golub_kahan", "power"])
def test_a_zero_matrix_has_a_zero_penalty_and_a_finite_zero_gradient(method):
    for W in (torch.zeros(4, 4, requires_grad=True), torch.zeros(2, 4, requires_grad=True)):
        loss, result = curvature.spectral_penalty(
            curvature.jacobian(lambda x, W=W: x @ W.T, torch.ones(3, 4)), method=method
        )
        (grad,) = torch.autograd.grad(loss, W)
        assert loss == 0
        assert (grad == 0).all()
        assert (result.sigma == 0).all()


@pytest.mark.parametrize("scale", [1e-3, 1e-6, 1e-12])
def test_gradients_of_small_jacobians_in_float32_are_those_of_float64(scale):
    W = torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * scale
    grads = []
    for dtype in (torch.float64, torch.float32):
        leaf = W.to(dtype).requires_grad_()
        A = curvature.jacobian(lambda x, leaf=leaf: x @ leaf.T, torch.ones(2, 6, dtype=dtype))
        grads.append(torch.autograd.grad(curvature.spectral_penalty(A, method="golub_kahan", iters=6)[0], leaf)[0])
    assert_close(grads[1], grads[0], 1e-4)


def test_the_solver_leaves_nothing_in_the_graph():
    model = network(5, 5)
    A = jacobian_of(model)
    loss, result = curvature.spectral_penalty(A, method="golub_kahan", iters=3)
    assert loss.requires_grad
    assert not any(value.requires_grad for value in (result.sigma, result.u, result.v, result.residual))
    with torch.no_grad():
        assert not curvature.spectral_penalty(jacobian_of(model))[0].requires_grad


@pytest.mark.parametrize("wanted", [torch.bfloat16, torch.float16])
def test_autocast_around_the_penalty_changes_nothing(wanted):
    model = network(5, 4, dtype=torch.float32)
    start = torch.ones(3, 4)
    plain, _ = curvature.spectral_penalty(curvature.jacobian(model, X.float()), v0=start)
    with torch.autocast("cpu", wanted):
        inside, result = curvature.spectral_penalty(curvature.jacobian(model, X.float()), v0=start)
    assert_close(inside, plain, 1e-6)
    assert result.sigma.dtype == torch.float32


def test_a_classifiers_loss_has_a_hessian_penalty_with_a_third_derivative():
    model = network(5, 3)
    label = torch.tensor([0, 1, 2])
    energy = lambda x: F.cross_entropy(model(x), label, reduction="none")  # noqa: E731
    loss, result = curvature.spectral_penalty(curvature.hessian(energy, X), iters=2)
    assert result.method == "lanczos"
    assert all(grad.isfinite().all() for grad in gradients(loss, list(model.parameters())))


@pytest.mark.parametrize("shape", [(4,), (2, 3), (1, 3, 1)])
def test_a_diagonal_of_another_shape_is_refused(shape):
    A = curvature.from_dense(torch.ones(1, 3, 3))
    with pytest.raises(ValueError, match=r"give \(1, 3\) or \(3,\)"):
        curvature.frobenius_penalty(A, targets.diagonal(torch.ones(shape)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda A: curvature.spectral_penalty(A, targets.row_sums()), "square"),
        (lambda A: curvature.spectral_penalty(A, targets.signed_row_sums()), "square"),
        (lambda A: curvature.frobenius_penalty(A, targets.transpose()), "square"),
        (lambda A: curvature.frobenius_penalty(A, targets.diag_exact()), "square"),
        (lambda A: curvature.frobenius_penalty(A, targets.identity()), "square"),
        (lambda A: curvature.frobenius_penalty(A, targets.constant(torch.ones(3, 2))), r"give \(1, 2, 3\) or \(2, 3\)"),
        (lambda A: curvature.frobenius_penalty(A + 0 * A, targets.operator(A.T)), "do not add up"),
        (lambda A: curvature.frobenius_penalty(A, probes=0), "probes=0"),
        (lambda A: curvature.frobenius_penalty(A, distribution="cauchy"), "rademacher or gaussian"),
        (lambda A: curvature.symmetry_penalty(A, "nuclear"), "spectral or frobenius"),
        (lambda A: curvature.diagonality_penalty(A, "nuclear"), "spectral or frobenius"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(curvature.from_dense(torch.ones(1, 2, 3)))
