from dataclasses import dataclass, field

import pytest
import torch

from relnet import exam
from tests.exam.copiers import Copier


@dataclass(slots=True)
class Slotted:
    keys: torch.Tensor = field(default_factory=lambda: torch.zeros(10))
    __values: torch.Tensor = field(default_factory=lambda: torch.zeros(10))


class Plain:
    def __init__(self):
        self.keys, self.values = torch.zeros(10), torch.zeros(10)


class One:
    __slots__ = "both"

    def __init__(self):
        self.both = torch.zeros(20)


class Lazy(dict):
    """Makes its values as they are asked for."""

    def values(self):
        return (torch.zeros(20) for _ in range(1))


class Holding(Copier):
    def __init__(self, state):
        super().__init__()
        self.state = state

    def start(self, prompts):
        return super().start(prompts)[0], self.state


@pytest.mark.parametrize("kind", [Slotted, Plain, One, Lazy])
@pytest.mark.parametrize("num", [1, 2, 4, 9])
def test_every_tensor_of_objects_counts_once(kind, num):
    state = [kind() for _ in range(num)]
    for held in (state, tuple(state), {"twice": [state, state]}):
        assert exam.state_bytes(Holding(held), torch.zeros(1, 3, dtype=torch.int64)) == num * 80
