import gc

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from relnet import curvature
from tests.assertions import assert_close
from tests.curvature.matrices import network

X = torch.randn(3, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def loss_of(model):
    return lambda x: model(x).square().sum(-1)


def test_jacobian_and_hessian_equal_those_of_torch_func_sample_by_sample():
    for outputs in (1, 4, 9):
        model = network(5, outputs)
        dense = torch.stack([torch.func.jacrev(model)(x) for x in X])
        A = curvature.jacobian(model, X)
        assert A.shape == (3, outputs, 5)
        assert_close(A.to_dense(), dense, 1e-12)
        assert_close(A.T.to_dense(), dense.mT, 1e-12)
    energy = loss_of(network(5, 4))
    dense = torch.stack([torch.func.hessian(energy)(x) for x in X])
    A = curvature.hessian(energy, X)
    assert A.symmetry == "symmetric"
    assert_close(A.to_dense(), dense, 1e-12)
    columns = torch.stack([A.rmatvec(unit.expand(3, 5)) for unit in torch.eye(5, dtype=torch.float64)], 1)
    assert_close(columns, dense, 1e-12)


def test_jacobian_equals_central_differences_and_has_outputs_by_inputs_of_one_sample_each():
    model = network(5, 4)
    step = 1e-6 * torch.eye(5, dtype=torch.float64)
    columns = [(model(X + h) - model(X - h)) / 2e-6 for h in step]
    assert_close(curvature.jacobian(model, X).to_dense(), torch.stack(columns, 2), 1e-8)


def test_closed_forms():
    generator = torch.Generator().manual_seed(2)
    W, b = torch.randn(4, 5, dtype=torch.float64, generator=generator), X[0, :4]
    assert_close(curvature.jacobian(lambda x: x @ W.T + b, X).to_dense(), W.expand(3, 4, 5), 1e-14)
    assert (curvature.hessian(lambda x: (x @ W.T).sum(-1), X).to_dense() == 0).all()
    Q = W.T @ W
    quadratic = curvature.hessian(lambda x: torch.einsum("bi,ij,bj->b", x, Q, x) / 2, X)
    assert_close(quadratic.to_dense(), Q.expand(3, 5, 5), 1e-13)
    label = torch.tensor([0, 3, 2])
    entropy = curvature.hessian(lambda x: F.cross_entropy(x @ W.T, label, reduction="none"), X)
    p = (X @ W.T).softmax(-1)
    assert_close(entropy.to_dense(), W.T @ (torch.diag_embed(p) - p[:, :, None] * p[:, None]) @ W, 1e-13)


@pytest.mark.parametrize("shape", [(2, 3, 4, 4), (2, 7), (2, 1)])
def test_products_with_a_matrix_and_its_transpose_are_adjoint_for_any_shape_of_input(shape):
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    A = curvature.jacobian(lambda x: torch.stack([x.flatten(1).sin(), x.flatten(1).square()], 1), x)
    d = x[0].numel()
    assert A.shape == (2, 2 * d, d)
    v, u = torch.randn(2, d, dtype=torch.float64), torch.randn(2, 2 * d, dtype=torch.float64)
    assert_close((A.matvec(v) * u).sum(-1), (v * A.rmatvec(u)).sum(-1), 1e-13)


def test_existing_outputs_give_the_same_operators():
    model = network(5, 4)
    x = X.clone().requires_grad_()
    assert_close(
        curvature.jacobian_from_outputs(model(x), x).to_dense(), curvature.jacobian(model, X).to_dense(), 1e-15
    )
    s = loss_of(model)(x)
    expected = curvature.hessian(loss_of(model), X).to_dense()
    for scalar in (s, s[:, None]):
        assert_close(curvature.hessian_from_scalar(scalar, x).to_dense(), expected, 1e-15)


def test_sums_multiples_and_transposes_are_those_of_the_dense_matrices():
    A, C = curvature.jacobian(network(5, 5), X), curvature.jacobian(network(5, 5, seed=1), X)
    a, c = A.to_dense(), C.to_dense()
    scale = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    for made, expected, symmetry in [
        (A + C, a + c, "none"),
        (A - 2 * C, a - 2 * c, "none"),
        (scale * A, scale[:, None, None] * a, "none"),
        (-A.T, -a.mT, "none"),
        (A - A.T, a - a.mT, "skew"),
        (A.T - A, a.mT - a, "skew"),
        (A + A.T, a + a.mT, "symmetric"),
        (2 * (A - A.T), 2 * (a - a.mT), "skew"),
        (A - C.T, a - c.mT, "none"),
    ]:
        assert made.symmetry == symmetry
        assert_close(made.to_dense(), expected, 1e-13)
        assert_close(made.T.to_dense(), expected.mT, 1e-13)


def test_products_are_counted_where_they_are_spent():
    A = curvature.jacobian(network(5, 5), X)
    v = torch.ones(3, 5, dtype=torch.float64)
    A.matvec(v)
    A.T.matvec(v)
    assert A.matvecs == 2
    skew = A - A.T
    skew.matvec(v)
    assert (skew.matvecs, A.matvecs) == (1, 4)
    curvature.jacobian(network(5, 2), X).to_dense()
    A.to_dense()
    assert A.matvecs == 9


def test_products_have_a_graph_to_the_parameters_in_grad_mode_only():
    model = network(5, 4)
    A = curvature.jacobian(model, X)
    v, u = torch.ones(3, 5, dtype=torch.float64), torch.ones(3, 4, dtype=torch.float64)
    for product in (lambda: A.matvec(v), lambda: A.rmatvec(u)):
        with torch.no_grad():
            assert not product().requires_grad
        grads = torch.autograd.grad(
            product().square().sum(), list(model.parameters()), retain_graph=True, allow_unused=True
        )
        assert all(grad is not None for grad in grads[:-1])
    with torch.no_grad():
        assert curvature.jacobian(model, X).rmatvec(u).isfinite().all()


def test_an_input_that_depends_on_parameters_keeps_its_graph():
    embedding = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    loss = curvature.frobenius_penalty(curvature.jacobian(lambda x: x**3, embedding.sin()), exact=True)
    (grad,) = torch.autograd.grad(loss, embedding)
    s = embedding.sin()
    assert_close(grad, 36 * s**3 * embedding.cos() / 3, 1e-12)


def test_operators_leave_no_gradient_and_no_memory_behind():
    model, x = network(5, 4), X.clone().requires_grad_()
    gc.collect()
    gc.disable()
    try:
        before = sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects())
        for _ in range(3):
            A = curvature.jacobian(model, x)
            curvature.spectral_penalty(A - A.T.T, method="golub_kahan", iters=2)
            curvature.spectral_penalty(curvature.hessian(loss_of(model), x), iters=2)
        del A
        # No collector ran: what is left is held by a cycle, such as backward(create_graph=True) makes.
        assert sum(issubclass(type(thing), torch.Tensor) for thing in gc.get_objects()) == before
    finally:
        gc.enable()
    assert x.grad is None
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.mT.contiguous().mT,
        lambda x: x[:, :1].expand(3, 5),
        lambda x: torch.inference_mode()(lambda: x.clone())(),
        lambda x: x.clone().requires_grad_(),
    ],
    ids=["transposed", "expanded", "made in inference mode", "requires grad"],
)
def test_any_kind_of_input_tensor_gives_the_matrices_of_its_values(make):
    model, x = network(5, 4).requires_grad_(False), make(X)
    plain = x.detach().clone()
    assert_close(curvature.jacobian(model, x).to_dense(), curvature.jacobian(model, plain).to_dense(), 1e-15)
    with torch.no_grad():
        H = curvature.hessian(loss_of(model), x).to_dense()
    assert_close(H, curvature.hessian(loss_of(model), plain).to_dense(), 1e-15)


