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


ONES = torch.ones(3)


@pytest.mark.parametrize(
    ("actual", "expected", "message"),
    [
        (torch.tensor([1.0, -0.0]), torch.tensor([1.0, 0.0]), "1 of 2"),
        (ONES[None], ONES, r"shape \(1, 3\), expected \(3,\)"),
        (ONES.expand(4, 3), ONES[:1], "shape"),
        (ONES.double(), ONES, "float64, expected torch.float32"),
        (torch.tensor([True]), torch.tensor([1]), "bool"),
        (torch.tensor([torch.nan, 1.0]), torch.tensor([1.0, 1.0]), "1 of 2"),
        (ONES.bfloat16(), ONES.bfloat16() + 2**-7, "3 of 3"),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "1 of 2"),
    ],
)
def test_assert_same_bits_wants_sign_shape_and_dtype(actual, expected, message):
    with pytest.raises(AssertionError, match=message):
        assert_same_bits(actual, expected)


def test_assert_same_bits_takes_any_layout_and_any_nan():
    tensor = torch.randn(3, 4)
    assert_same_bits(tensor.T, tensor.T.contiguous())
    assert_same_bits(torch.zeros(0, 4), torch.zeros(0, 4))
    assert_same_bits(torch.tensor(2.0), torch.tensor(2.0))
    negative_nan = torch.tensor([-(2**22)], dtype=torch.int32).view(torch.float32)
    assert negative_nan.isnan()
    assert_same_bits(negative_nan, torch.tensor([torch.nan]))
