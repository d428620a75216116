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
    """Raise AssertionError unless shape, dtype and every bit agree: -0.0 is not 0.0, but any NaN equals any NaN."""
    assert actual.shape == expected.shape, f"{name}: shape {tuple(actual.shape)}, expected {tuple(expected.shape)}"
    assert actual.dtype == expected.dtype, f"{name}: {actual.dtype}, expected {expected.dtype}"
    both_nan = (actual.isnan() & expected.isnan()).flatten()
    differs = (_bytes(actual) != _bytes(expected)).any(1) & ~both_nan
    assert not differs.any(), f"{name}: differs in {int(differs.sum())} of {actual.numel()} entries"


def _bytes(tensor: Tensor) -> Tensor:
    """The bytes of each entry, (entries, bytes)."""
    return tensor.detach().contiguous().view(-1, 1).view(torch.uint8)
