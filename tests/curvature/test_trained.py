"""Spectral norms of a trained network's Jacobians and Hessians, against scipy and between methods at equal products."""

import pytest
import torch
import torch.nn.functional as F

from relnet import curvature
from tests.assertions import assert_close
from tests.curvature.matrices import network

linalg = pytest.importorskip("scipy.sparse.linalg")


def trained():
    """A network that tells points of three clusters apart, points between them, and their labels."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(3, 20, dtype=torch.float64, generator=generator)
    label = torch.arange(60) % 3
    x = centres[label] + 0.7 * torch.randn(60, 20, dtype=torch.float64, generator=generator)
    model = network(20, 24)
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        optimiser.zero_grad()
        F.cross_entropy(model(x), label).backward()
        optimiser.step()
    return model, x, label


@pytest.fixture(scope="module")
def operators():
    model, x, label = trained()
    loss = lambda x: F.cross_entropy(model(x), label, reduction="none")  # noqa: E731
    return {"J": curvature.jacobian(model, x), "H": curvature.hessian(loss, x)}


@pytest.mark.parametrize("name", ["J", "H"])
def test_as_many_steps_as_the_rank_agree_with_scipy(operators, name):
    A = operators[name]
    with torch.no_grad():
        dense = A.to_dense()
    expected = [
        linalg.svds(matrix.numpy(), 1, return_singular_vectors=False, random_state=0)[0] for matrix in dense[:10]
    ]
    for method in ("golub_kahan", "exact") if name == "J" else ("lanczos", "golub_kahan", "exact"):
        sigma = curvature.spectral_norm(A, method, 20).sigma
        assert_close(sigma[:10], torch.tensor(expected), 1e-8)


def test_at_equal_products_the_order_of_the_methods_is_as_documented(operators):
    generator = torch.Generator().manual_seed(1)
    for name, A in operators.items():
        v0 = torch.randn(A.shape[:2], dtype=torch.float64, generator=generator)
        best = "lanczos" if name == "H" else "golub_kahan"
        for n in (2, 4):
            sigma = {method: curvature.spectral_norm(A, method, n, v0=v0).sigma for method in (best, "power")}
            if name == "H":
                plain = A.matvec(curvature.extreme_eigs(A, "LM", 1, n, v0=v0).vectors[:, 0]).norm(dim=-1)
                assert (sigma["lanczos"] >= plain * (1 - 1e-12)).all()
            # Two steps of Lanczos may be worse than two of power iteration.
            assert (name == "H" and n < 4) or sigma[best].mean() > sigma["power"].mean()
