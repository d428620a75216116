"""Who sits the exam: anything that gives logits for a whole sequence and token by token.

N = rows, T = tokens of a row, P = tokens of a prompt, V = vocabulary
"""

import inspect
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from relnet.exam.content import model_content


class Subject(Protocol):
    """A model as the exam sees it.

    Rows never influence each other. All rows of a call are equally long, so there is no padding and no mask.
    """

    @property
    def name(self) -> str:
        """The name that results carry."""
        ...

    @property
    def vocab_size(self) -> int:
        """Number of tokens the model knows: ids in [0, vocab_size)."""
        ...

    @property
    def limit(self) -> int | None:
        """The most tokens the model can read, None where there is no limit."""
        ...

    def logits(self, ids: Tensor) -> Tensor:
        """Logits (N, T, V) of the token after each of ids (N, T), computed at once."""
        ...

    def start(self, prompts: Tensor) -> tuple[Tensor, Any]:
        """Read prompts (N, P): logits (N, V) of the token after them, and a state to go on from."""
        ...

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Read one more token a row, (N,), from a state: logits (N, V) of the token after it, and the new state."""
        ...


class ModelSubject:
    """A model of the `relnet.nn` signature as a subject: `logits, state = model(ids, state=None)`.

    model: its `config` gives `vocab_size` and `context` (the limit), else ValueError. One that takes `last` is asked by it for the logits
        of no more than the last positions, where the others are not needed. It runs in evaluation mode and without gradients;
        the training flag of each of its modules is as before after every call. Ids are sent to its parameters' device.
    name: the name that results carry, by default the model's class.
    """

    def __init__(self, model: nn.Module, name: str | None = None):
        config = read_config(model, "vocab_size", "context")
        self.model = model
        self.name = name or type(model).__name__
        self.vocab_size: int = config.vocab_size
        self.limit: int | None = config.context
        self.device = next(model.parameters()).device
        self._takes_last = "last" in inspect.signature(model.forward).parameters

    @property
    def content(self) -> str | None:
        """A hash of the model as it is now, None where it cannot be told from others: `model_content`."""
        return model_content(self.model)

    def logits(self, ids: Tensor, first: int = 0) -> Tensor:
        """Logits (N, T - first, V) of the token after each of ids (N, T), from position `first` on."""
        return self._read_last(ids, ids.shape[1] - first)[0]

    def start(self, prompts: Tensor) -> tuple[Tensor, Any]:
        """Logits (N, V) of the token after prompts (N, P), and the model's state."""
        logits, state = self._read_last(prompts, 1)
        return logits[:, -1], state

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Logits (N, V) of the token after tokens (N,), and the model's next state."""
        logits, state = self.read(tokens[:, None], state)
        return logits[:, -1], state

    def read(self, ids: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Logits (N, T, V) of the token after each of ids (N, T), and the model's state after them."""
        with evaluating(self.model), torch.no_grad():
            return self.model(ids.to(self.device), state=state)

    def _read_last(self, ids: Tensor, last: int) -> tuple[Tensor, Any]:
        """Logits (N, last, V) of the last positions, the only ones that a model computes which takes `last`; and the state."""
        if not self._takes_last:
            logits, state = self.read(ids)
            return logits[:, -last:], state
        with evaluating(self.model), torch.no_grad():
            return self.model(ids.to(self.device), last=last)


def read_config(model: nn.Module, *names: str) -> Any:
    """The model's `config`; ValueError where it lacks one of these names, as a mixer alone does."""
    config: Any = getattr(model, "config", None)
    for name in names:
        if not hasattr(config, name):
            raise ValueError(
                f"{type(model).__name__} has no config.{name}; for a mixer or model of yours in a file, "
                "exam.load_own('FILE.py:build', vocab_size, context) makes and checks one"
            )
    return config


@contextmanager
def evaluating(model: nn.Module) -> Generator[None, None, None]:
    """Keep a model in evaluation mode; at the end each of its modules is as it was."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
