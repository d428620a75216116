"""SequenceModel: embeddings, residual blocks of any causal mixers, a head. The whole model in one page.

    x = embed(ids) + position          x <- x + mixer(norm(x))          x <- x + mlp(norm(x)) (Transformers)          logits = head(norm(x))

Plain norms (no affine part, eps 0), learned positions counting real tokens, head without bias.
Source: CausalRN, section 4 and appendix D.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from relnet import ops
from relnet.nn.attention import AttentionConfig, explicit_attention
from relnet.nn.generate import generate
from relnet.nn.linear_attention import LinearAttentionConfig
from relnet.nn.lstm import LSTMConfig
from relnet.nn.mixer import MixerConfig, check_size, initialise
from relnet.nn.relation import CausalRNConfig, LinearCausalRNConfig
from relnet.nn.state import State, digest_of
from relnet.ops.checks import check_choice, check_floating, check_mask

# The registry of causal mixers: the command line lists this union, the type checker knows it.
CausalMixerConfig = CausalRNConfig | LinearCausalRNConfig | AttentionConfig | LinearAttentionConfig | LSTMConfig


@dataclass(frozen=True)
class ModelConfig:
    """A SequenceModel's shape.

    vocab_size: number of tokens; width: of the residual stream; depth: number of blocks; context: longest sequence in real tokens
    (needed by learned positions; None = no limit); mixer: one configuration, or one a block; mlp: hidden width of an MLP after every mixer
    (None: no MLP); positions: "learned" = an embedding a position, "none"; checkpointing: recompute blocks in the backward pass
    (training then returns no state).
    """

    vocab_size: int
    width: int
    depth: int
    context: int | None
    mixer: CausalMixerConfig | tuple[CausalMixerConfig, ...]
    mlp: int | None = None
    positions: str = "learned"
    checkpointing: bool = False

    @property
    def mixers(self) -> tuple[MixerConfig, ...]:
        """One mixer configuration a block."""
        return self.mixer if isinstance(self.mixer, tuple) else (self.mixer,) * self.depth

    def __post_init__(self) -> None:
        """Raise ValueError for numbers that do not fit together."""
        for name in ("vocab_size", "width", "depth", "context", "mlp"):
            value = getattr(self, name)
            if value is not None or name not in ("context", "mlp"):
                check_size(name, value)
        if isinstance(self.mixer, list):
            raise ValueError("mixer is a list; give one configuration a block as a tuple")
        check_choice("positions", self.positions, ("learned", "none"))
        if self.positions == "learned" and self.context is None:
            raise ValueError("positions='learned' need context=, the longest sequence; or take positions='none'")
        if len(self.mixers) != self.depth:
            raise ValueError(
                f"{len(self.mixers)} mixers for depth={self.depth}; give one for all blocks, or one a block"
            )
        for mixer in self.mixers:
            if not isinstance(mixer, MixerConfig):
                raise ValueError(f"mixer is {mixer!r:.60}; give a configuration such as nn.CausalRNConfig()")
            if not mixer.mixer.causal or not getattr(mixer, "causal", True):
                raise ValueError(f"{type(mixer).__name__} is bidirectional; a SequenceModel needs causal mixers")


@dataclass(frozen=True)
class ModelState(State):
    """One state a block, and the number of real tokens so far: an int where no mask was ever given, else (B,) int64."""

    mixers: tuple[State, ...]
    num_tokens: int | Tensor


class MLP(nn.Module):
    """Two linear layers with a GELU (erf) between, biases in both."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.hidden = nn.Linear(width, hidden)
        self.out = nn.Linear(hidden, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.gelu(self.hidden(x)))


class Block(nn.Module):
    """x + mixer(norm(x)), then, with an MLP, x + mlp(norm(x))."""

    def __init__(self, mixer: MixerConfig, width: int, mlp: int | None) -> None:
        super().__init__()
        self.mixer = mixer.build(width)
        self.mlp = None if mlp is None else MLP(width, mlp)

    def forward(self, x: Tensor, state: State | None, mask: Tensor | None) -> tuple[Tensor, State]:
        y, new_state = self.mixer(ops.plain_norm(x), state, mask)
        x = x + y
        return (x if self.mlp is None else x + self.mlp(ops.plain_norm(x))), new_state