def test_a_jacobian_that_is_zero_has_products_of_zero():
    bias = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
    A = curvature.jacobian(lambda x: bias + 0 * x[:, :2], X)
    assert (A.to_dense() == 0).all()
    assert (curvature.jacobian(lambda x: bias * 2, X).to_dense() == 0).all()
    assert curvature.spectral_norm(A, "golub_kahan", 2).sigma.tolist() == [0.0] * 3


def test_a_multiple_keeps_the_type_of_the_matrices():
    A = curvature.from_dense(torch.eye(2).expand(3, 2, 2))
    for scale in (
        torch.tensor(2.0, dtype=torch.float64),
        torch.full((3,), 2.0, dtype=torch.float64),
        torch.tensor([2] * 3),
    ):
        assert_close((scale * A).to_dense(), 2 * A.to_dense())
        assert curvature.spectral_norm(scale * A).sigma.tolist() == [2.0] * 3


def test_bfloat16_is_computed_with_in_float32_vectors_and_autocast_is_off():
    model = network(5, 4, dtype=torch.float32)
    x = X.float()
    expected = curvature.jacobian(model, x).to_dense()
    with torch.autocast("cpu", torch.bfloat16):
        inside = curvature.jacobian(model, x)
        assert_close(inside.to_dense(), expected, 1e-6)
        autocast = x.clone().requires_grad_()
        products = curvature.jacobian_from_outputs(model(autocast), autocast).to_dense()
    assert products.dtype == torch.float32
    assert_close(products, expected, 3e-2)
    low = curvature.jacobian(network(5, 4, dtype=torch.bfloat16), x.bfloat16())
    assert low.dtype == torch.float32
    assert_close(low.to_dense(), expected, 5e-2)


