"""The one closeness check of the tests: relative error, norm-wise a tensor."""

import torch
from torch import Tensor


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """||actual - expected|| / ||expected|| in float64; where expected is 0 everywhere, ||actual||."""
    actual, expected = actual.detach().double(), expected.detach().double()
    norm = expected.norm()
    return float((actual - expected).norm() / norm) if norm > 0 else float(actual.norm())


def assert_close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5, name: str = "value") -> None:
    """Raise AssertionError unless the shapes agree and the relative error is at most `tolerance`.

    Where `expected` is all zeros, `actual` must be exactly 0. NaN never passes.
    """
    assert actual.shape == expected.shape, f"{name}: shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    error = relative_error(actual, expected)
    limit = tolerance if bool((expected != 0).any()) else 0.0
    assert error <= limit, f"{name}: relative error {error:.3e}, allowed {limit:.0e}"


def assert_same_bits(actual: Tensor, expected: Tensor, name: str = "value") -> None:
    """Raise AssertionError unless both tensors hold the same bits (NaN equals NaN)."""
    same = torch.equal(actual, expected) or bool(((actual == expected) | (actual.isnan() & expected.isnan())).all())
    assert same, f"{name}: differs in {int((actual != expected).sum())} of {actual.numel()} entries"
