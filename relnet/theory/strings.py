"""Strings by their n-grams: which repeat one, which do not, the longest that need not, and what the exam asks of them.

    N = strings, L = letters of a string, a = letters of the alphabet, numbered 0..a-1

A string of L letters has L - n + 1 n-grams; one that repeats none has at most a^n of them, so L <= a^n + n - 1, which de Bruijn's
strings reach. A uniform string repeats one with a chance below L^2 a^-n (arXiv 2402.01032, section 2).
"""

import itertools

import numpy as np
import torch
from torch import Tensor

from relnet.tasks import Copying, Items


def repeats(strings: Tensor, n: int) -> Tensor:
    """Return which strings hold some n-gram twice (they may overlap): (N,) bool for strings (N, L) int64.

    ValueError for an n under 1 and for another shape.

    >>> repeats(torch.tensor([[0, 1, 0, 2], [0, 1, 0, 1]]), n=2)
    tensor([False,  True])
    """
    if strings.dim() != 2:
        raise ValueError(f"strings of shape {tuple(strings.shape)}: (number, length) wanted")
    _check("n", n)
    if strings.shape[1] <= n:
        return torch.zeros(len(strings), dtype=torch.bool)
    grams = strings.unfold(1, n, 1).contiguous().numpy()
    return torch.tensor([len(np.unique(one, axis=0)) < len(one) for one in grams])


def longest_without_repeat(n: int, alphabet: int) -> int:
    """Return a^n + n - 1, the length of the longest strings without a repeated n-gram.

    >>> longest_without_repeat(n=3, alphabet=2)
    10
    """
    _check("n", n)
    _check("alphabet", alphabet)
    return alphabet**n + n - 1


def de_bruijn(n: int, alphabet: int) -> Tensor:
    """Return a longest string without a repeated n-gram, (a^n + n - 1,) int64: every n-gram stands in it exactly once.

    Lyndon words whose length divides n, in order, and the first n - 1 letters again (Fredricksen and Maiorana 1978).
    ValueError for an n or an alphabet under 1.

    >>> "".join(map(str, de_bruijn(n=3, alphabet=2).tolist()))
    '0001011100'
    """
    length = longest_without_repeat(n, alphabet)
    letters: list[int] = []
    word = [0]
    while word:
        if n % len(word) == 0:
            letters += word
        word = (word * n)[:n]
        while word and word[-1] == alphabet - 1:
            word.pop()
        if word:
            word[-1] += 1
    return torch.tensor((letters * n)[:length])


def all_strings(length: int, alphabet: int) -> Tensor:
    """Return every string of this length, (a^L, L) int64; ValueError for a length or an alphabet under 1.

    >>> all_strings(2, alphabet=2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1]]
    """
    _check("length", length)
    _check("alphabet", alphabet)
    return torch.tensor(list(itertools.product(range(alphabet), repeat=length)))


def uniform_strings(num: int, length: int, alphabet: int, seed: int) -> Tensor:
    """Return strings of independent uniform letters, (num, L) int64; ValueError for sizes under 1.

    >>> uniform_strings(2, 5, alphabet=3, seed=0).shape
    torch.Size([2, 5])
    """
    for name, value in (("num", num), ("length", length), ("alphabet", alphabet)):
        _check(name, value)
    generator = np.random.Generator(np.random.Philox(seed))
    return torch.from_numpy(generator.integers(alphabet, size=(num, length)))


def strings_without_repeat(num: int, length: int, n: int, alphabet: int, seed: int) -> Tensor:
    """Return random strings without a repeated n-gram, (num, L) int64: letter by letter, uniform among those that repeat nothing.

    ValueError for sizes under 1, and for a length that no such string has. Where the length comes near the longest, a walk that runs
    into a dead end steps back; the longest itself is what `de_bruijn` is for.

    >>> bool(repeats(strings_without_repeat(3, 40, n=2, alphabet=8, seed=0), n=2).any())
    False
    """
    for name, value in (("num", num), ("length", length), ("n", n), ("alphabet", alphabet)):
        _check(name, value)
    longest = longest_without_repeat(n, alphabet)
    if length > longest:
        raise ValueError(
            f"length {length}: a string of {alphabet} letters without a repeated {n}-gram has at most {longest}; "
            "give a shorter length or a larger n"
        )
    generator = np.random.Generator(np.random.Philox(seed))
    return torch.tensor([_walk(length, n, alphabet, generator) for _ in range(num)])


def _walk(length: int, n: int, alphabet: int, generator: np.random.Generator) -> list[int]:
    """One string, depth first: `choices[t]` are the letters that place t has not tried yet."""
    letters: list[int] = []
    seen: set[tuple[int, ...]] = set()
    choices = [generator.permutation(alphabet).tolist()]
    while len(letters) < length:
        if not choices[-1]:
            choices.pop()
            seen.discard(tuple(letters[-n:]))
            letters.pop()
            continue
        letters.append(choices[-1].pop())
        gram = tuple(letters[-n:])
        if len(gram) == n and gram in seen:
            letters.pop()
            continue
        if len(gram) == n:
            seen.add(gram)
        choices.append(generator.permutation(alphabet).tolist())
    return letters


def repeat_bound(length: int, n: int, alphabet: int) -> float:
    """Return min(1, L^2 a^-n), above the chance that a uniform string repeats an n-gram.

    >>> repeat_bound(length=100, n=4, alphabet=26) < 0.022
    True
    """
    return min(1.0, length**2 / alphabet**n)


def items(strings: Tensor) -> Items:
    """Return what the exam asks: prompts `<BOS> string <SEP>`, answers `string <EOS>`, letters from token 3 on.

    >>> items(torch.tensor([[0, 1]]))
    Items(prompts=tensor([[0, 3, 4, 1]]), answers=tensor([[3, 4, 2]]))
    """
    letters = strings + Copying.FIRST_LETTER

    def column(token: int) -> Tensor:
        return torch.full((len(strings), 1), token)

    prompts = torch.cat([column(Copying.BOS), letters, column(Copying.SEP)], dim=1)
    return Items(prompts, torch.cat([letters, column(Copying.EOS)], dim=1))


def _check(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} {value}: at least 1 wanted")
