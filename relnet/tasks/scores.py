"""How an answer is scored: integer counts for each answer, and the two named scores of the literature made from them.

`cui2024` (arXiv 2406.16168) and `jelassi2024` (arXiv 2402.01032) are different quantities, which is why every result
carries the name of its scorer: the first gives credit for single letters and none without a well-placed <EOS>, the
second wants the whole string and does not look at the <EOS>.

    N = answers, A = tokens of the longest answer, B = rows of a batch, S = tokens of a row
"""

from dataclasses import dataclass

import torch
from torch import Tensor

IGNORE = -1


@dataclass(frozen=True)
class Scores:
    """Integer counts, each (N,) int64, one entry an answer.

    letters: letters in the answer, <EOS> not counted.
    letters_right: letters predicted right.
    exact: 1 if every letter is right, whatever comes after.
    stopped: 1 if the first <EOS> predicted stands exactly where the answer's does.
    ended: 1 if <EOS> is predicted anywhere.
    first_error: index of the first wrong token, <EOS> being a token too; -1 if there is none.
    """

    letters: Tensor
    letters_right: Tensor
    exact: Tensor
    stopped: Tensor
    ended: Tensor
    first_error: Tensor


def score(predictions: Tensor, answers: Tensor, eos: int) -> Scores:
    """Count what is right in each answer.

    predictions, answers: (N, A) int64. An answer is one or more letters and then <EOS>; shorter ones are padded on the
    right with IGNORE, and what is predicted at the padding does not count. ValueError for other shapes and for an
    answer that is not letters and one <EOS>.

    >>> answers = torch.tensor([[5, 6, 7, 2], [5, 6, 7, 2]])
    >>> score(torch.tensor([[5, 6, 7, 7], [5, 9, 7, 2]]), answers, eos=2)
    ... # doctest: +NORMALIZE_WHITESPACE
    Scores(letters=tensor([3, 3]), letters_right=tensor([3, 2]), exact=tensor([1, 0]), stopped=tensor([0, 1]),
           ended=tensor([0, 1]), first_error=tensor([3, 1]))
    """
    if predictions.shape != answers.shape or answers.dim() != 2 or answers.shape[1] < 2:
        raise ValueError(
            f"predictions {tuple(predictions.shape)} and answers {tuple(answers.shape)}: "
            "the same shape (N, A) wanted, A at least 2 (a letter and <EOS>)"
        )
    counted = answers != IGNORE
    num_tokens = counted.sum(1)
    place = torch.arange(answers.shape[1], device=answers.device)
    is_eos = answers == eos
    malformed = (counted != (place < num_tokens[:, None])).any(1)
    malformed |= (is_eos != (place == num_tokens[:, None] - 1)).any(1) | (num_tokens < 2)
    if bool(malformed.any()):
        row = int(malformed.nonzero()[0])
        raise ValueError(
            f"answer {row} is {answers[row].tolist()}: letters, one <EOS> ({eos}) and then only IGNORE wanted"
        )
    right = (predictions == answers) & counted
    letters = num_tokens - 1
    letters_right = (right & ~is_eos).sum(1)
    predicted_eos = (predictions == eos) & counted
    ended = predicted_eos.any(1)
    first_eos = predicted_eos.int().argmax(1)
    wrong = counted & ~right
    first_error = torch.where(wrong.any(1), wrong.int().argmax(1), -1)
    return Scores(
        letters=letters,
        letters_right=letters_right,
        exact=(letters_right == letters).long(),
        stopped=(ended & (first_eos == letters)).long(),
        ended=ended.long(),
        first_error=first_error,
    )


def cui2024(scores: Scores) -> Tensor:
    """(N,) float64: the share of an answer's letters that is right, 0 where <EOS> is missing or misplaced."""
    return scores.letters_right.double() / scores.letters * scores.stopped


def jelassi2024(scores: Scores) -> Tensor:
    """(N,) float64: 1 where every letter of the answer is right, else 0; where the model stops is ignored."""
    return scores.exact.double()


def split_answers(predictions: Tensor, targets: Tensor, eos: int) -> tuple[Tensor, Tensor, Tensor]:
    """Cut the answers out of a training batch.

    predictions, targets: (B, S) int64; an answer is a run of targets other than IGNORE that ends with <EOS>.
    Returns predictions and answers, (N, A) padded on the right with IGNORE, and (N,) the row each one comes from.
    ValueError for other shapes and where a row holds no answer.
    """
    if predictions.shape != targets.shape or targets.dim() != 2:
        raise ValueError(
            f"predictions {tuple(predictions.shape)} and targets {tuple(targets.shape)}: the same shape (B, S) wanted"
        )
    kept = targets.flatten() != IGNORE
    tokens, predicted = targets.flatten()[kept], predictions.flatten()[kept]
    ends = (tokens == eos).long()
    answer = ends.cumsum(0) - ends
    rows = (targets == eos).nonzero()[:, 0]
    empty = torch.bincount(rows, minlength=len(targets)) == 0
    if bool(empty.any()):
        raise ValueError(f"row {int(empty.nonzero()[0])} of the targets holds no answer that ends with <EOS> ({eos})")
    num_tokens = torch.bincount(answer)
    start = num_tokens.cumsum(0) - num_tokens
    place = torch.arange(len(tokens), device=tokens.device) - start[answer]
    shape = (len(num_tokens), int(num_tokens.max()))
    cut_predictions, answers = tokens.new_full(shape, IGNORE), tokens.new_full(shape, IGNORE)
    cut_predictions[answer, place] = predicted
    answers[answer, place] = tokens
    return cut_predictions, answers, rows
