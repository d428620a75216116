import pytest
import torch

from relnet.tasks import IGNORE, score
from relnet.tasks.scores import cui2024, jelassi2024, split_answers

EOS = 2
ANSWER = torch.tensor([5, 6, 7, EOS])


def score_one(*predictions):
    scores = score(torch.tensor([predictions]), ANSWER[None], EOS)
    return {name: int(value) for name, value in vars(scores).items()} | {
        "cui2024": float(cui2024(scores)),
        "jelassi2024": float(jelassi2024(scores)),
    }


def test_a_right_answer_scores_full():
    assert score_one(5, 6, 7, EOS) == {
        "letters": 3,
        "letters_right": 3,
        "exact": 1,
        "stopped": 1,
        "ended": 1,
        "first_error": -1,
        "cui2024": 1.0,
        "jelassi2024": 1.0,
    }


def test_never_stopping_costs_cui2024_all_and_jelassi2024_nothing():
    scores = score_one(5, 6, 7, 7)
    assert (scores["stopped"], scores["ended"], scores["exact"], scores["first_error"]) == (0, 0, 1, 3)
    assert (scores["cui2024"], scores["jelassi2024"]) == (0.0, 1.0)


def test_one_wrong_letter_costs_cui2024_a_share_and_jelassi2024_all():
    scores = score_one(5, 9, 7, EOS)
    assert (scores["letters_right"], scores["stopped"], scores["first_error"]) == (2, 1, 1)
    assert scores["cui2024"] == pytest.approx(2 / 3, abs=1e-15)
    assert scores["jelassi2024"] == 0.0


def test_an_early_eos_is_misplaced_even_if_one_stands_at_the_end_too():
    scores = score_one(5, EOS, 7, EOS)
    assert (scores["stopped"], scores["ended"], scores["letters_right"]) == (0, 1, 2)
    assert scores["cui2024"] == 0.0


def test_nothing_after_an_early_stop_is_right():
    scores = score_one(5, EOS, IGNORE, IGNORE)
    assert (scores["stopped"], scores["ended"], scores["letters_right"], scores["first_error"]) == (0, 1, 1, 1)


def test_predictions_at_the_padding_of_an_answer_do_not_count():
    answers = torch.tensor([[5, 6, EOS, IGNORE, IGNORE], [5, 6, 7, 8, EOS]])
    predictions = torch.tensor([[5, 6, 9, EOS, IGNORE], [5, 6, 7, 8, EOS]])
    scores = score(predictions, answers, EOS)
    assert scores.letters.tolist() == [2, 4]
    assert scores.exact.tolist() == [1, 1]
    assert scores.ended.tolist() == [0, 1]
    assert scores.stopped.tolist() == [0, 1]
    assert scores.first_error.tolist() == [2, -1]


@pytest.mark.parametrize(
    "answer",
    [[5, 6, 7, 8], [5, EOS, 7, EOS], [EOS, IGNORE, IGNORE, IGNORE], [5, IGNORE, 7, EOS], [IGNORE] * 4],
    ids=["no <EOS>", "two <EOS>", "no letters", "a hole", "nothing"],
)
def test_an_answer_that_is_not_letters_and_one_eos_is_refused(answer):
    answers = torch.stack([ANSWER, torch.tensor(answer)])
    with pytest.raises(ValueError, match="answer 1 is"):
        score(answers, answers, EOS)


def test_shapes_that_do_not_match_are_refused():
    with pytest.raises(ValueError, match="same shape"):
        score(ANSWER[None, :3], ANSWER[None], EOS)
    with pytest.raises(ValueError, match="same shape"):
        score(ANSWER, ANSWER, EOS)
    with pytest.raises(ValueError, match="same shape"):
        split_answers(ANSWER, ANSWER, EOS)


def test_splitting_finds_each_answer_of_each_row():
    targets = torch.tensor(
        [
            [IGNORE, 5, EOS, IGNORE, IGNORE, 6, 7, EOS],
            [IGNORE, IGNORE, IGNORE, 8, 9, 8, EOS, IGNORE],
        ]
    )
    predictions = 10 + torch.arange(16).view(2, 8)
    cut, answers, rows = split_answers(predictions, targets, EOS)
    assert answers.tolist() == [[5, EOS, IGNORE, IGNORE], [6, 7, EOS, IGNORE], [8, 9, 8, EOS]]
    assert cut.tolist() == [[11, 12, IGNORE, IGNORE], [15, 16, 17, IGNORE], [21, 22, 23, 24]]
    assert rows.tolist() == [0, 0, 1]


def test_a_row_without_an_answer_is_refused():
    targets = torch.tensor([[5, EOS], [IGNORE, IGNORE]])
    with pytest.raises(ValueError, match="row 1"):
        split_answers(targets, targets, EOS)
