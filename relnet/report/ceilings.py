"""How often a uniform string has no repeated n-gram: the ceiling of whoever copies by the last n letters alone.

Simulated: 4,000 strings a length, one seed, so the standard error is below 0.8 %. (Bound: a repeat is rarer than L^2 a^-n.)
"""

import numpy as np

STRINGS = 4000
CHUNK = 500


def share_without_repeat(length: int, ngram: int, alphabet: int = 26, seed: int = 0) -> float:
    """Share of uniform strings of this length in which every n-gram stands once.

    >>> share_without_repeat(3, ngram=3), share_without_repeat(30, ngram=1)
    (1.0, 0.0)
    """
    if length <= ngram:
        return 1.0
    generator, clean = np.random.Generator(np.random.Philox(key=[seed, length])), 0
    for _ in range(STRINGS // CHUNK):
        letters = generator.integers(0, alphabet, (CHUNK, length))
        places = length - ngram + 1
        codes = sum(letters[:, n : n + places] * alphabet**n for n in range(ngram))
        ordered = np.sort(codes, axis=1)
        clean += int((ordered[:, 1:] != ordered[:, :-1]).all(1).sum())
    return clean / STRINGS
