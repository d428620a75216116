import math

import pytest
import torch

from relnet import curvature
from tests.assertions import assert_close, assert_same_bits
from tests.curvature.matrices import SPECTRA, network, skew, symmetric_with, with_values

METHODS = ("exact", "lanczos", "golub_kahan", "power")
KRYLOV = ("exact", "lanczos", "golub_kahan")


def starts(B, d, seed=3):
    return torch.randn(B, d, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def all_spectra(d):
    """Every spectrum at every scale, in one batch: (B, d)."""
    values = torch.stack([spectrum(d) for spectrum in SPECTRA.values()])
    return torch.cat([values * scale for scale in (1e-12, 1e-6, 1e-3, 1.0, 1e12)])


def ratio(found, values):
    top = values.abs().amax(-1)
    return (found.double() / top)[top > 0]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("m", "d"), [(1, 1), (2, 2), (1, 7), (7, 1), (2, 9), (16, 10), (10, 16)])
def test_as_many_steps_as_there_are_dimensions_give_the_norm_of_every_spectrum_at_every_scale(m, d, dtype, tolerance):
    values = all_spectra(min(m, d))
    A = curvature.from_dense(with_values(values, m, d).to(dtype))
    # Lanczos on A A^T squares the condition, and has a null space to leave where m > d.
    for method in KRYLOV if m <= d else ("exact", "golub_kahan"):
        result = curvature.spectral_norm(A, method, min(m, d), v0=starts(len(values), m))
        error = (ratio(result.sigma, values) - 1).abs().max()
        assert error <= tolerance, (method, error)
        assert (result.sigma[values.amax(-1) == 0] == 0).all()
        assert result.exact == (method == "exact")


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_symmetric_and_skew_matrices_with_tied_signs_need_no_special_case(dtype, tolerance):
    values = all_spectra(10) * torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(5)
    for method in KRYLOV:
        A = curvature.from_dense(symmetric_with(values).to(dtype), "symmetric")
        found = curvature.spectral_norm(A, method, 10, v0=starts(len(values), 10)).sigma
        assert (ratio(found, values) - 1).abs().max() <= tolerance, method
        M = skew(4, 9)
        found = curvature.spectral_norm(curvature.from_dense(M.to(dtype), "skew"), method, 9, v0=starts(4, 9)).sigma
        assert_close(found, torch.linalg.matrix_norm(M, 2), tolerance)
    tied = curvature.from_dense(torch.diag(torch.tensor([1.0, -1.0, 0.3]))[None], "symmetric")
    assert_close(curvature.spectral_norm(tied, "power", 30, v0=torch.ones(1, 3)).sigma, torch.ones(1), 1e-5)


