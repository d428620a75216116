"""Lanczos and Golub-Kahan themselves: the identities that define them, breakdown, precision, no value read on the host."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from relnet import curvature
from relnet.curvature import krylov
from tests.assertions import assert_close, assert_same_bits
from tests.curvature.matrices import SPECTRA, skew, symmetric_with, with_values

MATMULS = torch.backends.cuda.matmul, torch.backends.mkldnn.matmul
D = 12
SYMMETRIC = torch.stack([spectrum(D) for spectrum in SPECTRA.values()])


def starts(B, d):
    return torch.randn(B, d, dtype=torch.float64, generator=torch.Generator().manual_seed(3))


def assert_orthonormal(basis, num):
    gram = basis[:, :num] @ basis[:, :num].mT
    assert_close(gram, torch.eye(num, dtype=basis.dtype).expand_as(gram), 1e-13)


@pytest.mark.parametrize("n", [1, 2, 5, D])
def test_lanczos_identity_holds_and_its_basis_is_orthonormal_for_every_spectrum(n):
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(D // 2)
    for M, is_skew in [
        (symmetric_with(SYMMETRIC), False),
        (symmetric_with(SYMMETRIC * signs), False),
        (skew(4, D), True),
    ]:
        space = curvature.lanczos(lambda v, M=M: (M @ v[..., None])[..., 0], starts(len(M), D), n, skew=is_skew)
        assert_orthonormal(space.basis, min(n + 1, D))
        # Rows hold the vectors: (A Q_n)^T = Q_n^T A^T.
        assert_close(space.basis[:, :n] @ M.mT, space.projected.mT @ space.basis, 1e-13)


@pytest.mark.parametrize(("m", "d"), [(12, 5), (5, 12), (8, 8), (1, 6), (6, 1), (1, 1)])
def test_golub_kahan_identity_holds_and_its_bases_are_orthonormal_for_every_spectrum(m, d):
    values = torch.stack([spectrum(min(m, d)) for spectrum in SPECTRA.values()])
    M = with_values(values, m, d)
    for n in {1, min(3, m, d), min(m, d)}:
        bases = curvature.golub_kahan(curvature.from_dense(M), starts(len(M), m), n)
        assert_orthonormal(bases.right, n)
        assert_orthonormal(bases.left, min(n + 1, m))
        assert_close(bases.right @ M.mT, bases.projected.mT @ bases.left, 1e-13)


def test_eigenvalues_are_listed_once_however_long_the_run():
    # In float32 and without reorthogonalisation, 60 steps list the top value of a harmonic spectrum several times.
    eigenvalues = SPECTRA["harmonic"](60)[None] ** 3
    M = symmetric_with(eigenvalues).float()
    space = curvature.lanczos(lambda v: (M @ v[..., None])[..., 0], starts(1, 60).float(), 60)
    found = torch.linalg.eigvalsh(space.projected[0, :60].double()).flip(0)
    assert (found - eigenvalues[0]).abs().max() < 1e-6


def test_a_start_in_an_invariant_space_goes_on_in_another():
    M = torch.diag(torch.tensor([2.0, 2.0, 1.0, 5.0], dtype=torch.float64))[None]
    start = torch.tensor([[1.0, 1.0, 0.0, 0.0]], dtype=torch.float64)
    values = torch.linalg.eigvalsh(curvature.lanczos(lambda v: (M @ v[..., None])[..., 0], start, 4).projected[:, :4])
    assert_close(values, torch.tensor([[1.0, 2.0, 2.0, 5.0]], dtype=torch.float64), 1e-13)
    assert_close(
        curvature.spectral_norm(curvature.from_dense(M), "golub_kahan", 4, v0=torch.zeros(1, 4)).sigma[0],
        M.max(),
        1e-13,
    )


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_solvers_work_in_full_float32_whatever_precision_the_training_has(precision):
    M = with_values(SPECTRA["harmonic"](64)[None].repeat(2, 1), 64, 64).float()
    A, symmetric = curvature.from_dense(M), curvature.from_dense(M + M.mT, "symmetric")
    starting = starts(2, 64).float()
    torch.set_float32_matmul_precision(precision)
    before = [matmul.fp32_precision for matmul in MATMULS]
    try:
        bases = curvature.golub_kahan(A, starting, 40)
        results = [
            curvature.spectral_norm(A, method, 40, v0=starting) for method in ("lanczos", "golub_kahan", "exact")
        ]
        results.append(curvature.spectral_penalty(symmetric, method="lanczos", iters=40)[1])
        assert (torch.get_float32_matmul_precision(), [matmul.fp32_precision for matmul in MATMULS]) == (
            precision,
            before,
        )
    finally:
        torch.set_float32_matmul_precision("highest")
    for basis in (bases.left, bases.right):
        gram = basis.double() @ basis.double().mT
        assert_close(gram, torch.eye(gram.shape[1], dtype=torch.float64).expand_as(gram), 1e-5)
    assert all(result.converged.all() for result in results)


def test_a_backend_s_own_precision_is_left_as_it_was():
    torch.backends.mkldnn.matmul.fp32_precision = "bf16"
    try:
        with krylov.full_precision(torch.device("cpu")):
            assert torch.backends.mkldnn.matmul.fp32_precision == "ieee"
        assert torch.backends.mkldnn.matmul.fp32_precision == "bf16"
    finally:
        torch.set_float32_matmul_precision("highest")


class NoSync(TorchDispatchMode):
    """Fails where a value is read on the host: .item(), bool(), int(), tolist()."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func not in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default), func
        return func(*args, **(kwargs or {}))


