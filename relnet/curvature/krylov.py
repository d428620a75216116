"""What batched Krylov methods share: norms that neither over- nor underflow, one more orthonormal vector, the top of a small matrix.

    basis (B, k, d)   k orthonormal rows a sample         restart (d,)   a vector to go on from where a sample's Krylov space is exhausted

No function here looks at a value on the host: samples that break down go on beside the others, by `torch.where`. On CUDA, PyTorch's eigh
of the small matrix waits for the device, once, after the steps.
Sources: Saad 2011, Numerical Methods for Large Eigenvalue Problems, chapter 6; Giraud et al. 2005 (twice is enough).
"""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

# A new direction smaller than this many roundings of the largest product so far is rounding: relative, whatever the scale of A.
BREAKDOWN = 10.0


@contextmanager
def full_precision(device: torch.device) -> Generator[None]:
    """Without autocast, and float32's matrix products in float32, whatever `torch.set_float32_matmul_precision` says of the training."""
    # The type stubs do not know oneDNN's.
    backends: Any = torch.backends
    matmuls = backends.cuda.matmul, backends.mkldnn.matmul
    before = [matmul.fp32_precision for matmul in matmuls]
    try:
        overall = torch.get_float32_matmul_precision()
    except RuntimeError:
        # Where the backends' own settings were used, torch has no word for all of them.
        overall = None
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.autocast(device.type, enabled=False):
            yield
    finally:
        if overall is not None:
            torch.set_float32_matmul_precision(overall)
        for matmul, precision in zip(matmuls, before, strict=True):
            matmul.fp32_precision = precision


@contextmanager
def solving(device: torch.device) -> Generator[None]:
    """Without graph, in full precision: a solver's vectors are orthogonal to its own rounding only."""
    with torch.no_grad(), full_precision(device):
        yield


def norm(vectors: Tensor) -> Tensor:
    """Euclidean norm of the last dimension; squares entries of at most 1, so the scale is of no account. NaN stays NaN."""
    largest = vectors.abs().amax(-1)
    scale = torch.where(largest == 0, 1.0, largest)
    return scale * (vectors / scale[..., None]).norm(dim=-1)


def unit(vectors: Tensor) -> Tensor:
    """Vectors of length 1 along the last dimension; 0 stays 0."""
    largest = vectors.abs().amax(-1, keepdim=True)
    vectors = vectors / torch.where(largest == 0, 1.0, largest)
    length = vectors.norm(dim=-1, keepdim=True)
    return vectors / torch.where(length == 0, 1.0, length)


def restarts(num: int, like: Tensor) -> Tensor:
    """Return `num` vectors of like's last size, the same for every sample and call; global random numbers are left alone."""
    generator = torch.Generator(like.device).manual_seed(0)
    return torch.randn(num, like.shape[-1], dtype=like.dtype, device=like.device, generator=generator)


def extend(w: Tensor, basis: Tensor, restart: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the unit vector (B, d) that w (B, d) adds to the basis, how much of it w holds (B,), and the new scale (B,).

    scale: the largest size seen so far of what w is the product of. Where w adds nothing but rounding, the amount is exactly 0 and the
    vector comes from `restart`: the next product then starts another invariant space, and the projected matrix stays true.
    A basis that is full returns zeros.
    """
    scale = torch.maximum(scale, norm(w))
    if basis.shape[1] >= w.shape[1]:
        return torch.zeros_like(w), torch.zeros_like(scale), scale
    w = _project_out(w, basis)
    amount = norm(w)
    broken = amount <= BREAKDOWN * torch.finfo(w.dtype).eps * scale
    w = unit(torch.where(broken[:, None], _project_out(restart.expand_as(w), basis), w))
    # Dividing by a small amount has magnified what rounding left of the basis.
    return unit(_project_out(w, basis)), torch.where(broken, 0.0, amount), scale


def top_triplet(matrices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return sigma (B,), u (B, a), v (B, b) of matrices M (B, a, b): v unit and (to rounding) M's top right vector, M v = sigma u.

    From the smaller of M^T M and M M^T: the top value is not harmed by squaring. NaN where a matrix is not finite.
    """
    largest = matrices.abs().amax((1, 2))
    # eigh refuses a whole batch for one NaN.
    finite = largest.isfinite()
    scale = torch.where(finite & (largest > 0), largest, 1.0)
    scaled = torch.where(finite[:, None, None], matrices, 0.0) / scale[:, None, None]
    transposed = scaled.mT
    if matrices.shape[1] < matrices.shape[2]:
        v = unit((transposed @ torch.linalg.eigh(scaled @ transposed)[1][..., -1:])[..., 0])
        # M M^T = 0: any unit vector is a top one.
        v = torch.where((v == 0).all(-1, keepdim=True), torch.eye(v.shape[1], dtype=v.dtype, device=v.device)[0], v)
    else:
        v = torch.linalg.eigh(transposed @ scaled)[1][..., -1]
    image = (scaled @ v[..., None])[..., 0]
    sigma = norm(image) * scale
    return torch.where(finite, sigma, torch.nan), unit(image), v


def _project_out(w: Tensor, basis: Tensor) -> Tensor:
    """w less what of it lies in the basis; twice, which is enough to make it orthogonal to rounding."""
    for _ in range(2):
        w = w - ((basis @ w[..., None]).mT @ basis)[:, 0]
    return w
