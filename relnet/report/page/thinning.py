"""Curves of any length in a few hundred points that look the same: of each stretch the lowest and the highest value stay."""

import math
from collections.abc import Sequence
from typing import Any

# Stretches a curve; each gives two points, about one a pixel of the page's charts.
STRETCHES = 250
# JSON knows whole numbers that no float can hold.
LARGEST = 1e300


def number(value: Any) -> float | None:
    """The value where it is a finite number, else None.

    >>> number(1.5), number(float("nan")), number("1.5"), number(True)
    (1.5, None, None, None)
    """
    good = isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST
    return value if good else None


def thinned(steps: Sequence[float], values: Sequence[float | None], stretches: int = STRETCHES) -> dict[str, list[Any]]:
    """Points of a curve, all where they are few; else each stretch's first lowest and first highest, the first and the last of all.

    Returns "step" and "y"; where points were left out also "mean_step" and "mean", the means of the stretches, which smoothing is to go
    by: extremes alone would exaggerate. None, a value that is missing, is a gap: it stays where a whole stretch is None.

    >>> thinned([1, 2, 3, 4, 5, 6, 7, 8], [0, 5, 1, 2, 3, 9, 4, 4], stretches=2)
    {'step': [1, 2, 5, 6, 8], 'y': [0.0, 5.0, 3.0, 9.0, 4.0], 'mean_step': [2.5, 6.5], 'mean': [2.0, 5.0]}
    """
    if len(steps) <= 2 * stretches:
        return {"step": list(steps), "y": [_short(value) for value in values]}
    size = math.ceil(len(steps) / stretches)
    places: set[int] = {0, len(steps) - 1}
    mean_step, mean = [], []
    for start in range(0, len(steps), size):
        stretch = range(start, min(start + size, len(steps)))
        known = {place: value for place in stretch if (value := values[place]) is not None}
        mean_step.append(sum(steps[place] for place in stretch) / len(stretch))
        mean.append(_short(sum(known.values()) / len(known)) if known else None)
        places |= {min(known, key=known.__getitem__), max(known, key=known.__getitem__)} if known else {start}
    kept = sorted(places)
    return {
        "step": [steps[place] for place in kept],
        "y": [_short(values[place]) for place in kept],
        "mean_step": mean_step,
        "mean": mean,
    }


def _short(value: float | None) -> float | None:
    """Five digits: more are seen in no chart."""
    return None if value is None else float(f"{value:.5g}")
