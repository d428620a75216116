"""Parts of a claim: true, false, or None where runs that ended too early, or were not made, leave it open.

What a run needs is known where it came to 99 %; where it never did, it is more than the run spent. So a mean over runs lies within bounds,
and a comparison is decided where every value within them decides it alike.
"""

from collections.abc import Iterable
from math import inf
from statistics import fmean

Part = bool | None
Bounds = tuple[float, float]


def every(parts: Iterable[Part]) -> Part:
    """Whether all of them hold: one that does not decides it, one left open leaves it open, and so do none at all.

    >>> every([True, True]), every([True, None, False]), every([True, None]), every([])
    (True, False, None, None)
    """
    found = list(parts)
    if False in found:
        return False
    return True if found and None not in found else None


def some(parts: Iterable[Part]) -> Part:
    """Whether one of them holds: open where none does and one is open, or there are none.

    >>> some([False, True, None]), some([False, None]), some([False]), some([])
    (True, None, False, None)
    """
    return opposite(every(map(opposite, parts)))


def opposite(part: Part) -> Part:
    """The opposite of what is decided."""
    return None if part is None else not part


def bounds(runs: Iterable[tuple[int | None, int]]) -> Bounds:
    """The least and the most that runs need in the mean, each told by what it needed to 99 % (None: never came there) and what it spent.

    >>> bounds([(80, 100), (90, 110)]), bounds([(80, 100), (None, 99)])
    ((85.0, 85.0), (90.0, inf))
    """
    found = list(runs)
    least = fmean(spent + 1 if needed is None else needed for needed, spent in found)
    return least, least if all(needed is not None for needed, _ in found) else inf


def judged(ours: Bounds, theirs: Bounds, times: float = 1.0) -> Part:
    """Whether they need more than so many times what we do; None: undecided.

    >>> never_in_99, never_in_149, at_100 = bounds([(None, 99)]), bounds([(None, 149)]), (100.0, 100.0)
    >>> judged(at_100, never_in_149), judged(at_100, never_in_149, times=2), judged(never_in_99, at_100), judged(never_in_99, never_in_149)
    (True, None, False, None)
    """
    if theirs[0] > times * ours[1]:
        return True
    return False if theirs[1] <= times * ours[0] else None
