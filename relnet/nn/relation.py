"""Relation mixers: MLPs over pairs of positions, averaged.

    q = W_target x + b      p = W_source x      y_j = W_out norm( mean over i of psi(mu(p_i + q_j)) ) + b_out

CausalRN sees the past, BiRN everything; Linear CausalRN and Linear BiRN use psi = exp with a pair norm that factorises, in linear time.
Source: CausalRN, sections 3 and 4, appendix C.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from relnet import ops
from relnet.nn.mixer import Mixer, MixerConfig, check_size, initialise, join_masks
from relnet.nn.state import Cache, State
from relnet.ops.checks import ACTIVATION_NAMES, PAIR_NORMS, check_choice, check_heads, check_windows
from relnet.ops.norm import arithmetic_dtype
from relnet.ops.relation import Activation, PairNorm

LinearPairNorm = Literal["approximate", "none"]


@dataclass(frozen=True)
class RelationState(State):
    """The sources p of every past token, D numbers a position, and which of them are real (None: all)."""

    source: Cache
    mask: Tensor | None


@dataclass(frozen=True)
class LinearRelationState(State):
    """log sum exp(p) of the past, (B, D), and the number of real tokens, (B,): constant in length."""

    log_sum: Tensor
    count: Tensor


class _Relation(Mixer):
    """The three linear layers of a relation, and its sum norm."""

    def __init__(self, width: int, hidden: int | None, heads: int, sum_norm: bool) -> None:
        super().__init__(width)
        hidden = width if hidden is None else hidden
        check_size("hidden", hidden)
        check_heads("hidden", hidden, heads)
        self.hidden, self.heads, self.sum_norm = hidden, heads, sum_norm
        self.target = nn.Linear(width, hidden)
        self.source = nn.Linear(width, hidden, bias=False)
        self.out = nn.Linear(hidden, width)
        initialise(self)


class _QuadraticRelation(_Relation):
    def __init__(
        self,
        width: int,
        hidden: int | None,
        heads: int,
        windows: Sequence[int | None] | None,
        activation: Activation,
        pair_norm: PairNorm,
        sum_norm: bool,
    ) -> None:
        super().__init__(width, hidden, heads, sum_norm)
        check_windows(windows, heads, self.causal)
        check_choice("activation", activation, ACTIVATION_NAMES)
        check_choice("pair_norm", pair_norm, PAIR_NORMS)
        self.windows = None if windows is None else tuple(windows)
        self.activation: Activation = activation
        self.pair_norm: PairNorm = pair_norm

    def extra_repr(self) -> str:
        return f"heads={self.heads}, windows={self.windows}, activation={self.activation}, pair_norm={self.pair_norm}"

    def _relate(self, source: Tensor, target: Tensor, mask: Tensor | None) -> Tensor:
        y = ops.relation_mean(
            source,
            target,
            activation=self.activation,
            norm=self.pair_norm,
            causal=self.causal,
            key_mask=mask,
            heads=self.heads,
            windows=self.windows,
        )
        return self.out(ops.plain_norm(y) if self.sum_norm else y)


class CausalRN(_QuadraticRelation):
    """Causal relation network layer: every token meets every earlier one in an MLP.

    width: of x; hidden: D, of the MLP (default: width); heads, windows, activation, pair_norm: as in `ops.relation_mean`;
    sum_norm: layer norm over D after the mean. pair_norm and sum_norm are the paper's pre-activation and post-reduction normalisation.
    y, state = mixer(x, state, mask) with x (B, S, width). State: D numbers a past token. Time O(S T D).
    Raises ValueError for arguments that do not fit. Source: CausalRN, section 3.

    >>> mixer = CausalRN(16)
    >>> y, state = mixer(torch.randn(2, 5, 16))
    >>> more, state = mixer(torch.randn(2, 1, 16), state)
    >>> y.shape, more.shape, state.nbytes
    (torch.Size([2, 5, 16]), torch.Size([2, 1, 16]), 768)
    """

    state_kind = RelationState

    def __init__(
        self,
        width: int,
        hidden: int | None = None,
        *,
        heads: int = 1,
        windows: Sequence[int | None] | None = None,
        activation: Activation = "exp",
        pair_norm: PairNorm = "exact",
        sum_norm: bool = True,
    ) -> None:
        super().__init__(width, hidden, heads, windows, activation, pair_norm, sum_norm)
        self.state_sizes = {"source": (self.hidden,)}

    def forward(
        self, x: Tensor, state: RelationState | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, RelationState]:
        x = self.enter(x, mask, state)
        source, target = self.source(x), self.target(x)
        past_mask, past_length = (None, 0) if state is None else (state.mask, state.source.length)
        seen = join_masks(past_mask, past_length, mask, x)
        cache = Cache(source, source.shape[1]) if state is None else state.source.append(source)
        y = self._relate(cache.entries, target, seen)
        return self.leave(y, mask), RelationState(cache, seen)


class BiRN(_QuadraticRelation):
    """Bidirectional relation network layer: every token meets every token. y = mixer(x, mask), x (B, S, width).

    Arguments as for `CausalRN`, without windows. Source: CausalRN, appendix C.

    >>> BiRN(16)(torch.randn(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    causal = False

    def __init__(
        self,
        width: int,
        hidden: int | None = None,
        *,
        heads: int = 1,
        activation: Activation = "exp",
        pair_norm: PairNorm = "exact",
        sum_norm: bool = True,
    ) -> None:
        super().__init__(width, hidden, heads, None, activation, pair_norm, sum_norm)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.enter(x, mask)
        return self.leave(self._relate(self.source(x), self.target(x), mask), mask)


class _LinearRelation(_Relation):
    def __init__(self, width: int, hidden: int | None, heads: int, pair_norm: LinearPairNorm, sum_norm: bool) -> None:
        super().__init__(width, hidden, heads, sum_norm)
        check_choice("pair_norm", pair_norm, ("approximate", "none"))
        self.pair_norm: LinearPairNorm = pair_norm

    def extra_repr(self) -> str:
        return f"heads={self.heads}, pair_norm={self.pair_norm}"

    def _relate(
        self, x: Tensor, mask: Tensor | None, state: ops.LinearRelationState | None
    ) -> tuple[Tensor, ops.LinearRelationState | None]:
        source, target = self.source(x), self.target(x)
        # A log-mean of 10 in bfloat16 is wrong by 3 %: the logs stay in the dtype of the arithmetic.
        dtype = arithmetic_dtype(source.dtype)
        log_mean, new_state = ops.linear_relation(
            source.to(dtype),
            target.to(dtype),
            norm=self.pair_norm,
            causal=self.causal,
            key_mask=mask,
            heads=self.heads,
            state=state,
        )
        if self.sum_norm:
            # One constant a row over all heads: the sum norm that follows does not see it, and exp cannot overflow.
            largest = log_mean.detach().amax(-1, keepdim=True)
            log_mean = log_mean - torch.where(largest.isinf(), 0.0, largest)
        y = log_mean.exp()
        y = (ops.plain_norm(y) if self.sum_norm else y).to(source.dtype)
        return self.out(y), new_state


class LinearCausalRN(_LinearRelation):
    """Causal relation network layer in linear time: psi = exp and a pair norm that factorises.

    pair_norm: "approximate" = p and q layer-normalised by themselves, head by head; "none" = an ablation; the others as in `CausalRN`.
    y, state = mixer(x, state, mask) with x (B, S, width). State: D numbers and a count, whatever the length. Time O(S D).
    Source: CausalRN, eq. 5 and appendix A.

    >>> y, state = LinearCausalRN(16)(torch.randn(2, 5, 16))
    >>> y.shape, state.log_sum.shape
    (torch.Size([2, 5, 16]), torch.Size([2, 16]))
    """

    state_kind = LinearRelationState

    def __init__(
        self,
        width: int,
        hidden: int | None = None,
        *,
        heads: int = 1,
        pair_norm: LinearPairNorm = "approximate",
        sum_norm: bool = True,
    ) -> None:
        super().__init__(width, hidden, heads, pair_norm, sum_norm)
        self.state_sizes = {"log_sum": (self.hidden,), "count": ()}

    def forward(
        self, x: Tensor, state: LinearRelationState | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, LinearRelationState]:
        x = self.enter(x, mask, state)
        past = None if state is None else ops.LinearRelationState(state.log_sum, state.count)
        y, new = self._relate(x, mask, past)
        assert new is not None
        return self.leave(y, mask), LinearRelationState(new.log_sum, new.count)


class LinearBiRN(_LinearRelation):
    """Bidirectional relation network layer in linear time. y = mixer(x, mask), x (B, S, width). Arguments as for `LinearCausalRN`.

    >>> LinearBiRN(16)(torch.randn(2, 5, 16)).shape
    torch.Size([2, 5, 16])
    """

    causal = False

    def __init__(
        self,
        width: int,
        hidden: int | None = None,
        *,
        heads: int = 1,
        pair_norm: LinearPairNorm = "approximate",
        sum_norm: bool = True,
    ) -> None:
        super().__init__(width, hidden, heads, pair_norm, sum_norm)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.enter(x, mask)
        y, _ = self._relate(x, mask, None)
        return self.leave(y, mask)


@dataclass(frozen=True)
class CausalRNConfig(MixerConfig):
    """Arguments of CausalRN: hidden width D (None: the model's width), heads, a window a head, psi, mu, sum norm."""

    hidden: int | None = None
    heads: int = 1
    windows: tuple[int | None, ...] | None = None
    activation: Activation = "exp"
    pair_norm: PairNorm = "exact"
    sum_norm: bool = True
    mixer: ClassVar[type[Mixer]] = CausalRN


@dataclass(frozen=True)
class BiRNConfig(MixerConfig):
    """Arguments of BiRN: hidden width D (None: the model's width), heads, psi, mu, sum norm."""

    hidden: int | None = None
    heads: int = 1
    activation: Activation = "exp"
    pair_norm: PairNorm = "exact"
    sum_norm: bool = True
    mixer: ClassVar[type[Mixer]] = BiRN


@dataclass(frozen=True)
class LinearCausalRNConfig(MixerConfig):
    """Arguments of LinearCausalRN: hidden width D (None: the model's width), heads, mu, sum norm."""

    hidden: int | None = None
    heads: int = 1
    pair_norm: LinearPairNorm = "approximate"
    sum_norm: bool = True
    mixer: ClassVar[type[Mixer]] = LinearCausalRN


@dataclass(frozen=True)
class LinearBiRNConfig(MixerConfig):
    """Arguments of LinearBiRN: hidden width D (None: the model's width), heads, mu, sum norm."""

    hidden: int | None = None
    heads: int = 1
    pair_norm: LinearPairNorm = "approximate"
    sum_norm: bool = True
    mixer: ClassVar[type[Mixer]] = LinearBiRN
