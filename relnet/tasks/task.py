"""What training and the exam need of a task: batches to learn from, items to be asked, and how answers are scored.

    B = rows of a batch, S = tokens of a row, N = exam items, P = tokens of a prompt, A = tokens of an answer

`inputs[:, t]` is what a model reads, `targets[:, t]` what it should say next: a model's loss is the cross-entropy of
its logits at t against `targets[:, t]`, over the positions that are not IGNORE.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from relnet.tasks.scores import IGNORE as IGNORE
from relnet.tasks.scores import Scores


@dataclass(frozen=True)
class Batch:
    """One training batch, three (B, S) int64 tensors; of images inputs are (B, S, P) patches of numbers, targets (B,) classes.

    inputs: the tokens.
    targets: the token that should follow each one, IGNORE where there is no loss.
    segments: the number (0, 1, ...) of the example that a position belongs to within its row, -1 at the padding, which
        always stands at the end of a row.
    """

    inputs: Tensor
    targets: Tensor
    segments: Tensor

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        return Batch(self.inputs.to(device), self.targets.to(device), self.segments.to(device))


@dataclass(frozen=True)
class Items:
    """Exam items of one prompt length and one answer length.

    prompts: (N, P) int64.
    answers: (N, A) int64, the right answers; the last token of each is <EOS>.
    """

    prompts: Tensor
    answers: Tensor


class TrainingTask(Protocol):
    """A source of training batches, and how well the next tokens in them are said."""

    @property
    def name(self) -> str:
        """The task as it stands in results, e.g. "copying-cui2024"."""
        ...

    @property
    def vocab_size(self) -> int:
        """Number of tokens; every id lies in [0, vocab_size)."""
        ...

    @property
    def context(self) -> int:
        """Tokens in the longest sequence that `sample` gives a model."""
        ...

    def sample(self, batch: int, seed: int, index: int) -> Batch:
        """Training items index, ..., index + batch - 1: the same seed and item give the same row in any batch."""
        ...

    def accuracy(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """(B,) float64 in [0, 1]: how right each row of a training batch is, by the task's own measure.

        predictions: (B, S) int64, the most likely next token at each position; targets: the batch's.
        """
        ...


class Task(TrainingTask, Protocol):
    """One with exam items as well, and its own named scorer: `accuracy` is the mean of `grade` over a row's answers."""

    @property
    def scorer(self) -> str:
        """The name of the quantity that `grade` and `accuracy` measure; figures of different names never compare."""
        ...

    @property
    def eos(self) -> int:
        """The token that ends every answer."""
        ...

    def items(self, num: int, length: int, seed: int, index: int = 0) -> Items:
        """Exam items index, ..., index + num - 1 of exactly this length, from a stream that never meets `sample`'s."""
        ...

    def question(self, text: str) -> Items:
        """The one exam item that a user's own text poses; ValueError where it holds what the task has no token for."""
        ...

    def decode(self, ids: Tensor) -> str:
        """Tokens (S,) as readable text, special tokens by name, e.g. "abc<EOS>"; IGNORE is left out."""
        ...

    def grade(self, scores: Scores) -> Tensor:
        """(N,) float64 in [0, 1]: the task's named score of each answer."""
        ...