@pytest.mark.parametrize("scale", [1e-3, 1e-6, 1e-12])
def test_small_jacobians_keep_their_top_value_at_as_many_steps_as_their_rank(scale):
    rank, size = 10, 16
    values = torch.zeros(20, size, dtype=torch.float64)
    values[:, :rank] = torch.rand(20, rank, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * scale
    for dtype in (torch.float32, torch.float64):
        A = curvature.from_dense(with_values(values, size, size).to(dtype))
        for iters in (rank, size):
            found = curvature.spectral_norm(A, "golub_kahan", iters, v0=starts(20, size)).sigma
            assert ratio(found, values).min() >= 0.999


@pytest.mark.parametrize("method", METHODS)
def test_sigma_never_exceeds_the_norm_and_the_certificate_holds(method):
    values = all_spectra(10)
    M = with_values(values, 12, 10)
    symmetric = symmetric_with(values[:, :10] * torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(5))
    for matrices, symmetry in ((M, "none"), (symmetric, "symmetric"), (skew(9, 10), "skew")):
        true = torch.linalg.svdvals(matrices)
        for iters in (1, 2, 4, 10):
            A = curvature.from_dense(matrices, symmetry)
            result = curvature.spectral_norm(A, method, iters, v0=starts(*A.shape[:2]))
            assert (result.sigma <= true[:, 0] * (1 + 10 * 2.2e-16)).all()
            products = A.rmatvec(result.u)
            assert_close(products, result.sigma[:, None] * result.v, 1e-12)
            assert_close(result.v.norm(dim=-1), (result.sigma > 0).double(), 1e-14)
            # A singular value lies within the residual of s; s = the Rayleigh quotient <u, A v'> of the pair before.
            nearest = (true - result.sigma[:, None]).abs().amin(-1)
            assert (nearest <= 2 * result.residual + 1e-13 * true[:, 0]).all()
            assert (result.converged == (result.residual <= 1e-3 * result.sigma)).all()


@pytest.mark.parametrize("method", METHODS)
def test_products_are_as_many_as_the_table_says(method):
    for symmetry, expected in {
        "none": {"exact": 8, "lanczos": 2 * 3 + 2, "golub_kahan": 6, "power": 6},
        "symmetric": {"exact": 8, "lanczos": 3, "golub_kahan": 6, "power": 3},
    }.items():
        A = curvature.from_dense(symmetric_with(starts(2, 8)), symmetry)
        assert curvature.spectral_norm(A, method, 3).matvecs == A.matvecs == expected[method] + 1


def test_auto_takes_the_cheapest_that_is_exact_and_else_the_solver_for_the_symmetry():
    def chosen(m, d, iters, symmetry="none"):
        A = curvature.from_dense(torch.eye(m, d).expand(1, m, d), symmetry)
        return curvature.spectral_norm(A, iters=iters).method

    assert chosen(10, 50, 5) == "exact"
    assert chosen(50, 10, 5) == "exact"
    assert chosen(11, 50, 5) == "golub_kahan"
    assert chosen(5, 5, 5, "symmetric") == "exact"
    assert chosen(6, 6, 5, "symmetric") == "lanczos"
    M = torch.zeros(1, 6, 6)
    assert curvature.spectral_norm(curvature.from_dense(M, "skew"), iters=5).method == "lanczos"


@pytest.mark.parametrize("method", METHODS)
def test_sigma_scales_with_the_matrix_to_the_bit_for_powers_of_two(method):
    values = torch.stack([SPECTRA["harmonic"](8), SPECTRA["clustered"](8)])
    M, v0 = with_values(values, 8, 8).float(), starts(2, 8)
    sigma = curvature.spectral_norm(curvature.from_dense(M), method, 4, v0=v0).sigma
    for power in (-40, 40):
        scaled = curvature.from_dense(M * 2.0**power)
        assert_same_bits(curvature.spectral_norm(scaled, method, 4, v0=v0).sigma, sigma * 2.0**power)
    negative = curvature.from_dense(-3 * M)
    assert_close(curvature.spectral_norm(negative, method, 4, v0=v0).sigma, 3 * sigma, 1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_is_its_samples_one_at_a_time_in_any_order(method):
    values = torch.stack([spectrum(9) for spectrum in SPECTRA.values()])
    M, v0 = with_values(values, 9, 11), starts(len(values), 9)
    together = curvature.spectral_norm(curvature.from_dense(M), method, 4, v0=v0).sigma
    order = torch.randperm(len(values), generator=torch.Generator().manual_seed(0))
    mixed = curvature.spectral_norm(curvature.from_dense(M[order]), method, 4, v0=v0[order]).sigma
    alone = [
        curvature.spectral_norm(curvature.from_dense(m[None]), method, 4, v0=v[None]).sigma
        for m, v in zip(M, v0, strict=True)
    ]
    assert_close(mixed, together[order], 1e-13)
    assert_close(torch.cat(alone), together, 1e-13)


def top_of(result, A):
    return A.rmatvec(result.u).norm(dim=-1)


def test_the_rectangular_vector_is_never_below_plain_lanczos():
    """Weakness 2: argmax ||A x|| over the Krylov space, one product further, against the Ritz vector of the largest modulus."""
    generator = torch.Generator().manual_seed(5)
    for values in (
        torch.randn(200, 20, generator=generator, dtype=torch.float64),
        torch.stack([spectrum(20) * torch.tensor([1, -1]).repeat(10) for spectrum in SPECTRA.values()][:5]),
    ):
        A, v0 = curvature.from_dense(symmetric_with(values), "symmetric"), starts(len(values), 20)
        for n in (1, 2, 4, 8):
            rectangular = curvature.spectral_norm(A, "lanczos", n, v0=v0).sigma
            plain = A.matvec(curvature.extreme_eigs(A, "LM", 1, n, v0=v0).vectors[:, 0]).norm(dim=-1)
            assert (rectangular >= plain * (1 - 1e-12)).all()
            assert n == 1 or (rectangular > plain * (1 + 1e-6)).any()
            if n >= 4:
                assert rectangular.mean() > curvature.spectral_norm(A, "power", n, v0=v0).sigma.mean()


def test_golub_kahan_is_above_lanczos_on_the_square_and_above_power_at_no_more_products():
    values = torch.rand(200, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    A, v0 = curvature.from_dense(with_values(values, 24, 20)), starts(200, 24)
    for n in (2, 4, 8):
        for other, steps in (("lanczos", n - 1), ("power", n)):
            best, second = (curvature.spectral_norm(A, m, k, v0=v0) for m, k in (("golub_kahan", n), (other, steps)))
            assert best.matvecs <= second.matvecs
            assert best.sigma.mean() > second.sigma.mean() * (1 + 1e-6)


@pytest.mark.parametrize("name", ["harmonic", "geometric", "clustered", "uniform"])
def test_golub_kahan_comes_from_below_to_scipy_s_largest_singular_value(name):
    linalg = pytest.importorskip("scipy.sparse.linalg")
    M = with_values(SPECTRA[name](24)[None], 40, 24)
    (expected,) = linalg.svds(M[0].numpy(), 1, v0=starts(1, 24)[0].numpy(), return_singular_vectors=False)
    for iters, tolerance in ((2, 0.5), (12, 0.01), (24, 1e-12)):
        found = float(curvature.spectral_norm(curvature.from_dense(M), "golub_kahan", iters, v0=starts(1, 40)).sigma)
        assert expected * (1 - tolerance) <= found <= expected * (1 + 1e-12)


def test_identity_and_zero_give_finite_vectors():
    for M in (torch.eye(4)[None], torch.zeros(1, 4, 4), torch.zeros(1, 2, 5)):
        for method in METHODS:
            result = curvature.spectral_norm(curvature.from_dense(M), method, 3)
            assert_close(result.sigma, torch.linalg.matrix_norm(M, 2), 1e-6)
            assert result.u.isfinite().all()
            assert result.v.isfinite().all()
            assert result.converged.all()


@pytest.mark.parametrize("method", METHODS)
def test_a_start_of_zeros_starts_somewhere(method):
    for symmetry in ("none", "symmetric"):
        A = curvature.from_dense(torch.diag(torch.tensor([3.0, 1.0, 0.5]))[None], symmetry)
        assert_close(curvature.spectral_norm(A, method, 20, v0=torch.zeros(1, 3)).sigma, torch.tensor([3.0]), 1e-5)


@pytest.mark.parametrize(("m", "d"), [(1, 1), (1, 5), (5, 1)])
@pytest.mark.parametrize("method", METHODS)
def test_one_sample_one_output_or_one_input_needs_no_special_case(method, m, d):
    M = torch.randn(1, m, d, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    M.requires_grad_()
    loss, result = curvature.spectral_penalty(curvature.from_dense(M), method=method, iters=4)
    assert_close(result.sigma, M.norm(dim=(1, 2)), 1e-12)
    assert_close(torch.autograd.grad(loss, M)[0], 2 * M, 1e-12)


def test_one_sample_that_is_not_finite_spoils_no_other():
    M = with_values(SPECTRA["harmonic"](6).expand(3, 6), 6, 6)
    M[1, 2, 3] = math.nan
    for method in METHODS:
        sigma = curvature.spectral_norm(curvature.from_dense(M), method, 6, v0=starts(3, 6)).sigma
        assert sigma.isnan().tolist() == [False, True, False], method


def test_results_are_the_same_from_run_to_run_and_leave_the_global_generator_alone_where_they_are_told_so():
    A = curvature.jacobian(network(30, 40), torch.ones(2, 30, dtype=torch.float64))
    before = torch.get_rng_state()
    first, second = (
        curvature.spectral_norm(A, "golub_kahan", 3, generator=torch.Generator().manual_seed(1)) for _ in range(2)
    )
    assert_same_bits(first.u, second.u)
    assert torch.equal(before, torch.get_rng_state())


def test_extreme_eigenvalues_are_the_wanted_ones_with_their_own_vectors():
    values = torch.tensor([[-5.0, -1.0, 0.0, 2.0, 2.0, 4.0], [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]], dtype=torch.float64)
    M = symmetric_with(values)
    A = curvature.from_dense(M, "symmetric")
    for which, expected in {"LM": [-5.0, 4.0, 2.0], "LA": [4.0, 2.0, 2.0], "SA": [-5.0, -1.0, 0.0]}.items():
        pairs = curvature.extreme_eigs(A, which, 3, 6, v0=starts(2, 6))
        assert_close(pairs.values[0], torch.tensor(expected, dtype=torch.float64), 1e-12)
        assert_close(pairs.values[1], torch.ones(3, dtype=torch.float64), 1e-12)
        images = pairs.vectors @ M
        assert_close(images, pairs.values[..., None] * pairs.vectors, 1e-12)
        gram = pairs.vectors @ pairs.vectors.mT
        assert_close(gram, torch.eye(3, dtype=torch.float64).expand_as(gram), 1e-12)
        largest = pairs.vectors.gather(2, pairs.vectors.abs().argmax(-1, keepdim=True))
        assert (largest > 0).all()
    partial = curvature.extreme_eigs(A, "LA", 2, 3, v0=starts(2, 6))
    residuals = (partial.vectors @ M - partial.values[..., None] * partial.vectors).norm(dim=-1)
    assert_close(partial.residuals[0], residuals[0], 1e-10)
    assert partial.residuals[1].max() < 1e-13
    assert partial.matvecs == 3


def test_the_derivative_of_an_eigenvalue_is_that_of_its_quadratic_form_even_where_values_tie():
    M = torch.diag(torch.tensor([3.0, 3.0, 1.0], dtype=torch.float64))[None].requires_grad_()
    A = curvature.from_dense(M, "symmetric")
    vector = curvature.extreme_eigs(A, "LA", 1, 3, v0=starts(1, 3)).vectors[:, 0]
    (grad,) = torch.autograd.grad((vector * A.matvec(vector)).sum(), M)
    assert_close(grad[0], vector[0, :, None] * vector[0], 1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda A: curvature.spectral_norm(A, "svd"), "give one of auto, exact"),
        (lambda A: curvature.spectral_norm(A, iters=0), "iters=0"),
        (lambda A: curvature.spectral_norm(A, v0=torch.ones(1, 4)), r"give \(1, 3\)"),
        (lambda A: curvature.extreme_eigs(A), "use spectral_norm"),
        (lambda A: curvature.extreme_eigs(A + A.T, "BE"), "give one of LM"),
        (lambda A: curvature.extreme_eigs(A + A.T, k=4), "k=4"),
        (lambda A: curvature.extreme_eigs(A + A.T, v0=torch.ones(1, 4)), r"give \(1, 3\)"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call(curvature.from_dense(torch.ones(1, 3, 3)))
