"""How many solver steps, and how much weight, at which time of a training: few and light first.

Source: Cui et al. 2022, arXiv 2212.00311, section 5.3 (2, 4, 8, 16 steps with rho = .25, .5, .75, .95).
"""

from bisect import bisect_right
from dataclasses import dataclass
from typing import NamedTuple


class Stage(NamedTuple):
    """iters: solver steps; weight: rho in (1 - rho) * loss + rho * penalty, or whatever the caller multiplies by."""

    iters: int
    weight: float


@dataclass(frozen=True)
class IterationSchedule:
    """Stages of a training; stage i holds from starts[i] on, in the caller's unit. The defaults are the paper's, in epochs.

    ValueError: lists of different lengths, starts that do not begin at 0 and rise, iters < 1, weights outside [0, inf).

    >>> IterationSchedule().at(60)
    Stage(iters=4, weight=0.5)
    """

    starts: tuple[float, ...] = (0, 50, 70, 90)
    iters: tuple[int, ...] = (2, 4, 8, 16)
    weights: tuple[float, ...] = (0.25, 0.5, 0.75, 0.95)

    def __post_init__(self) -> None:
        if not len(self.starts) == len(self.iters) == len(self.weights) >= 1:
            raise ValueError(f"{self}: give as many starts as iters and weights, at least one")
        if self.starts[0] != 0 or any(a >= b for a, b in zip(self.starts, self.starts[1:], strict=False)):
            raise ValueError(f"starts={self.starts}; they begin at 0 and rise")
        if min(self.iters) < 1 or not all(0 <= weight < float("inf") for weight in self.weights):
            raise ValueError(f"iters={self.iters}, weights={self.weights}; give iters >= 1 and finite weights >= 0")

    def at(self, time: float) -> Stage:
        """Return the stage at `time`, which counts from 0."""
        if not time >= 0:
            raise ValueError(f"time={time}; a training begins at 0")
        stage = bisect_right(self.starts, time) - 1
        return Stage(self.iters[stage], self.weights[stage])
