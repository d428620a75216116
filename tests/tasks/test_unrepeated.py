from itertools import pairwise

import pytest
import torch

from relnet.tasks import UnrepeatedCopying
from relnet.tasks.draws import Stream, streams


def strings(task, items):
    return [task.decode(answer).removesuffix("<EOS>") for answer in items.answers]


def trained(task, num):
    batch = task.sample(num, seed=0, index=0)
    return [task.decode(row).split("<BOS>")[1].split("<SEP>")[0] for row in batch.inputs]


def repeats(string, ngram):
    ngrams = [string[i : i + ngram] for i in range(len(string) - ngram + 1)]
    return len(set(ngrams)) < len(ngrams)


def test_most_training_strings_repeat_3_grams_and_few_exam_strings_do():
    task = UnrepeatedCopying(length=20)
    assert sum(repeats(string, 3) for string in trained(task, 400)) > 200
    assert sum(repeats(string, 3) for string in strings(task, task.items(400, 20, seed=0))) < 20
    assert not any(repeats(string, 4) for string in trained(task, 400))


def test_training_strings_have_the_alphabets_letters_and_exam_strings_all():
    task = UnrepeatedCopying(length=30, alphabets=(3, 5))
    sizes = [len(set(string)) for string in trained(task, 100)]
    assert max(sizes) == 5
    assert 3 in sizes
    assert len(set("".join(trained(task, 100)))) == 26
    assert min(len(set(string)) for string in strings(task, task.items(100, 30, seed=0))) > 10


def test_a_row_holds_one_example_of_every_length_from_the_shortest():
    task = UnrepeatedCopying(length=20, layout="jelassi2024", min_length=5)
    batch = task.sample(300, seed=0, index=0)
    assert (batch.segments.amax(1) == 0).all()
    lengths = (batch.targets != -1).sum(1) - 1
    assert torch.equal(lengths.unique(), torch.arange(5, 21))


def test_a_nearly_used_up_alphabet_still_gives_strings():
    # Two letters have 16 4-grams, and walks run into dead ends.
    task = UnrepeatedCopying(length=8, alphabets=(2,))
    assert not any(repeats(string, 4) for string in trained(task, 200))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alphabets": (3, 27)}, r"alphabets \(3, 27\): 27 is no number of letters from 1 to 26"),
        ({"alphabets": (2,), "length": 20}, r"alphabets \(2,\): too few letters for strings of 20"),
        ({"ngram": 1}, "ngram 1: at least 2"),
        ({"before": -1}, "before -1: 0 letters or more"),
        ({"openings": 1.5}, "openings 1.5: a share from 0 to 1"),
    ],
)
def test_wrong_settings_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        UnrepeatedCopying(**changes)


def test_rows_that_are_openings_ask_for_the_first_letter_only():
    task = UnrepeatedCopying(length=6, layout="jelassi2024", min_length=3, openings=0.25)
    whole = UnrepeatedCopying(length=6, layout="jelassi2024", min_length=3)
    batch, other = task.sample(400, seed=0, index=0), whole.sample(400, seed=0, index=0)
    opening = ~(batch.targets == task.EOS).any(1)
    assert 60 < int(opening.sum()) < 140
    for tokens, targets, full in zip(batch.inputs[opening], batch.targets[opening], other.inputs[opening], strict=True):
        question = task.decode(tokens).replace("<EOS>", "")
        assert task.decode(full).startswith(question)
        assert task.decode(targets) == question.removeprefix("<BOS>")[0]
    assert torch.equal(batch.targets[~opening], other.targets[~opening])
    wrong = torch.where(batch.targets == -1, 5, batch.targets)
    assert (task.accuracy(wrong, batch.targets) == 1).all()
    wrong[0, (batch.targets[0] != -1).nonzero()[0]] += 1
    assert task.accuracy(wrong, batch.targets).tolist() == [0.0] + [1.0] * 399
    assert torch.equal(task.items(5, 6, seed=0).prompts, whole.items(5, 6, seed=0).prompts)


def test_letters_before_a_string_belong_to_nothing():
    task = UnrepeatedCopying(length=6, layout="jelassi2024", min_length=3, ngram=2, alphabets=(8,), before=9)
    whole = UnrepeatedCopying(length=6, layout="jelassi2024", min_length=3, ngram=2, alphabets=(8,))
    batch, other = task.sample(200, seed=0, index=0), whole.sample(200, seed=0, index=0)
    assert batch.inputs.shape[1] == task.context == whole.context + 9
    lengths = set()
    for tokens, targets, plain in zip(batch.inputs, batch.targets, other.inputs, strict=True):
        letters, row = task.decode(tokens).split("<BOS>")
        lengths.add(len(letters))
        string, answer = row.replace("<EOS>", "").split("<SEP>")
        assert answer == string
        assert task.decode(plain).startswith(f"<BOS>{string}<SEP>")
        assert task.decode(targets) == f"{string}<EOS>"
        assert not {string[i : i + 2] for i in range(len(string) - 1)} & {
            letters[i : i + 2] for i in range(len(letters) - 1)
        }
    assert lengths == set(range(10))
    assert torch.equal(task.items(5, 6, seed=0).prompts, whole.items(5, 6, seed=0).prompts)


def test_letters_before_a_string_are_found_where_chance_would_never_find_them(monkeypatch):
    drawn, below = 0, Stream.below

    def counted(stream, n, num):
        nonlocal drawn
        drawn += num
        assert drawn < 1_000_000, "drawn anew without end"
        return below(stream, n, num)

    monkeypatch.setattr(Stream, "below", counted)
    task = UnrepeatedCopying(length=150, layout="jelassi2024", min_length=150, ngram=2, before=80)
    lengths = set()
    for row in task.sample(100, seed=0, index=0).inputs.tolist():
        letters, string = row[: row.index(task.BOS)], row[row.index(task.BOS) + 1 : row.index(task.SEP)]
        assert not set(pairwise(letters)) & set(pairwise(string))
        lengths.add(len(letters))
    assert min(lengths) < 5
    assert max(lengths) > 75


def test_letters_before_a_string_end_where_it_leaves_no_next_one():
    # Every letter follows an "a", so only the last letter before the string may be one.
    task = UnrepeatedCopying(length=52, layout="jelassi2024", ngram=2, before=80)
    string = task.encode("a" + "a".join("abcdefghijklmnopqrstuvwxyz") + "a").tolist()
    for stream in streams(50, seed=0, index=0):
        letters = task._letters_before(stream, string)
        assert not set(pairwise(letters)) & set(pairwise(string))


def test_letters_before_a_string_share_its_shorter_n_grams_more_often_than_chance():
    task = UnrepeatedCopying(length=20, layout="jelassi2024", min_length=20, before=80, alphabets=(26,))
    shared = 0
    for row in task.sample(50, seed=0, index=0).inputs.tolist():
        start = row.index(task.BOS)
        before, string = row[:start], row[start + 1 : start + 21]
        threes = {tuple(string[i : i + 3]) for i in range(18)}
        shared += any(tuple(before[i : i + 3]) in threes for i in range(len(before) - 2))
    # Of 50 rows about 2 by chance; three in four have some planted.
    assert shared >= 25
