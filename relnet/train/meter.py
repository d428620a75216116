"""Steps to an accuracy: when the mean over the last 320 fresh training strings reaches it, and when it stays.

Each string is measured before its own update, so it is one that the model has never seen (Cui 2024, section 4; with
320 strings the measure is the same for one batch of 320 and for five of 64).
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import Any

WINDOW = 320


class Meter:
    """Counts updates until the accuracy of the last `window` strings reaches `threshold`, and until it stays there.

    `reached`: number of the first update (from 1, its own strings included) whose window is full and has a mean of at
    least `threshold`. `stayed`: the first one that also holds for each of the `stay` updates after it. Both None until
    then, and for ever where `threshold` is None.

    >>> meter = Meter(threshold=0.9, stay=1, window=4)
    >>> [meter.add(strings) for strings in ([0.0, 1.0], [1.0, 1.0], [1.0, 1.0], [1.0, 1.0])]
    [0.5, 0.75, 1.0, 1.0]
    >>> meter.reached, meter.stayed
    (3, 3)
    """

    def __init__(self, threshold: float | None, stay: int, window: int = WINDOW):
        self.threshold, self.stay = threshold, stay
        self.steps = 0
        self.reached: int | None = None
        self.stayed: int | None = None
        self._since: int | None = None
        self._strings: deque[float] = deque(maxlen=window)

    @property
    def mean(self) -> float:
        """Mean accuracy of the last `window` strings, of fewer at the start, NaN before the first."""
        return math.fsum(self._strings) / len(self._strings) if self._strings else math.nan

    def add(self, accuracies: Sequence[float]) -> float:
        """Take the strings of one more update, in order, and return the mean of the window."""
        self.steps += 1
        self._strings.extend(accuracies)
        full = len(self._strings) == self._strings.maxlen
        if self.threshold is None or not full or self.mean < self.threshold:
            self._since = None
            return self.mean
        self._since = self._since or self.steps
        self.reached = self.reached or self.steps
        if self.stayed is None and self.steps - self._since >= self.stay:
            self.stayed = self._since
        return self.mean

    def content(self) -> dict[str, Any]:
        """What a checkpoint keeps of it, as JSON values."""
        counts = {"steps": self.steps, "reached": self.reached, "stayed": self.stayed, "since": self._since}
        return {**counts, "strings": list(self._strings)}

    def restore(self, content: dict[str, Any]) -> None:
        """Go on from `content`."""
        self.steps, self.reached, self.stayed = content["steps"], content["reached"], content["stayed"]
        self._since = content["since"]
        self._strings.clear()
        self._strings.extend(content["strings"])
