"""Whether a model can sit an exam at all: it does not look ahead, and goes on from its state as if it read all at once.

Many a layer starts at zero, and then nothing shows of what feeds it. So a model is looked at twice: as it is, in a few tokens, and
with its weights moved a little, in as many tokens as it will read.
"""

import copy
import math
from collections.abc import Generator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from relnet.exam.subject import evaluating, read_config

FEW, MANY = 8, 256
# Of the largest logit: what another order of summing changes stays far below.
TOLERANCE = 1e-3
# What a matrix is moved by makes an output of a tenth of its input's size, whatever its width: no recurrence is driven far.
NOISE = 0.1
LOOKS_AHEAD = "an output changes with a later token; only causal models can sit the exam"


def check_model(model: nn.Module, length: int | None = None) -> None:
    """Refuse a model that could not be examined fairly.

    model: of the `relnet.nn` signature, `logits, state = model(ids, state=None)`; its `config` gives `vocab_size`. A mixer of yours is put
    into such a model, and checked, by `load_own`. It runs in evaluation mode; weights, training flags and random numbers are as before.
    length: tokens that it will read, of which 256 are looked at.
    ValueError for a model without `config.vocab_size`, logits of another shape than (B, S, V), NaN ones, answers that differ from one
    time to the next, an output that changes with a later token (teacher-forced, it would read its answers) or with another row, and
    one that reading in pieces changes.

    >>> from relnet import nn
    >>> check_model(nn.SequenceModel(nn.ModelConfig(29, 16, 2, 40, nn.CausalRNConfig())), 40)
    """
    read_config(model, "vocab_size")
    length = min(length or MANY, MANY)
    with torch.random.fork_rng(devices=[]), torch.no_grad(), evaluating(model):
        fault = _fault(model, min(length, FEW)) or _fault_when_moved(model, length)
    if fault:
        raise ValueError(fault)


def check_causal(model: nn.Module) -> None:
    """Refuse a model whose answers change with later tokens; a short look at it as it is, for one that is trained or is too large to move.

    model: as for `check_model`, in evaluation mode. ValueError where the outputs before a token that is changed are others.
    """
    config: Any = model.config
    length = min(FEW, config.context or FEW)
    ids = torch.arange(length)[None] % config.vocab_size
    ids = ids.to(next(model.parameters()).device)
    changed = torch.cat([ids[:, :-1], (ids[:, -1:] + 1) % config.vocab_size], dim=1)
    with torch.no_grad():
        logits, others = model(ids)[0][:, :-1], model(changed)[0][:, :-1]
    # NaN is a fault of another kind, which the exam tells.
    if not bool(logits.isnan().any()) and not _same(others, logits):
        raise ValueError(LOOKS_AHEAD)


def _fault_when_moved(model: nn.Module, length: int) -> str:
    try:
        with _moved(model):
            fault = _fault(model, length)
            return _fault_in_float64(model, length, fault) if fault else ""
    except Exception:
        # It cannot have such weights; or not read so much, which it says again here.
        return _fault(model, length)


def _fault_in_float64(model: nn.Module, length: int, fault: str) -> str:
    """What is left of a fault without rounding, all of it where the model is bound to float32."""
    try:
        return _fault(copy.deepcopy(model).double(), length)
    except Exception:
        return fault


def _fault(model: nn.Module, length: int) -> str:
    """What later tokens, other rows or reading in pieces change, or ""; ValueError for outputs of which this cannot be said."""
    config: Any = model.config
    vocab_size = config.vocab_size
    ids = torch.randint(vocab_size, (2, length), generator=torch.Generator().manual_seed(0))
    ids = ids.to(next(model.parameters()).device)
    logits, state = model(ids)
    expected = (*ids.shape, vocab_size)
    if not isinstance(logits, Tensor) or tuple(logits.shape) != expected:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"the model made {found} of ids {tuple(ids.shape)}; logits {expected} wanted")
    if bool(logits.isnan().any()):
        raise ValueError("an output is NaN before any training")
    if not _same(model(ids)[0], logits):
        raise ValueError("in evaluation mode, an answer differs from one time to the next")
    for cut in sorted({1, length // 2, length - 1} & set(range(1, length))):
        changed = torch.cat([ids[:, :cut], (ids[:, cut:] + 1) % vocab_size], dim=1)
        if not _same(model(changed)[0][:, :cut], logits[:, :cut]):
            return LOOKS_AHEAD
    if not _same(model(ids[:1])[0], logits[:1]):
        return "an output changes with another row of the batch; each row must be read by itself"
    if state is None:
        return ""
    # As in an exam, a prompt and then single tokens; and a piece of several.
    cuts = [0, *sorted({length // 2, length - 2, length - 1} & set(range(1, length))), length]
    parts, state = [], None
    for start, stop in pairwise(cuts):
        part, state = model(ids[:, start:stop], state=state)
        parts.append(part)
    if not _same(torch.cat(parts, dim=1), logits):
        return "read in pieces, a text gives other outputs than read at once; its state, or its length, changes them"
    return ""


def _same(one: Tensor, other: Tensor) -> bool:
    finite = other[other.isfinite()]
    most = float(finite.abs().max()) if finite.numel() else 0.0
    return one.shape == other.shape and torch.allclose(one, other, rtol=0.0, atol=TOLERANCE * most)


@contextmanager
def _moved(model: nn.Module) -> Generator[None]:
    """Add noise to all weights; at the end they are as before, to the bit."""
    generator = torch.Generator().manual_seed(0)
    kept = [(weight, weight.clone()) for weight in model.parameters()]
    try:
        for weight, _ in kept:
            noise = torch.randn(weight.shape, generator=generator)
            weight += NOISE / max(1, math.prod(weight.shape[1:])) ** 0.5 * noise.to(weight)
        yield
    finally:
        for weight, before in kept:
            weight.copy_(before)
