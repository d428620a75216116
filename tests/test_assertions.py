import pytest
import torch

from tests.assertions import assert_close, assert_same_bits


def test_assert_close_passes_on_equal_and_fails_on_a_planted_error():
    expected = torch.randn(4, 5)
    assert_close(expected.clone(), expected)
    with pytest.raises(AssertionError, match="relative error"):
        assert_close(expected * (1 + 2e-5), expected)
    with pytest.raises(AssertionError, match="shape"):
        assert_close(expected[:3], expected)
    with pytest.raises(AssertionError):
        assert_close(expected * float("nan"), expected)


def test_assert_close_wants_exact_zero_where_zero_is_expected():
    assert_close(torch.zeros(3), torch.zeros(3))
    with pytest.raises(AssertionError):
        assert_close(torch.full((3,), 1e-30), torch.zeros(3))


def test_assert_same_bits_sees_one_changed_bit():
    expected = torch.randn(100)
    changed = expected.clone()
    changed[17] = torch.nextafter(changed[17], torch.tensor(9.0))
    assert_same_bits(expected.clone(), expected)
    with pytest.raises(AssertionError, match="1 of 100"):
        assert_same_bits(changed, expected)
