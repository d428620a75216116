"""Matrices of known spectra, and networks whose Jacobians and Hessians the tests know otherwise."""

import torch
from torch import Tensor, nn

# The singular values of d x d matrices, largest first.
SPECTRA = {
    "harmonic": lambda d: 1 / torch.arange(1, d + 1, dtype=torch.float64),
    "geometric": lambda d: 0.7 ** torch.arange(d, dtype=torch.float64),
    "clustered": lambda d: 1 - 1e-3 * torch.arange(d, dtype=torch.float64),
    "repeated": lambda d: torch.ones(d, dtype=torch.float64),
    "paired": lambda d: 1.0 / (1 + torch.arange(d, dtype=torch.float64) // 2),
    "uniform": lambda d: torch.linspace(1, 0, d, dtype=torch.float64),
    "rank one": lambda d: torch.eye(d, dtype=torch.float64)[0],
    "zero": lambda d: torch.zeros(d, dtype=torch.float64),
}


def orthogonal(B: int, d: int, seed: int) -> Tensor:
    """Random orthogonal matrices (B, d, d), float64."""
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(B, d, d, generator=generator, dtype=torch.float64))[0]


def with_values(values: Tensor, m: int, d: int, seed: int = 0) -> Tensor:
    """Matrices (B, m, d) of the singular values (B, min(m, d)), float64."""
    B, rank = values.shape
    left, right = orthogonal(B, m, seed)[:, :, :rank], orthogonal(B, d, seed + 1)[:, :, :rank]
    return left @ torch.diag_embed(values) @ right.mT


def symmetric_with(eigenvalues: Tensor, seed: int = 0) -> Tensor:
    """Symmetric matrices (B, d, d) of the eigenvalues (B, d), float64."""
    basis = orthogonal(*eigenvalues.shape, seed)
    matrices = basis @ torch.diag_embed(eigenvalues) @ basis.mT
    return (matrices + matrices.mT) / 2


def skew(B: int, d: int, seed: int = 0) -> Tensor:
    """Random skew matrices (B, d, d), float64."""
    generator = torch.Generator().manual_seed(seed)
    matrices = torch.randn(B, d, d, generator=generator, dtype=torch.float64)
    return matrices - matrices.mT


def network(inputs: int, outputs: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> nn.Sequential:
    """A small smooth network; torch's own generator is left alone."""
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(inputs, 7), nn.Softplus(), nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, outputs)).to(
            dtype
        )
