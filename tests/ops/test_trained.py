"""Errors of every backend at the sources and targets of a trained model."""

import pytest
import torch

from relnet import ops
from tests.ops.backends import PAIRWISE
from tests.ops.test_relation import draw
from tests.ops.trained import trained_pairs


def derivatives(source, target, weights, backend, norm="exact"):
    source, target = source.clone().requires_grad_(), target.clone().requires_grad_()
    y = ops.relation_mean(source, target, backend=backend, norm=norm)
    return y.detach(), *torch.autograd.grad(y, (source, target), weights)


def error(got, want):
    return float((got.double() - want).norm() / want.norm())


@pytest.mark.slow
@pytest.mark.parametrize("backend", [name for name in PAIRWISE if name != "reference"])
def test_errors_are_at_most_twice_the_reference_s_in_float32(backend):
    spread = []
    for source, target in trained_pairs():
        weights = draw(0, *target.shape, dtype=torch.float32)
        exact = derivatives(source.double(), target.double(), weights.double(), "reference")
        rival = derivatives(source, target, weights, "reference")
        for got, rounded, want in zip(derivatives(source, target, weights, backend), rival, exact, strict=True):
            assert error(got, want) <= 2 * error(rounded, want) + 1e-7
        centred = [x - x.mean(-1, keepdim=True) for x in (source, target)]
        scales = (centred[0][:, None] + centred[1][:, :, None]).square().mean(-1).rsqrt()
        spread.append(float(scales.max() / scales.median()))
    assert max(spread) > 3, f"no block retrieves: scales up to {max(spread):.1f} of their median"


@pytest.mark.slow
def test_errors_of_the_linear_form_are_at_most_twice_the_reference_s_in_float32():
    for source, target in trained_pairs():
        weights = draw(0, *target.shape, dtype=torch.float32)
        exact = derivatives(source.double(), target.double(), weights.double(), "reference", "approximate")
        rival = derivatives(source, target, weights, "reference", "approximate")
        actual = derivatives(source, target, weights, "linear", "approximate")
        for got, rounded, want in zip(actual, rival, exact, strict=True):
            assert error(got, want) <= 2 * error(rounded, want) + 1e-7
