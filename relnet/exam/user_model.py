"""A module or a mixer of the user's own, from a file: `file.py:build`.

    def build(vocab_size, context): a whole model: ids (B, S) -> logits (B, S, vocab_size)
    def build(width):               a causal mixer: x (B, S, width) -> y (B, S, width); relnet puts it into blocks

Either may take `state` and return (output, state) to go on from; one that does not is given everything so far again at each
new token, and what it is given is its state.
"""

import hashlib
import importlib.util
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from relnet.exam.pretrained import Shape
from relnet.nn import initialise
from relnet.nn.model import MLP
from relnet.ops import plain_norm

MODEL = {"vocab_size", "context"}
MIXER = {"width"}


class Continued(nn.Module):
    """A causal module over sequences, called as `y, state = module(x, state=None)`, whether or not it has a state of its own."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.stateful = "state" in inspect.signature(module.forward).parameters

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """What the module says to x, which goes on from what the state has seen."""
        if self.stateful:
            return self.module(x, state=state)
        seen = x if state is None else torch.cat([state, x], dim=1)
        said = self.module(seen)
        y = said[0] if isinstance(said, tuple) else said
        return (y[:, -x.shape[1] :] if isinstance(y, Tensor) and y.dim() == 3 else y), seen


class OwnModel(nn.Module):
    """A whole model of the user's."""

    def __init__(self, model: nn.Module, config: Shape) -> None:
        super().__init__()
        self.model, self.config = Continued(model), config

    def forward(self, ids: Tensor, state: Any = None, mask: None = None) -> tuple[Tensor, Any]:
        """Logits, and the state to go on from."""
        return self.model(ids, state)


class MixerModel(nn.Module):
    """Mixers of the user's in blocks x + mixer(norm(x)), x + mlp(norm(x)), between an embedding and a head, without positions.

    Plain norms; the MLP is of 4 x width. What the user's mixer initialises stays as it is.
    """

    def __init__(self, build: Callable[..., nn.Module], config: Shape, width: int, depth: int) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, width)
        self.mlps = nn.ModuleList(MLP(width, 4 * width) for _ in range(depth))
        self.head = nn.Linear(width, config.vocab_size, bias=False)
        initialise(self, num_additions=2 * depth)
        self.mixers = nn.ModuleList(Continued(build(width=width)) for _ in range(depth))

    @property
    def num_parameters(self) -> int:
        """Number of weights without the embedding, as for every model of relnet."""
        return sum(p.numel() for p in self.parameters()) - self.embedding.weight.numel()

    def forward(self, ids: Tensor, state: Any = None, mask: None = None) -> tuple[Tensor, Any]:
        """Logits, and the state to go on from."""
        x = self.embedding(ids)
        states = []
        for number, (mixer, mlp) in enumerate(zip(self.mixers, self.mlps, strict=True)):
            y, new = mixer(plain_norm(x), None if state is None else state[number])
            if not isinstance(y, Tensor) or y.shape != x.shape:
                found = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
                raise ValueError(f"the mixer made {found} of x {tuple(x.shape)}; the same shape wanted")
            x = x + y
            x = x + mlp(plain_norm(x))
            states.append(new)
        return self.head(plain_norm(x)), tuple(states)


def load_own(spec: str, vocab_size: int, context: int, width: int = 192, depth: int = 12) -> nn.Module:
    """Build the model that `file.py:build` describes, and see that it can sit an exam.

    width, depth: of the blocks that a mixer is put into. ValueError for a file or function that is not there, parameters other than
    the two forms', an output of another shape than (B, S, vocab_size), and a model whose outputs depend on later tokens.
    """
    build = _find(spec)
    wanted = set(inspect.signature(build).parameters)
    shape = Shape(vocab_size, context)
    if wanted == MIXER:
        model: nn.Module = MixerModel(build, shape, width, depth)
    elif wanted == MODEL:
        model = OwnModel(build(vocab_size=vocab_size, context=context), shape)
    else:
        raise ValueError(
            f"{spec} takes {', '.join(sorted(wanted)) or 'nothing'}; write build(width) for a mixer, "
            "build(vocab_size, context) for a whole model"
        )
    _check(model, spec, shape)
    return model


def own_name(spec: str) -> str:
    """The name that a module of the user's has in tables: its file's."""
    return Path(spec.rpartition(":")[0]).stem


def own_source(spec: str) -> str:
    """What a module of the user's is, in words: its function and a hash of its file. ValueError as in `load_own`."""
    _find(spec)
    file, _, function = spec.rpartition(":")
    return f"{function} of a file with SHA-256 {hashlib.sha256(Path(file).read_bytes()).hexdigest()}"


def _find(spec: str) -> Callable[..., nn.Module]:
    file, _, function = spec.rpartition(":")
    path = Path(file)
    if not path.is_file() or not function:
        raise ValueError(f"{spec}: no such file; write --model FILE.py:FUNCTION")
    module_spec = importlib.util.spec_from_file_location(f"relnet_user_{path.stem}", path)
    if module_spec is None or module_spec.loader is None:
        raise ValueError(f"{file} is no Python file; write --model FILE.py:FUNCTION")
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    found = getattr(module, function, None)
    if not callable(found):
        raise ValueError(f"{file} has no function {function!r}")
    return found


def _check(model: nn.Module, spec: str, shape: Shape) -> None:
    """Refuse outputs of another shape, and a model that looks ahead: teacher-forced, it would read its answers."""
    length = min(8, shape.context or 8)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        training = model.training
        model.eval()
        ids = torch.randint(shape.vocab_size, (2, length), generator=torch.Generator().manual_seed(0))
        try:
            logits = model(ids)[0]
            other = model(torch.cat([ids[:, :-1], (ids[:, -1:] + 1) % shape.vocab_size], dim=1))[0]
        except ValueError as error:
            raise ValueError(f"{spec}: {error}") from None
        model.train(training)
    expected = (*ids.shape, shape.vocab_size)
    if not isinstance(logits, Tensor) or tuple(logits.shape) != expected:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ValueError(f"{spec}: the model made {found} of ids {tuple(ids.shape)}; logits {expected} wanted")
    if not torch.allclose(logits[:, :-1], other[:, :-1], rtol=1e-4, atol=1e-4):
        raise ValueError(f"{spec}: an output changes with a later token; only causal models can sit the exam")
