"""Jacobians and Hessians of any network with respect to its input: products, spectral norms, penalties, targets, attacks.

Knows no model of relnet and imports torch only (attacks: adversarial-robustness-toolbox, an extra).
Letters: B batch, d inputs and m outputs of a sample, A one (m, d) matrix a sample, A0 its target,
n solver steps, u left and v right vectors.
Source: Cui, Yan, Liu and Lu 2022, arXiv 2212.00311.
"""

from relnet.curvature import targets
from relnet.curvature.check_model import Finding, check_model
from relnet.curvature.eigenvalues import Eigenpairs, extreme_eigs
from relnet.curvature.golub_kahan import golub_kahan
from relnet.curvature.lanczos import lanczos
from relnet.curvature.norms import SpectralResult, spectral_norm
from relnet.curvature.operators import (
    BatchedOperator,
    from_dense,
    hessian,
    hessian_from_scalar,
    jacobian,
    jacobian_from_outputs,
)
from relnet.curvature.penalties import diagonality_penalty, frobenius_penalty, spectral_penalty, symmetry_penalty
from relnet.curvature.regularisers import HessianRegularizer, JacobianRegularizer
from relnet.curvature.schedule import IterationSchedule, Stage
from relnet.curvature.warm_start import WarmStart

__all__ = [
    "BatchedOperator",
    "Eigenpairs",
    "Finding",
    "HessianRegularizer",
    "IterationSchedule",
    "JacobianRegularizer",
    "SpectralResult",
    "Stage",
    "WarmStart",
    "check_model",
    "diagonality_penalty",
    "extreme_eigs",
    "frobenius_penalty",
    "from_dense",
    "golub_kahan",
    "hessian",
    "hessian_from_scalar",
    "jacobian",
    "jacobian_from_outputs",
    "lanczos",
    "spectral_norm",
    "spectral_penalty",
    "symmetry_penalty",
    "targets",
]
