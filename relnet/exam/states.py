"""How large a state is, measured: the bytes of the tensors in it, whoever made it."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relnet.exam.subject import Subject
from relnet.nn import State


def state_bytes(subject: Subject, ids: Tensor) -> int:
    """Bytes that the subject keeps of one sequence, ids (1, T), once it has read it: live entries, no room for growth."""
    return _nbytes(subject.start(ids)[1], set())


def _nbytes(value: Any, seen: set[int]) -> int:
    """Bytes of all tensors in relnet's states, in containers, and in objects such as transformers' caches; each counts once."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    if isinstance(value, State):
        return value.nbytes
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, dict):
        return sum(_nbytes(part, seen) for part in value.values())
    if isinstance(value, list | tuple | set):
        return sum(_nbytes(part, seen) for part in value)
    if isinstance(value, np.ndarray):
        return value.nbytes
    # A config, a dtype or a device holds no state.
    if isinstance(value, torch.nn.Module | type) or type(value).__module__ == "torch":
        return 0
    slots = [name for kind in type(value).__mro__ for name in _names(getattr(kind, "__slots__", ()))]
    parts = [getattr(value, name) for name in slots if hasattr(value, name)]
    return _nbytes(parts, seen) + _nbytes(getattr(value, "__dict__", {}), seen)


def _names(slots: str | Iterable[str]) -> Iterable[str]:
    return (slots,) if isinstance(slots, str) else slots
