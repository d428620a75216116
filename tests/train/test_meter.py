import math

import pytest

from relnet.train.meter import Meter


def updates(meter: Meter, means: list[float], strings: int = 4) -> None:
    for mean in means:
        meter.add([mean] * strings)


def test_reached_is_the_first_update_whose_window_has_the_accuracy():
    meter = Meter(threshold=0.99, stay=2, window=4)
    updates(meter, [0.5, 0.98, 0.99, 1.0, 1.0])
    assert meter.reached == 3


def test_stayed_is_the_first_update_from_which_it_holds_for_that_many_more():
    meter = Meter(threshold=0.9, stay=3, window=4)
    updates(meter, [1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0])
    assert (meter.reached, meter.stayed) == (1, None)
    updates(meter, [1.0])
    assert (meter.reached, meter.stayed) == (1, 5)
    updates(meter, [0.0, 0.0])
    assert (meter.reached, meter.stayed) == (1, 5)


def test_no_stay_wanted_means_stayed_when_reached():
    meter = Meter(threshold=0.9, stay=0, window=4)
    updates(meter, [0.0, 1.0])
    assert (meter.reached, meter.stayed) == (2, 2)


def test_a_window_that_is_not_full_reaches_nothing():
    meter = Meter(threshold=0.5, stay=0)
    updates(meter, [1.0] * 4, strings=64)
    assert meter.reached is None
    updates(meter, [1.0], strings=64)
    assert meter.reached == 5


def test_a_window_that_the_batch_does_not_divide_is_cut_string_by_string():
    meter = Meter(threshold=0.9, stay=0, window=5)
    assert meter.add([0.0, 0.0, 1.0]) == pytest.approx(1 / 3)
    assert meter.add([1.0, 1.0, 0.0]) == pytest.approx(3 / 5)  # 0 1 | 1 1 0
    assert meter.add([1.0, 1.0, 1.0]) == pytest.approx(4 / 5)  # 1 0 | 1 1 1
    assert meter.add([0.0] * 4 + [1.0] * 5) == 1.0
    assert meter.reached == 4


def test_the_mean_of_ones_is_one_and_of_nothing_is_nan():
    assert math.isnan(Meter(threshold=None, stay=0).mean)
    assert Meter(threshold=1.0, stay=0).add([1.0] * 1000) == 1.0


def test_without_a_threshold_nothing_is_reached():
    meter = Meter(threshold=None, stay=0, window=4)
    updates(meter, [1.0] * 10)
    assert (meter.reached, meter.stayed) == (None, None)


def test_a_restored_meter_goes_on_as_if_it_had_not_stopped():
    means = [0.0, 1.0, 1.0, 0.3, 1.0, 1.0, 1.0, 1.0, 1.0]
    for stop in range(len(means)):
        whole, before, after = (Meter(threshold=0.9, stay=3, window=6) for _ in range(3))
        updates(whole, means)
        updates(before, means[:stop])
        after.restore(before.content())
        updates(after, means[stop:])
        assert after.content() == whole.content()
