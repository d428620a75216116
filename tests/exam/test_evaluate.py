import json
from dataclasses import asdict, replace

import pytest
import torch

from relnet import nn
from relnet.exam import ModelSubject, evaluate
from relnet.tasks import Copying, Items, Tokenised
from tests.exam.copiers import Broken, Copier, Endless, Erring, Hasty, Undecided

TASK = Copying(length=8)
MODES = ("teacher_forced", "free_running")


def test_a_copier_scores_one_in_both_modes():
    rows = evaluate(Copier(), TASK, lengths=[3, 8], seeds=[0, 1], num=10)
    assert [(row.length, row.seed, row.mode) for row in rows] == [
        (length, seed, mode) for length in (3, 8) for seed in (0, 1) for mode in MODES
    ]
    for row in rows:
        assert (row.items, row.letters, row.letters_right) == (10, 10 * row.length, 10 * row.length)
        assert (row.exact, row.stopped, row.ended, row.ties, row.score) == (10, 10, 10, 0, 1.0)
        assert row.first_errors == (-1,) * 10
        assert (row.task, row.scorer, row.subject) == ("copying-cui2024", "cui2024", "copier")


def test_stopping_stands_apart_from_copying():
    endless = evaluate(Endless(), replace(TASK, layout="jelassi2024"), lengths=[8], num=10)
    hasty = evaluate(Hasty(), TASK, lengths=[8], num=10)
    for row in endless:
        assert (row.exact, row.stopped, row.ended, row.score, row.scorer) == (10, 0, 0, 1.0, "jelassi2024")
        assert row.first_errors == (8,) * 10
    assert [row.letters_right for row in hasty] == [70, 40], "free-running, nothing follows the early <EOS>"
    for row in hasty:
        assert (row.exact, row.stopped, row.ended, row.score) == (0, 0, 10, 0.0)
        assert row.first_errors == (4,) * 10


def test_teacher_forced_success_is_free_running_success_string_by_string():
    forced, free = evaluate(Erring(one_in=20), TASK, lengths=[8], num=300)
    assert forced.first_errors == free.first_errors
    assert 0 < forced.first_errors.count(-1) < 300
    assert forced.letters_right > free.letters_right, "an error leads to others"


@pytest.mark.parametrize("kind", [Erring, Hasty, Undecided])
def test_the_result_does_not_depend_on_the_batch_size(kind):
    results = []
    for batch_size in (1, 7, 64):
        subject = kind()
        results.append(evaluate(subject, TASK, lengths=[5], seeds=[3], num=70, batch_size=batch_size))
        assert max(subject.batches) == batch_size
        assert sum(subject.batches) == 2 * (70 + 1), "in each mode one prompt more, to measure its state"
    assert results[0] == results[1] == results[2]


def test_scores_in_float64_do_not_depend_on_the_batch_size():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        mixers = (nn.CausalRNConfig(heads=2, windows=(2, None)), nn.AttentionConfig(2, positions="rope"))
        model = nn.SequenceModel(nn.ModelConfig(29, 16, 2, None, mixers, positions="none")).double()
    rows = [evaluate(ModelSubject(model), TASK, lengths=[5], num=70, batch_size=size) for size in (1, 7, 64)]
    assert rows[0] == rows[1] == rows[2]
    assert 0 < rows[0][0].letters_right < rows[0][0].letters


class Ragged(Tokenised):
    """Items of 10 and 3 tokens, and of 9 and 7."""

    name, eos, vocab_size = "ragged", Copying.EOS, 29

    def __init__(self):
        pass

    def items(self, num, length, seed, index=0):
        prompt, answer = ((10, 3), (9, 7))[index % 2]
        answers = torch.full((1, answer), 5)
        answers[:, -1] = self.eos
        return Items(torch.full((1, prompt), 4), answers)


def test_one_item_that_does_not_fit_means_that_none_is_asked():
    subject = Copier(limit=13)
    (row,) = evaluate(subject, Ragged(), lengths=[1], num=4, modes=["teacher_forced"])
    assert (row.items, row.score, row.note) == (0, None, "needs 15 tokens, the model takes at most 13")
    assert not subject.batches


def test_a_length_far_over_the_limit_is_refused_without_drawing_it():
    rows = evaluate(Copier(limit=19), TASK, lengths=[10**9], num=64)
    assert [row.note for row in rows] == ["needs 2000000002 tokens, the model takes at most 19"] * 2


def test_ties_are_counted():
    for row in evaluate(Undecided(), TASK, lengths=[5], num=20):
        assert row.ties == int((TASK.items(20, 5, seed=0).answers % 2 == 0).sum())


def test_a_length_over_the_limit_is_noted_and_the_others_examined():
    subject = Copier(limit=18)
    rows = evaluate(subject, TASK, lengths=[9, 8], num=5, modes=["free_running"])
    assert [(row.length, row.items, row.score, row.note) for row in rows] == [
        (9, 0, None, "needs 20 tokens, the model takes at most 18"),
        (8, 5, 1.0, ""),
    ]
    assert rows[0].first_errors == ()


def test_rows_are_appended_as_json_lines_as_soon_as_they_are_known(tmp_path):
    path = tmp_path / "exam.jsonl"
    seen = []

    def on_row(row):
        seen.append(row)
        assert len(path.read_text().splitlines()) == len(seen)

    rows = evaluate(Copier(limit=18), TASK, lengths=[8, 9], num=5, path=path, on_row=on_row)
    assert seen == rows
    read = [json.loads(line) for line in path.read_text().splitlines()]
    assert read == [json.loads(json.dumps(asdict(row))) for row in rows]
    assert {row["format"] for row in read} == {1}
    evaluate(Copier(), TASK, lengths=[2], num=5, path=path, modes=["free_running"])
    lines = path.read_text().splitlines()
    assert [json.loads(line) for line in lines[:4]] == read
    assert len(lines) == 5


def test_a_line_torn_by_a_kill_does_not_swallow_the_next_row(tmp_path):
    path = tmp_path / "exam.jsonl"
    path.write_text('{"task": "copy')
    evaluate(Copier(), TASK, lengths=[2], num=5, path=path)
    lines = path.read_text().splitlines()
    assert lines[0] == '{"task": "copy'
    assert [json.loads(line)["mode"] for line in lines[1:]] == list(MODES)


def test_rows_before_an_error_are_kept(tmp_path):
    path = tmp_path / "exam.jsonl"
    with pytest.raises(ValueError, match=r"broken: .* NaN"):
        evaluate(Broken(name="broken"), TASK, lengths=[2, 8], num=5, path=path)
    assert [json.loads(line)["length"] for line in path.read_text().splitlines()] == [2, 2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lengths": [8, 0]}, "length 0"),
        ({"lengths": [-1]}, "length -1"),
        ({"lengths": []}, "lengths is empty"),
        ({"seeds": []}, "seeds is empty"),
        ({"seeds": [-1]}, "seed -1"),
        ({"modes": []}, "modes is empty"),
        ({"modes": ["forced"]}, "'forced': known ones are teacher_forced, free_running"),
        ({"num": 0}, "num 0"),
        ({"batch_size": 0}, "batch_size 0"),
    ],
)
def test_impossible_exams_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        evaluate(Copier(), TASK, **{"lengths": [8], **arguments})


def test_a_model_of_too_small_a_vocabulary_is_refused_by_name():
    with pytest.raises(ValueError, match="tiny knows 28 tokens, copying-cui2024 needs 29"):
        evaluate(Copier(name="tiny", vocab_size=28), TASK, lengths=[8])
