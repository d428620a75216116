"""How large a state is, measured: the bytes of the tensors in it, whoever made it."""

from typing import Any

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
    # A config, a dtype or a device holds no state.
    if isinstance(value, torch.nn.Module) or not hasattr(value, "__dict__") or type(value).__module__ == "torch":
        return 0
    return _nbytes(vars(value), seen)
