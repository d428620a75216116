"""The two ways to have a model answer: teacher-forced, and free-running through its state.

Teacher-forced, every token of the answer is predicted after the right ones before it, all at once. Free-running, after
the model's own: it reads the prompt once and then one token at a time, its state carrying all that came before. Both
are greedy, so up to the first wrong token they decide the same questions, and an answer that is all right
teacher-forced is all right free-running. Rounding may break that only where the two highest logits are nearly equal:
such ties are reported beside the predictions.

    N = items, P = tokens of a prompt, A = tokens of an answer, T = P + A - 1 = tokens a model reads, V = vocabulary

Logits of all positions, (N, T, V), are far larger than the model with a vocabulary of 50,000. A model that takes `last` (relnet's own,
nearly every one of transformers) computes those of the answer only, and free-running of one position; of any other one, no more than a
few rows are there at a time teacher-forced, and free-running the prompts' all at once.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from relnet.exam.subject import ModelSubject, Subject
from relnet.tasks import IGNORE, Items, Task

TIE = 1e-4


class NaNLogitsError(ValueError):
    """A subject's logits are NaN."""


# Logits there may be at once: half a gigabyte in float32.
MOST_LOGITS = 2**27


def teacher_forced(subject: Subject, items: Items) -> tuple[Tensor, Tensor]:
    """Predict each token of the answers after the right ones before it.

    Returns predictions (N, A) int64 and ties (N, A) bool, True where the two highest logits lie within 1e-4.
    NaNLogitsError (a ValueError) where the logits are NaN, naming the subject and the position.
    """
    first = items.prompts.shape[1] - 1
    ids = torch.cat([items.prompts, items.answers[:, :-1]], dim=1)
    num = max(1, MOST_LOGITS // (ids.shape[1] * subject.vocab_size))
    found = [
        _greedy(_logits_from(first, subject, some), subject, first, number * num)
        for number, some in enumerate(ids.split(num))
    ]
    predictions, ties = zip(*found, strict=True)
    return torch.cat(predictions), torch.cat(ties)


def free_running(
    subject: Subject, items: Items, ends: Callable[[Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Let the model answer by itself, token by token through its state.

    A model may say as many tokens as the right answer has and stops at <EOS> (the last token of the answers); what
    would follow is IGNORE. ends: another end than <EOS>: which rows (N,) bool are whole, by what they have said so far, (N, A) with
    IGNORE where nothing is said yet. Returns predictions (N, A) int64 and ties (N, A) bool, as `teacher_forced` does.
    NaNLogitsError (a ValueError) where the logits are NaN, naming the subject and the position.
    """
    eos = items.answers[:, -1]
    predictions = torch.full_like(items.answers, IGNORE)
    ties = torch.zeros_like(predictions, dtype=torch.bool)
    answering = torch.ones_like(eos, dtype=torch.bool)
    first, num_tokens = items.prompts.shape[1] - 1, items.answers.shape[1]
    logits, state = subject.start(items.prompts)
    for place in range(num_tokens):
        logits = torch.where(answering[:, None], logits.cpu(), 0)
        said, tied = _greedy(logits[:, None], subject, first + place)
        predictions[:, place] = torch.where(answering, said[:, 0], IGNORE)
        ties[:, place] = tied[:, 0] & answering
        answering &= said[:, 0] != eos if ends is None else ~ends(predictions)
        if place + 1 == num_tokens or not bool(answering.any()):
            break
        logits, state = subject.step(said[:, 0], state)
    return predictions, ties


def complete(subject: Subject, task: Task, text: str) -> str:
    """What the model says after a string of the user's, free-running, special tokens by name.

    At most as many tokens as the right answer has: "hello<EOS>" is a whole copy of "hello", "hellox" one that does not
    stop. ValueError for a text that the task has no tokens for or that is too long for the model.
    """
    items = task.question(text)
    refusal = too_long(subject, items.prompts.shape[1], items.answers.shape[1])
    if refusal:
        raise ValueError(f"{text!r} {refusal}: give a shorter one")
    return task.decode(free_running(subject, items)[0][0])


def too_long(subject: Subject, prompt: int, answer: int) -> str:
    """Why a prompt and answer of so many tokens are too long for the subject, or "" where they are not."""
    needed = prompt + answer - 1
    if subject.limit is None or needed <= subject.limit:
        return ""
    return f"needs {needed} tokens, the model takes at most {subject.limit}"


def _logits_from(first: int, subject: Subject, ids: Tensor) -> Tensor:
    """Logits of positions first, first + 1, ...: of a model's others not even its head is computed, where it allows."""
    found = subject.logits(ids, first) if isinstance(subject, ModelSubject) else subject.logits(ids)[:, first:]
    return found.cpu()


def _greedy(logits: Tensor, subject: Subject, first: int, first_row: int = 0) -> tuple[Tensor, Tensor]:
    """The most likely token of logits (N, T, V), and whether the runner-up is within TIE; first, first_row: of T = 0, of N = 0."""
    undefined = logits.isnan().any(-1)
    if bool(undefined.any()):
        row, place = undefined.nonzero()[0].tolist()
        raise NaNLogitsError(
            f"{subject.name}: the logits at position {first + place} of row {first_row + row} are NaN; "
            "the weights may be damaged or the training may have diverged"
        )
    highest = logits.topk(2, dim=-1).values.double()
    # Not `gap <= TIE`: two infinite logits have the gap NaN and are tied.
    return logits.argmax(-1), ~(highest[..., 0] - highest[..., 1] > TIE)
