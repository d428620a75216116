import itertools

import pytest
import torch

from relnet import theory


def holds_a_gram_twice(string, n):
    grams = [tuple(string[i : i + n]) for i in range(len(string) - n + 1)]
    return any(one == other for one, other in itertools.combinations(grams, 2))


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_repeat_is_two_equal_ngrams_overlapping_or_not(n):
    strings = theory.all_strings(5, alphabet=3)
    assert theory.repeats(strings, n).tolist() == [holds_a_gram_twice(string, n) for string in strings.tolist()]


@pytest.mark.parametrize(("n", "alphabet"), [(1, 5), (3, 2), (8, 2), (2, 26), (3, 4), (4, 1)])
def test_a_string_of_de_bruijn_holds_every_ngram_once_and_none_is_longer(n, alphabet):
    string = theory.de_bruijn(n, alphabet)
    grams = sorted(tuple(gram) for gram in string.unfold(0, n, 1).tolist())
    assert grams == list(itertools.product(range(alphabet), repeat=n))
    assert len(string) == theory.longest_without_repeat(n, alphabet)
    # One letter more must repeat.
    for letter in range(alphabet):
        assert theory.repeats(torch.cat([string, torch.tensor([letter])])[None], n)


@pytest.mark.parametrize(("length", "n", "alphabet"), [(2, 3, 26), (300, 3, 26), (17, 4, 2), (9, 2, 3), (5, 1, 5)])
def test_strings_without_a_repeat_have_none_are_of_their_length_and_use_the_alphabet(length, n, alphabet):
    strings = theory.strings_without_repeat(5, length, n, alphabet, seed=3)
    assert strings.shape == (5, length)
    assert strings.min() >= 0
    assert strings.max() < alphabet
    assert not theory.repeats(strings, n).any()
    assert torch.equal(strings, theory.strings_without_repeat(5, length, n, alphabet, seed=3))
    assert not torch.equal(strings, theory.strings_without_repeat(5, length, n, alphabet, seed=4))


@pytest.mark.parametrize(("length", "n", "alphabet"), [(20, 2, 26), (50, 3, 26), (6, 3, 4)])
def test_the_share_of_uniform_strings_with_a_repeat_is_under_the_bound(length, n, alphabet):
    share = float(theory.repeats(theory.uniform_strings(2_000, length, alphabet, seed=0), n).double().mean())
    assert 0 < share < theory.repeat_bound(length, n, alphabet)


def test_items_are_those_of_the_copying_task():
    from relnet.tasks import Copying

    ours, task = theory.items(torch.tensor([[7, 4, 11, 11, 14]])), Copying(length=5).question("hello")
    assert torch.equal(ours.prompts, task.prompts)
    assert torch.equal(ours.answers, task.answers)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: theory.strings_without_repeat(1, 11, n=3, alphabet=2, seed=0), "length 11: .* at most 10"),
        (lambda: theory.strings_without_repeat(0, 5, n=3, alphabet=2, seed=0), "num 0"),
        (lambda: theory.de_bruijn(0, 2), "n 0"),
        (lambda: theory.de_bruijn(2, 0), "alphabet 0"),
        (lambda: theory.all_strings(0, 2), "length 0"),
        (lambda: theory.uniform_strings(1, 0, 2, seed=0), "length 0"),
        (lambda: theory.repeats(torch.zeros(3, dtype=torch.int64), 2), r"\(number, length\)"),
    ],
)
def test_what_cannot_be_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
