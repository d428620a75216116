"""95 % confidence intervals: of a share from the counts of one seed, and of a mean over seeds."""

from collections.abc import Sequence
from math import sqrt
from statistics import NormalDist, fmean, stdev

Z = NormalDist().inv_cdf(0.975)
# Student's t, 97.5 %, for 1, 2, ... degrees of freedom; further ones by their expansion in 1 / degrees.
T = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)


def wilson(part: int, whole: int) -> tuple[float, float]:
    """Wilson's interval of a share, from the counts; (0, 1) where nothing was counted.

    >>> [round(end, 3) for end in wilson(320, 320)]
    [0.988, 1.0]
    """
    if whole == 0:
        return 0.0, 1.0
    share, spread = part / whole, Z * Z / whole
    middle = share + spread / 2
    half = Z * sqrt(share * (1 - share) / whole + Z * Z / (4 * whole * whole))
    # Rounding must not leave the ends of [0, 1].
    return max(0.0, (middle - half) / (1 + spread)), min(1.0, (middle + half) / (1 + spread))


def student(shares: Sequence[float]) -> tuple[float, float]:
    """Student's interval of the mean of several seeds' shares, cut to [0, 1]; ValueError for fewer than 2.

    >>> [round(end, 3) for end in student([0.5, 0.6, 0.7])]
    [0.352, 0.848]
    """
    if len(shares) < 2:
        raise ValueError(f"{len(shares)} seeds: an interval over seeds needs at least 2")
    degrees = len(shares) - 1
    t = (
        T[degrees - 1]
        if degrees <= len(T)
        else Z + (Z**3 + Z) / (4 * degrees) + (5 * Z**5 + 16 * Z**3 + 3 * Z) / (96 * degrees**2)
    )
    half = t * stdev(shares) / sqrt(len(shares))
    return max(0.0, fmean(shares) - half), min(1.0, fmean(shares) + half)