def test_no_solver_reads_a_value_on_the_host():
    general = curvature.from_dense(with_values(SYMMETRIC[:, :5], 8, 5))
    symmetric = curvature.from_dense(symmetric_with(SYMMETRIC), "symmetric")
    with NoSync():
        for method in ("exact", "lanczos", "golub_kahan", "power"):
            for A in (general, symmetric):
                curvature.spectral_norm(A, method, 4)
        curvature.extreme_eigs(symmetric, "LA", 2, 4)
    with pytest.raises(AssertionError), NoSync():
        bool(general.to_dense().sum() > 0)


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1.0, 1e12, 1e30])
def test_norms_neither_underflow_nor_overflow(scale):
    vectors = (torch.tensor([[3.0, 4.0], [0.0, 0.0]], dtype=torch.float64) * scale).float()
    assert_close(krylov.norm(vectors), torch.tensor([5 * scale, 0.0]), 1e-6)
    assert_close(krylov.unit(vectors), torch.tensor([[0.6, 0.8], [0.0, 0.0]]), 1e-6)
    assert krylov.norm(torch.tensor([1.0, torch.nan])).isnan()


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (1, 3), (3, 1)])
def test_the_top_of_a_small_matrix_is_that_of_its_singular_values(shape):
    M = torch.randn(6, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    M[4], M[5] = 0, 1e-200
    s, u, v = krylov.top_triplet(M)
    assert_close(s, torch.linalg.svdvals(M)[:, 0], 1e-13)
    assert_close((M @ v[..., None])[..., 0], s[:, None] * u, 1e-13)
    assert_close(v.norm(dim=-1), torch.ones(6, dtype=torch.float64), 1e-13)
    M[0, 0, 0], M[1, 0, 0] = torch.nan, torch.inf
    again = krylov.top_triplet(M)[0]
    assert again[:2].isnan().all()
    assert_same_bits(again[2:], s[2:])


def test_too_few_steps_are_refused():
    with pytest.raises(ValueError, match="iters=0"):
        curvature.lanczos(lambda v: v, torch.ones(1, 2), 0)
    with pytest.raises(ValueError, match="iters=0"):
        curvature.golub_kahan(curvature.from_dense(torch.ones(1, 2, 2)), torch.ones(1, 2), 0)