def test_products_under_training_dropout_are_those_of_one_draw():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 64), nn.Dropout(0.5), nn.Softplus(), nn.Linear(64, 4)).double()
    A = curvature.jacobian(model, X)
    v, u = torch.randn(3, 5, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    # A v comes after A^T u and after another pass: neither draws anew.
    transposed = A.rmatvec(u)
    model(X)
    assert_close((A.matvec(v) * u).sum(-1), (v * transposed).sum(-1), 1e-13)
    assert_close(A.to_dense(), A.T.to_dense().mT, 1e-13)


def test_layers_that_couple_no_samples_give_each_the_matrix_it_has_alone():
    model = nn.Sequential(
        nn.Unflatten(1, (1, 5)), nn.Conv1d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.Flatten()
    ).double()
    together = curvature.jacobian(model, X).to_dense()
    alone = torch.cat([curvature.jacobian(model, x[None]).to_dense() for x in X])
    assert_close(together, alone, 1e-13)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, y: curvature.jacobian(lambda x: x, x.half()), "float16"),
        (lambda x, y: curvature.jacobian_from_outputs(y.half(), x), "float16"),
        (lambda x, y: curvature.jacobian_from_outputs(y, x.detach()), "requires_grad_"),
        (lambda x, y: curvature.jacobian_from_outputs(y.detach(), x), "requires_grad_"),
        (lambda x, y: curvature.jacobian(lambda x: x[:1], x), "the first dimension is the sample"),
        (lambda x, y: curvature.jacobian(lambda x: x, torch.zeros(0, 3)), "none may be empty"),
        (lambda x, y: curvature.hessian(lambda x: x, x), "one number a sample"),
        (lambda x, y: curvature.hessian(lambda x: x.sum(), x), "the first dimension is the sample"),
        (lambda x, y: curvature.jacobian_from_outputs(y, x).matvec(torch.zeros(3, 4)), r"take \(3, 5\)"),
        (lambda x, y: curvature.jacobian_from_outputs(y, x).rmatvec(torch.zeros(3, 5)), r"take \(3, 4\)"),
        (lambda x, y: curvature.jacobian_from_outputs(y, x) + curvature.jacobian(lambda x: x, x), "do not add up"),
        (lambda x, y: curvature.jacobian(lambda x: x, x) * torch.ones(2), "one a sample"),
        (lambda x, y: curvature.jacobian(lambda x: torch.zeros(3, 2), x), "must not be constant"),
        (lambda x, y: curvature.jacobian(lambda x: x.argmax(-1), x), "int64; it has no derivative"),
        (lambda x, y: curvature.jacobian(lambda x: (x, None), x), "y is a tuple"),
        (lambda x, y: curvature.hessian_from_scalar(y[:, 0].detach(), x), "requires_grad_"),
        (lambda x, y: torch.inference_mode()(curvature.jacobian)(lambda x: x, x), "no_grad is no hindrance"),
        (lambda x, y: torch.inference_mode()(curvature.hessian)(lambda x: x[:, 0], x), "no_grad is no hindrance"),
        (lambda x, y: curvature.from_dense(torch.zeros(2, 2)), "give .B, m, d."),
        (lambda x, y: curvature.from_dense(torch.zeros(0, 3, 3)), "none of them 0"),
        (lambda x, y: curvature.from_dense(torch.zeros(2, 0, 3)), "none of them 0"),
        (lambda x, y: curvature.from_dense(torch.zeros(1, 2, 3), symmetry="skew"), "only square ones"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    x = torch.ones(3, 5, requires_grad=True)
    with pytest.raises(ValueError, match=message):
        call(x, x[:, :4] * 2)
