"""How well a model predicts a text: bits per byte and perplexity over all of it, every token predicted exactly once.

The text is cut into windows of C tokens that begin every s tokens (stride s <= C; s = C: they do not overlap). A window predicts
the token after each of its own, of which those count that no window before it has predicted. With a state carried on, a
model reads the text as one sequence, C tokens a call. The very first token, which nothing precedes, costs log2 V bits in any case.

    N = tokens of the text, V = vocabulary
    bits per byte = sum of -log2 p(token) / bytes of the text          perplexity = exp(mean of -ln p(token)) = 2^(bits / N)

Cost: about N C / s tokens read; memory of batch_size windows, whatever N.
"""

import json
import math
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from relnet.exam.decoding import MOST_LOGITS
from relnet.exam.subject import Subject
from relnet.tasks import Span

SAMPLE_TEMPERATURE = 0.8


class Reader(Subject, Protocol):
    """A subject that can go on reading several tokens from a state."""

    def read(self, ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Logits (N, T, V) of the token after each of ids (N, T), and the state after them."""
        ...


@dataclass(frozen=True)
class TextRow:
    """How well a subject predicts a text.

    tokens, bytes: of the text. bits: the sum of -log2 p over all tokens. stride: see the module; 0 where the state was carried on.
    state_bytes: of a state after `context` tokens, one row. prompt, sample: the subject's own text after a prompt.
    """

    task: str
    subject: str
    context: int
    stride: int
    tokens: int
    bytes: int
    bits: float
    state_bytes: int = 0
    prompt: str = ""
    sample: str = ""
    format: int = 1

    @property
    def bits_per_byte(self) -> float:
        """Bits a byte of the text."""
        return self.bits / self.bytes

    @property
    def perplexity(self) -> float:
        """Perplexity a token."""
        return 2 ** (self.bits / self.tokens)

    def to_json(self) -> str:
        """The row as one line of JSON."""
        return json.dumps({**asdict(self), "bits_per_byte": self.bits_per_byte, "perplexity": self.perplexity})


def evaluate_text(
    subject: Reader,
    span: Span,
    *,
    context: int,
    stride: int | None = None,
    carry: bool = False,
    batch_size: int = 16,
    task: str = "text",
) -> TextRow:
    """Measure a subject on a text, all of it.

    context: tokens a window; stride: between the beginnings of windows, None: context. carry: hand the state on instead, through
    the whole text. batch_size: windows at once, which changes the result by rounding only; fewer where the vocabulary is so large that
    their logits would take over half a gigabyte.

    ValueError for a stride or batch_size out of range, a context over the subject's limit, a stride together with carry, carry with a
    subject that has a limit shorter than the text, an empty text, and NaN logits.
    """
    text = span.tokens
    stride = context if stride is None else stride
    if not 1 <= stride <= context:
        raise ValueError(f"stride {stride}: from 1 to the context ({context}) wanted")
    if batch_size < 1 or len(text) == 0:
        raise ValueError(f"batch_size {batch_size}, {len(text)} tokens of text: at least 1 of each wanted")
    if carry and stride != context:
        raise ValueError(f"stride {stride}: with a state carried on there are no windows; leave it out")
    if subject.limit is not None and (len(text) - 1 if carry else context) > subject.limit:
        what = "the whole text with its state" if carry else f"a context of {context}"
        raise ValueError(f"{subject.name} takes at most {subject.limit} tokens, too few for {what}")
    nats = math.log(subject.vocab_size)
    nats += _carried(subject, text, context) if carry else _in_windows(subject, text, context, stride, batch_size)
    if math.isnan(nats):
        raise ValueError(
            f"{subject.name}: its logits are NaN; the weights may be damaged or the training may have diverged"
        )
    bits = nats / math.log(2)
    return TextRow(task, subject.name, context, 0 if carry else stride, len(text), span.num_bytes, bits)


def _in_windows(subject: Subject, text: np.ndarray, context: int, stride: int, batch_size: int) -> float:
    batch_size = min(batch_size, max(1, MOST_LOGITS // (context * subject.vocab_size)))
    # Of the first window all predictions count, of each later one the last `stride`.
    last = len(text) - 1
    if last == 0:
        return 0.0
    starts = range(0, max(0, last - context) + 1, stride)
    nats = 0.0
    for first in range(0, len(starts), batch_size):
        some = starts[first : first + batch_size]
        windows = np.stack([text[start : start + context + 1] for start in some])
        losses = _losses(subject.logits(_ids(windows[:, :-1])), _ids(windows[:, 1:]))
        nats += sum(
            float(row[0 if start == 0 else context - stride :].sum()) for start, row in zip(some, losses, strict=True)
        )
    predicted = starts[-1] + min(context, last) + 1
    if predicted < len(text):
        window = _ids(np.asarray(text[starts[-1] + stride :])[None])
        nats += float(_losses(subject.logits(window[:, :-1]), window[:, 1:])[0, context - stride :].sum())
    return nats


def _carried(subject: Reader, text: np.ndarray, context: int) -> float:
    nats, state = 0.0, None
    for start in range(0, len(text) - 1, context):
        window = _ids(np.asarray(text[start : start + context + 1])[None])
        logits, state = subject.read(window[:, :-1], state)
        nats += float(_losses(logits, window[:, 1:]).sum())
    return nats


def _ids(tokens: np.ndarray) -> Tensor:
    return torch.from_numpy(tokens.astype(np.int64))


def _losses(logits: Tensor, targets: Tensor) -> Tensor:
    """(N, T) float64: -ln p of each target."""
    exact = logits.float() if logits.dtype == torch.bfloat16 else logits
    losses = F.cross_entropy(exact.flatten(0, 1), targets.flatten().to(logits.device), reduction="none")
    return losses.double().view(targets.shape).cpu()


def sample_text(
    subject: Subject, prompt: Tensor, num_tokens: int, temperature: float = SAMPLE_TEMPERATURE, seed: int = 0
) -> Tensor:
    """Draw `num_tokens` tokens after a prompt (P,), one after the other through the state; fewer where the subject's limit is reached.

    Returns them, (S,) int64. temperature: of the softmax. ValueError for a prompt that leaves no room.
    """
    if subject.limit is not None:
        num_tokens = min(num_tokens, subject.limit - len(prompt) + 1)
    if num_tokens < 1:
        raise ValueError(
            f"a prompt of {len(prompt)} tokens leaves no room: {subject.name} takes at most {subject.limit}"
        )
    generator = torch.Generator().manual_seed(seed)
    logits, state = subject.start(prompt[None])
    said: list[int] = []
    while True:
        chances = (logits[0].double().cpu() / temperature).softmax(-1)
        said.append(int(torch.multinomial(chances, 1, generator=generator)))
        if len(said) == num_tokens:
            return torch.tensor(said)
        logits, state = subject.step(torch.tensor(said[-1:]), state)
