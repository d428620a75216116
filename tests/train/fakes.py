"""A task and a model that learn in a second, and short names for training them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from relnet.tasks import IGNORE, Batch
from relnet.train import CurvaturePenalty, TrainConfig, TrainResult, train
from tests.assertions import assert_same_bits

VOCABULARY, LENGTH = 8, 6
# Exact by as many steps as the matrix has rows, so that no random start is left to differ.
EXACT = CurvaturePenalty(0.3, 0.2, iters=LENGTH * VOCABULARY)


@dataclass
class SuccessorTask:
    """What follows a token is the next number; the loss starts at another place in each string."""

    vocab_size: int = VOCABULARY
    context: int = LENGTH

    def sample(self, batch: int, seed: int, index: int) -> Batch:
        rows = [np.random.Generator(np.random.Philox(key=[seed, index + row])) for row in range(batch)]
        inputs = torch.stack([torch.from_numpy(row.integers(0, VOCABULARY, LENGTH)) for row in rows])
        starts = torch.tensor([int(row.integers(0, LENGTH)) for row in rows])
        ignored = torch.arange(LENGTH) < starts[:, None]
        targets = ((inputs + 1) % VOCABULARY).masked_fill(ignored, IGNORE)
        return Batch(inputs, targets, torch.zeros_like(inputs))

    def accuracy(self, predictions: Tensor, targets: Tensor) -> Tensor:
        counted = targets != IGNORE
        return ((predictions == targets) & counted).sum(1).double() / counted.sum(1)


class TinyModel(nn.Module):
    """Embedding, dropout, linear layer, the readout tied to the embedding if so wished."""

    def __init__(self, width: int = 8, dropout: float = 0.1, tied: bool = False):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, width)
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.Linear(width, width)
        self.readout = nn.Linear(width, VOCABULARY, bias=False)
        if tied:
            self.readout.weight = self.embedding.weight

    def forward(self, ids: Tensor, state: None = None, mask: Tensor | None = None) -> tuple[Tensor, None]:
        x, logits = self.embedded(ids)
        return logits(x), None

    def embedded(self, ids: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        return self.embedding(ids), lambda x: self.readout(torch.tanh(self.hidden(self.dropout(x))))


def tiny_model(**options: Any) -> TinyModel:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return TinyModel(**options)


def tiny_config(**changes: Any) -> TrainConfig:
    settings: dict[str, Any] = {"steps": 20, "batch_size": 8, "lr": 1e-2, "warmup_steps": 4, "schedule": "cosine"}
    return TrainConfig(**{**settings, "stop_accuracy": None, "checkpoint_every": 5, **changes})


def train_tiny(folder: Path, model: nn.Module | None = None, **options: Any) -> TrainResult:
    """Train on the CPU unless said otherwise; `options` are train's, or settings of the config."""
    options.setdefault("device", "cpu")
    ours = ("device", "on_start", "on_step", "validate", "penalty", "resume", "trackers")
    arguments = {name: options.pop(name) for name in ours if name in options}
    config = tiny_config(**options)
    return train(model or tiny_model(), SuccessorTask(), config, folder, **arguments)


def assert_same_weights(one, two):
    for (name, tensor), other in zip(one.state_dict().items(), two.state_dict().values(), strict=True):
        assert_same_bits(tensor, other, name)


def checkpoints(folder):
    return sorted(path.name for path in (folder / "checkpoints").iterdir())
