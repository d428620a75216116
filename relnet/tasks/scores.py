"""How an answer is scored: integer counts for each answer, and the two named scores of the literature made from them.

`cui2024` (arXiv 2406.16168) and `jelassi2024` (arXiv 2402.01032) are different quantities, which is why every result
carries the name of its scorer: the first gives credit for single letters and none without a well-placed <EOS>, the
second wants the whole string and does not look at the <EOS>.

    N = answers, A = tokens of the longest answer
"""

from dataclasses import dataclass

from torch import Tensor


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
