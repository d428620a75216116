"""Random numbers of an item: a Philox stream whose key is (seed, item), the same in any batch, order and process.

Only Philox's raw 64-bit words are used, which no version of NumPy changes. Training streams have counter (., ., 0, 0), exam
streams (., ., length, 1): they cannot meet.
"""

from collections.abc import Generator

import numpy as np

# What the upper half of a word tells apart.
MOST_BELOW = 2**32


class Stream:
    """The words of one item, drawn one after another.

    >>> (stream,) = streams(1, seed=0, index=5)
    >>> stream.below(26, 3).tolist()
    [15, 14, 7]
    """

    def __init__(self, generator: np.random.Philox) -> None:
        self._generator = generator

    def below(self, n: int, num: int) -> np.ndarray:
        """(num,) int64, uniform in [0, n); the bias is below n / 2^32. ValueError for n over 2^32, more than a word tells apart."""
        if n > MOST_BELOW:
            raise ValueError(f"n {n}: 2^32 or less wanted; draw the digits of so large a number one by one")
        words = self._generator.random_raw(num)
        return ((words >> np.uint64(32)) * np.uint64(n) >> np.uint64(32)).astype(np.int64)

    def distinct(self, n: int, num: int) -> np.ndarray:
        """(num,) int64, num different ones of 0, ..., n - 1 in random order, all choices equally likely."""
        return np.argsort(self._generator.random_raw(n), kind="stable")[:num]


def streams(num: int, seed: int, index: int, exam_length: int | None = None) -> Generator[Stream]:
    """Give the streams of items index, ..., index + num - 1, of training or of the exam; each is good until the next is asked for.

    ValueError for num under 1, a negative index and a seed outside [0, 2^64).
    """
    if num < 1:
        raise ValueError(f"{num} items: at least 1 wanted")
    if index < 0:
        raise ValueError(f"index {index}: items are numbered from 0")
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed {seed}: an integer in [0, 2^64) wanted")
    return _streams(num, seed, index, [0, 0, 0, 0] if exam_length is None else [0, 0, exam_length, 1])


def _streams(num: int, seed: int, index: int, counter: list[int]) -> Generator[Stream]:
    generator = np.random.Philox(key=0)
    # One generator set anew for each item: making one takes ten times as long.
    state = generator.state
    state["state"]["counter"] = np.array(counter, dtype=np.uint64)
    for item in range(index, index + num):
        state["state"]["key"] = np.array([seed, item], dtype=np.uint64)
        generator.state = state
        yield Stream(generator)
