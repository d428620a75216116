"""Relations in linear time: psi = exp and a pair norm that factorises ("none" or "approximate"), without windows.

    sum_{i<=j} exp(p_i + q_j) = exp(q_j) o sum_{i<=j} exp(p_i)
    log y_j = q_j + m_j + log S_j - log |V_j|          m_j the running maximum of p, S_j = sum_i exp(p_i - m_j)

In fused C++ kernels (`relation_linear_cpu.py`) or in PyTorch (`linear_sums.py`). Time O(B T D), memory O(B T D).
State of the causal form: log sum_i exp(p_i) so far, and the count.
Source: CausalRN, eq. 5 and appendix A; docs/mathematics.md, section 6.
"""

from typing import Literal

from torch import Tensor

from relnet.ops import relation_linear_cpu
from relnet.ops.checks import check_relation
from relnet.ops.linear_sums import (
    LinearRelationState,
    log_mean_by,
    log_sums,
    log_sums_reference,
    mean_by_sums,
)
from relnet.ops.pairs import Pairs
from relnet.ops.prepare import arithmetic, normalise_heads, without_autocast
from relnet.ops.reference_mode import in_reference, refuse_transforms

LINEAR_BACKENDS = ("auto", "reference", "cpu")


def choose(source: Tensor, backend: str) -> tuple[str, str]:
    """Return which way `linear_relation` goes ("reference", "cpu" or "plain") and why; ValueError for one that cannot be had."""
    reason = relation_linear_cpu.refuses(source)
    if backend == "cpu" and reason:
        raise ValueError(f"backend 'cpu' cannot be used: {reason}; use backend='auto'")
    if in_reference():
        return "reference", "the definition, all pairs at once (inside use_reference())"
    if backend == "reference":
        return "reference", "the definition, all pairs at once (asked for)"
    if reason is None:
        return "cpu", "one pass in fused C++ kernels" + (" (asked for)" if backend == "cpu" else "")
    return "plain", f"running maximum and sum in PyTorch; cpu: {reason}"


def relation_mean_linear(source: Tensor, target: Tensor, key_mask: Tensor | None, causal: bool) -> Tensor:
    """Return the mean of exp(p_i + q_j) over valid sources; source (B, T, D), target (B, S, D) -> (B, S, D)."""
    if relation_linear_cpu.refuses(source) is None:
        return relation_linear_cpu.mean(source, target, key_mask, causal)
    p, q = arithmetic(source, target, key_mask)
    return mean_by_sums(p, q, Pairs(q.shape[1], p.shape[1], causal, key_mask, (), p.device)).to(source.dtype)


def linear_relation(
    source: Tensor,
    target: Tensor,
    *,
    norm: Literal["approximate", "none"] = "none",
    causal: bool = True,
    key_mask: Tensor | None = None,
    heads: int = 1,
    state: LinearRelationState | None = None,
    backend: Literal["auto", "reference", "cpu"] = "auto",
) -> tuple[Tensor, LinearRelationState | None]:
    """Return the log of the relation mean with psi = exp, in linear time, and the state to go on from.

    source: p, (B, T, D); target: q, (B, S, D); S <= T when causal, S = T with a state. Returns log y (B, S, D), -inf for a target without a
    source, and when causal the state after the last source: log_sum (B, D) in the arithmetic dtype and count (B,) int64, constant in T.
    norm: "approximate" layer-normalises p and q by themselves, head by head; "none" takes them as they are.
    backend: "auto", "reference" (the definition, all pairs) or "cpu" (fused kernels); see `explain` with op="linear_relation".

    Raises ValueError as `relation_mean` does, and for a state with causal=False, of other shapes, or with S != T.
    Source: CausalRN, eq. 5 and appendix A.

    >>> source, target = torch.randn(2, 6, 8), torch.randn(2, 6, 8)
    >>> whole, _ = linear_relation(source, target)
    >>> first, state = linear_relation(source[:, :4], target[:, :4])
    >>> rest, _ = linear_relation(source[:, 4:], target[:, 4:], state=state)
    >>> torch.allclose(whole, torch.cat([first, rest], dim=1), atol=1e-5)
    True
    """
    check_linear_relation(source, target, norm, causal, key_mask, heads, backend)
    refuse_transforms("linear_relation")
    if state is not None:
        _check_state(state, source, target, causal)
    name, _ = choose(source, backend)
    with without_autocast(source.device):
        p, q = source, target
        if name != "cpu" or norm == "approximate":
            p, q = arithmetic(source, target, key_mask)
        if norm == "approximate":
            p, q = normalise_heads(p, heads), normalise_heads(q, heads)
        if name == "cpu":
            past = (None, None) if state is None else (state.log_sum.float(), state.count)
            log_mean, log_sum, count = relation_linear_cpu.log_mean(p, q, key_mask, *past, causal)
            new_state = LinearRelationState(log_sum, count) if causal else None
        else:
            by = log_sums_reference if name == "reference" else log_sums
            log_mean, new_state = log_mean_by(by, p, q, key_mask, state, causal)
        return log_mean.to(source.dtype), new_state


def check_linear_relation(
    source: Tensor, target: Tensor, norm: str, causal: bool, key_mask: Tensor | None, heads: int, backend: str
) -> None:
    """Refuse arguments of `linear_relation` that do not fit together."""
    if norm == "exact" or norm == "rms":
        raise ValueError(
            f"norm {norm!r} does not factorise; linear_relation takes 'approximate' or 'none', relation_mean takes all"
        )
    check_relation(source, target, "exp", norm, causal, key_mask, heads, None, backend, LINEAR_BACKENDS)


def _check_state(state: LinearRelationState, source: Tensor, target: Tensor, causal: bool) -> None:
    rows, num_sources, width = source.shape
    if not isinstance(state, LinearRelationState):
        raise ValueError(
            f"state is a {type(state).__name__}; give the LinearRelationState that linear_relation returned"
        )
    if not causal:
        raise ValueError("a state needs causal=True: a bidirectional relation sees all sources at once")
    if target.shape[1] != num_sources:
        raise ValueError(
            f"with a state give the new tokens only: {num_sources} sources and {target.shape[1]} targets differ"
        )
    shapes = (tuple(state.log_sum.shape), tuple(state.count.shape))
    if shapes != ((rows, width), (rows,)):
        raise ValueError(
            f"the state has log_sum {shapes[0]} and count {shapes[1]}; for this source give {(rows, width)} and {(rows,)}"
        )
