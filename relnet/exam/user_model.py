"""A module or a mixer of the user's own, from a file: `file.py:build`.

    def build(vocab_size, context): a whole model: ids (B, S) -> logits (B, S, vocab_size)
    def build(width):               a causal mixer: x (B, S, width) -> y (B, S, width); relnet puts it into blocks

Either may take `state` and return (output, state) to go on from; one that does not is given everything so far again at each
new token, and what it is given is its state. Parameters with defaults may be there besides.
"""

import hashlib
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from relnet.exam.pretrained import Shape
from relnet.exam.soundness import check_model
from relnet.exam.user_file import find_function, split, users_code
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
            said = self.module(x, state=state)
            if not isinstance(said, tuple) or len(said) != 2:
                raise ValueError("forward takes state, so it must return two things, (output, state)")
            return said
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
    """Build the model that `file.py:build` describes, and see that it can sit an exam (`check_model`).

    width, depth: of the blocks that a mixer is put into. On the device "meta" nothing is computed, so only the form is seen to.
    ValueError in one line for a file or function that is not there, for whatever its code raises, parameters other than the two forms',
    something else than a module, an output of another shape than (B, S, vocab_size), and a model that `check_model` refuses.
    """
    build = find_function(spec)
    with users_code(spec, "its parameters cannot be read"):
        parameters = inspect.signature(build).parameters.values()
    named = {p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}
    required = {p.name for p in parameters if p.name in named and p.default is p.empty}
    shape = Shape(vocab_size, context)
    make = partial(_made, build, spec)
    if required <= MODEL <= named:
        model: nn.Module = OwnModel(make(vocab_size=vocab_size, context=context), shape)
    elif required <= MIXER <= named:
        model = MixerModel(make, shape, width, depth)
    else:
        raise ValueError(
            f"{spec} takes {', '.join(sorted(required or named)) or 'nothing'}; write build(width) for a mixer, "
            "build(vocab_size, context) for a whole model"
        )
    first = next((weight for weight in model.parameters() if weight.requires_grad), None)
    if first is None:
        raise ValueError(f"{spec}: the model has no parameters that require a gradient, so there is nothing to train")
    if not first.is_meta:
        with users_code(spec, "the model cannot sit an exam"):
            check_model(model, context)
    return model


def own_name(spec: str, others: Sequence[str] = ()) -> str:
    """The name that a module of the user's has in tables: its file's; with its function, and then its folder, where one of others has it.

    >>> own_name("mine.py:build"), own_name("mine.py:one", ["mine.py:two"]), own_name("a/mine.py:build", ["b/mine.py:build"])
    ('mine', 'mine:one', 'a.mine:build')
    """
    names = _names(spec)
    taken = {name for other in others for name in _names(other)}
    return next((name for name in names if name not in taken), names[-1])


def own_source(spec: str) -> str:
    """What a module of the user's is, in words: its function and a hash of its file. ValueError as in `load_own`."""
    find_function(spec)
    _, path, function = split(spec)
    return f"{function} of a file with SHA-256 {hashlib.sha256(path.read_bytes()).hexdigest()}"


def _names(spec: str) -> list[str]:
    file, path, function = split(spec)
    if not file:
        return [spec]
    return [path.stem, f"{path.stem}:{function}", f"{path.parent.name}.{path.stem}:{function}"]


def _made(build: Callable[..., Any], spec: str, **given: int) -> nn.Module:
    with users_code(spec, "it cannot be built"):
        made = build(**given)
    if not isinstance(made, nn.Module):
        raise ValueError(f"{spec} returned {type(made).__name__}; a torch.nn.Module wanted")
    return made
