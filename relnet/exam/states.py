"""How large a state is, measured: the bytes of the tensors in it, whoever made it."""

from types import MemberDescriptorType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from relnet.exam.subject import Subject
from relnet.nn import State


def state_bytes(subject: Subject, ids: Tensor) -> int:
    """Bytes that the subject keeps of one sequence, ids (1, T), once it has read it: live entries, no room for growth."""
    return _nbytes(subject.start(ids)[1], {})


def _nbytes(value: Any, seen: dict[int, Any]) -> int:
    """Bytes of all tensors in relnet's states, in containers, and in objects such as transformers' caches; each counts once."""
    if id(value) in seen:
        return 0
    # Kept, so that nothing else gets the number of what is gone.
    seen[id(value)] = value
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
    slots = {
        name
        for kind in type(value).__mro__
        for name, slot in vars(kind).items()
        if isinstance(slot, MemberDescriptorType)
    }
    parts = [getattr(value, name) for name in slots if hasattr(value, name)]
    return sum(_nbytes(part, seen) for part in [*parts, getattr(value, "__dict__", {})])