class SequenceModel(nn.Module):
    """A causal language model over token ids.

    logits (B, S, vocab_size), state = model(ids (B, S) int64, state=None, mask=None). mask (B, S) bool, True = real token; any integer
    may stand at a pad, and logits there are finite and unspecified. One call with T tokens equals any split into calls that hand on the
    state. last=n: logits of the last n positions only, pads counted as any other, without computing the rest; the state is the same.
    Weights are drawn from torch's global generator: torch.manual_seed before, for the same model again.

    Raises ValueError for ids outside the vocabulary, more real tokens than `context`, an empty sequence, a mask or state that does not fit,
    and a last under 1.

    >>> config = ModelConfig(vocab_size=29, width=16, depth=2, context=34, mixer=CausalRNConfig())
    >>> model = SequenceModel(config)
    >>> logits, state = model(torch.randint(29, (2, 10)))
    >>> next_logits, state = model(torch.randint(29, (2, 1)), state)
    >>> logits.shape, next_logits.shape
    (torch.Size([2, 10, 29]), torch.Size([2, 1, 29]))
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocab_size, config.width)
        learned = config.context if config.positions == "learned" else None
        self.position = None if learned is None else nn.Embedding(learned, config.width)
        self.blocks = nn.ModuleList(Block(mixer, config.width, config.mlp) for mixer in config.mixers)
        self.head = nn.Linear(config.width, config.vocab_size, bias=False)
        # How a block is recomputed in the backward pass; None: not at all.
        self.checkpoint: Callable[..., Any] | None = (
            partial(checkpoint, use_reentrant=False) if config.checkpointing else None
        )
        initialise(self, num_additions=config.depth * (1 if config.mlp is None else 2))

    @property
    def num_parameters(self) -> int:
        """Number of weights without embeddings of tokens and positions, which are looked up, not multiplied."""
        embeddings = {id(p) for m in self.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
        return sum(p.numel() for p in self.parameters() if id(p) not in embeddings)

    def forward(
        self, ids: Tensor, state: ModelState | None = None, mask: Tensor | None = None, last: int | None = None
    ) -> tuple[Tensor, ModelState | None]:
        if last is not None:
            check_size("last", last)
        x, state = self.features(ids, state, mask)
        return self.head(x if last is None else x[:, -last:]), state

    def features(
        self, ids: Tensor, state: ModelState | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, ModelState | None]:
        """Return what the head turns into logits, (B, S, width), and the state, for who needs few logits. Arguments as for the model."""
        x, num_tokens = self._embed(ids, state, mask)
        x, states = self.run_blocks(x, None if state is None else state.mixers, mask)
        return ops.plain_norm(x), None if states is None else ModelState(states, num_tokens)

    def embedded(self, ids: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return the embedded tokens, positions included, (B, S, width), and the function from there to the logits (B, S, vocab_size).

        For derivatives by the input: the function has those of every order (attention by its explicit softmax; an LSTM's end at the first
        where cuDNN computes it) and recomputes nothing. ids as for the model.

        >>> model = SequenceModel(ModelConfig(29, 16, 2, context=34, mixer=CausalRNConfig()))
        >>> x, f = model.embedded(torch.randint(29, (2, 10)))
        >>> x.shape, f(x).shape
        (torch.Size([2, 10, 16]), torch.Size([2, 10, 29]))
        """

        def logits(x: Tensor) -> Tensor:
            with explicit_attention():
                for block in self.blocks:
                    x = block(x, None, None)[0]
            return self.head(ops.plain_norm(x))

        return self._embed(ids, None, None)[0], logits

    def _embed(self, ids: Tensor, state: ModelState | None, mask: Tensor | None) -> tuple[Tensor, int | Tensor]:
        """Token and position embeddings, and the number of real tokens with these."""
        ids = self.check(ids, state, mask)
        num_tokens = 0 if state is None else state.num_tokens
        if mask is None and not isinstance(num_tokens, Tensor):
            positions = torch.arange(num_tokens, num_tokens + ids.shape[1], device=ids.device)
            num_tokens = num_tokens + ids.shape[1]
        else:
            real = torch.ones_like(ids) if mask is None else mask.long()
            before = num_tokens[:, None] if isinstance(num_tokens, Tensor) else num_tokens
            rank = real.cumsum(1) + before
            positions, num_tokens = (rank - 1).clamp(min=0), rank[:, -1].clone()
        self._check_length(num_tokens)
        x = self.embedding(ids)
        if self.position is not None:
            x = x + self.position(positions)
        return x, num_tokens

    def generate(self, ids: Tensor, max_new_tokens: int, **options: Any) -> Tensor:
        """Return the tokens that follow each prompt, (B, N) int64: `relnet.nn.generate`, where the options and errors stand.

        >>> model = SequenceModel(ModelConfig(29, 16, 2, context=34, mixer=CausalRNConfig()))
        >>> model.generate(torch.randint(29, (2, 5)), max_new_tokens=3).shape
        torch.Size([2, 3])
        """
        return generate(self, ids, max_new_tokens, **options)

    def fingerprint(self) -> str:
        """Return a hash of the configuration and all weights, 32 hexadecimal digits: of models that compute the same it is the same."""
        config = dataclasses.replace(self.config, checkpointing=False)
        return digest_of(repr(config), self.state_dict())

    def save_state(self, state: ModelState, path: str | Path) -> None:
        """Write a state of this model to a new file, for a later process to go on from.

        ValueError for an existing file, and for a state that this model cannot go on from; one of other weights is not told apart here.
        """
        self._check_state(state)
        rows = next(iter(vars(state.mixers[0]).values())).shape[0]
        for block, mixer_state in zip(self.blocks, state.mixers, strict=True):
            mixer: Any = block.mixer
            mixer.check_state(mixer_state, rows)
        state.save(path, self.fingerprint())

    def load_state(self, path: str | Path) -> ModelState:
        """Read a state that `save_state` wrote; ValueError for one of another model, other weights, another format, or no state."""
        return ModelState.load(path, self.embedding.weight.device, self.fingerprint())

    def run_blocks(
        self, x: Tensor, states: tuple[State, ...] | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, tuple[State, ...] | None]:
        """Send embedded tokens (B, S, width) through all blocks; return them and one state a block (None when checkpointing)."""
        check_floating("x", x, 3, "(batch, length, width)")
        new_states = []
        recompute = self.checkpoint if self.training and torch.is_grad_enabled() and states is None else None
        for index, block in enumerate(self.blocks):
            if recompute:
                x = recompute(lambda x, block=block: block(x, None, mask)[0], x)
                continue
            x, new_state = block(x, None if states is None else states[index], mask)
            new_states.append(new_state)
        return x, None if recompute else tuple(new_states)

    def check(self, ids: Tensor, state: ModelState | None = None, mask: Tensor | None = None) -> Tensor:
        """Refuse what does not fit (ValueError) and return ids with 0 at pads."""
        if not isinstance(ids, Tensor) or ids.dtype not in (torch.int64, torch.int32):
            kind = ids.dtype if isinstance(ids, Tensor) else type(ids).__name__
            raise ValueError(f"ids are {kind}; give an int64 tensor of token numbers, (batch, length)")
        if ids.dim() != 2 or 0 in ids.shape:
            raise ValueError(f"ids have shape {tuple(ids.shape)}; give (batch, length), both at least 1")
        check_mask("mask", mask, ids.shape[0], ids.shape[1], ids.device)
        if state is not None:
            self._check_state(state)
        if state is not None and isinstance(state.num_tokens, Tensor) and len(state.num_tokens) != len(ids):
            # Here, for (B, S) positions would be broadcast.
            raise ValueError(
                f"the state has {len(state.num_tokens)} rows and ids have {len(ids)}; take rows of it with state.select(rows)"
            )
        if mask is not None:
            ids = ids.masked_fill(~mask, 0)
        if not torch.compiler.is_compiling():
            low, high = (int(bound) for bound in ids.aminmax())
            if low < 0 or high >= self.config.vocab_size:
                wrong = low if low < 0 else high
                raise ValueError(f"id {wrong} is outside the vocabulary of 0 to {self.config.vocab_size - 1}")
        return ids

    def _check_state(self, state: Any) -> None:
        if not isinstance(state, ModelState) or len(state.mixers) != len(self.blocks):
            raise ValueError("the state is not one of this model; give the one that its last call returned")

    def _check_length(self, num_tokens: int | Tensor) -> None:
        context = self.config.context
        if context is None or (isinstance(num_tokens, Tensor) and torch.compiler.is_compiling()):
            return
        longest = int(num_tokens.max()) if isinstance(num_tokens, Tensor) else num_tokens
        if longest > context:
            raise ValueError(
                f"{longest} tokens, and the model takes at most {context}; shorten the input or build with a larger context="
            )
