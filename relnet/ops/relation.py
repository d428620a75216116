"""The relation op's contract: what it takes and refuses, and which backend runs.

    y_j = 1/|V_j| * sum_{i in V_j} psi( mu(p_i + q_j) )

Source: CausalRN, section 3; docs/mathematics.md, sections 1 to 3.
"""

import sys
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from relnet.ops import relation_blocked, relation_cpu, relation_linear, relation_linear_cpu, relation_triton
from relnet.ops.checks import check_choice, check_relation
from relnet.ops.kernel import Kernel, Settings
from relnet.ops.operators import register
from relnet.ops.prepare import arithmetic, enter, merge_heads, normalise_heads, pair_norm, without_autocast
from relnet.ops.reference_mode import in_reference, refuse_transforms
from relnet.ops.relation_linear import check_linear_relation, relation_mean_linear
from relnet.ops.relation_reference import relation_mean_reference

Activation = Literal["exp", "relu", "elu", "gelu"]
PairNorm = Literal["exact", "rms", "approximate", "none"]
Backend = Literal["auto", "reference", "blocked", "linear", "cpu", "triton"]
BACKENDS = ("auto", "reference", "blocked", "linear", "cpu", "triton")

# Best first: `auto` takes the first that this machine has and that takes the tensors.
KERNELS = {kernel.name: kernel for kernel in (relation_cpu.KERNEL, relation_triton.KERNEL, relation_blocked.KERNEL)}
RELATIONS = {name: register(kernel) for name, kernel in KERNELS.items()}


@torch.compiler.assume_constant_result
def _missing(name: str) -> str | None:
    return KERNELS[name].missing()


def _usable(kernel: Kernel, source: Tensor) -> str | None:
    """Return why a kernel cannot be used on such tensors here, or None."""
    return _missing(kernel.name) or kernel.refuses(source)


def _is_linear(activation: str, norm: str, windows: Sequence[int | None] | None) -> bool:
    return activation == "exp" and norm in ("none", "approximate") and not any(windows or ())


def _choose(
    source: Tensor, activation: str, norm: str, windows: Sequence[int | None] | None, backend: str
) -> tuple[str, str]:
    """Return the backend's name and why, from arguments, dtype and device alone; ValueError for one that cannot be had."""
    linear = _is_linear(activation, norm, windows)
    if backend == "linear" and not linear:
        raise ValueError(
            f"backend 'linear' needs activation='exp', norm='none' or 'approximate' and no windows; "
            f"got activation={activation!r}, norm={norm!r}, windows={windows!r}: use backend='auto'"
        )
    asked = "" if backend == "auto" else " (asked for)"
    if backend in KERNELS and (reason := _usable(KERNELS[backend], source)):
        raise ValueError(f"backend {backend!r} cannot be used: {reason}; use backend='auto'")
    if in_reference():
        return "reference", "the definition, all pairs at once (inside use_reference())"
    if backend == "reference":
        return "reference", "the definition, all pairs at once (asked for)"
    if backend == "linear" or (backend == "auto" and linear):
        reason = relation_linear_cpu.refuses(source)
        how = (
            "one pass in fused C++ kernels" if reason is None else f"running maximum and sum in PyTorch; cpu: {reason}"
        )
        return "linear", f"exp of a sum is a product: O(T) time{asked}; {how}"
    if backend != "auto":
        return backend, KERNELS[backend].what + asked
    refused: list[str] = []
    for name, kernel in KERNELS.items():
        reason = _usable(kernel, source)
        if reason is None:
            return name, "; ".join([kernel.what, *refused])
        refused.append(f"{name}: {reason}")
    raise AssertionError("blocked takes everything")


def relation_mean(
    source: Tensor,
    target: Tensor,
    *,
    activation: Activation = "exp",
    norm: PairNorm = "exact",
    causal: bool = True,
    key_mask: Tensor | None = None,
    heads: int = 1,
    windows: Sequence[int | None] | None = None,
    backend: Backend = "auto",
) -> Tensor:
    """Average an MLP's hidden layer over pairs of positions: y_j = mean over i in V_j of psi(mu(p_i + q_j)).

    source: p, (B, T, D); target: q, (B, S, D); float32, float64 or bfloat16 (arithmetic in float32). Returns (B, S, D), in the same dtype.
    causal: the last target sits at the last source and sees nothing after itself (S <= T); False: every target sees every source.
    key_mask: (B, T) bool, True = real token; speaks of sources only. A target without a real source gets 0.
    heads: D is split into heads of D / heads channels, each normalised by itself.
    windows: one entry a head: the last w real sources of each target, None = all of them. Causal only.
    norm: "exact" = layer norm of each pair, "rms" = without centring, "approximate" = mu(p_i) + mu(q_j), "none"; no affine part, eps = 0.
    backend: "auto", "reference" (the definition), "blocked" (plain PyTorch), "linear" (where the sum factorises), "cpu" and "triton" (fused
        kernels, the latter for GPUs); one that is named and cannot be used raises ValueError; see `explain`.

    Raises ValueError naming value and remedy for shapes, dtypes (float16), masks, heads, windows and choices that do not fit, and
    NotImplementedError under forward-mode differentiation. NaN in a valid pair gives NaN. Source: CausalRN, section 3.

    >>> source, target = torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    >>> relation_mean(source, target).shape
    torch.Size([2, 5, 8])
    """
    check_relation(source, target, activation, norm, causal, key_mask, heads, windows, backend, BACKENDS)
    refuse_transforms("relation_mean")
    name, _ = _choose(source, activation, norm, windows, backend)
    dtype = source.dtype
    with without_autocast(source.device):
        if norm == "approximate":
            source, target = (normalise_heads(x, heads) for x in arithmetic(source, target, key_mask))
            norm = "none"
        limits = [min(window or 0, sys.maxsize) for window in windows] if windows is not None and any(windows) else []
        settings = Settings(activation, norm, causal, heads, limits)
        if name == "linear":
            return relation_mean_linear(source, target, key_mask, causal).to(dtype)
        if name == "reference":
            p, q = enter(source, target, key_mask, norm, heads)
            pairs = settings.pairs(source, target, key_mask)
            return merge_heads(relation_mean_reference(p, q, pairs, activation, pair_norm(norm))).to(dtype)
        return RELATIONS[name](source, target, key_mask, settings).to(dtype)


def explain(
    source: Tensor | None = None,
    target: Tensor | None = None,
    *,
    activation: Activation = "exp",
    norm: PairNorm = "exact",
    causal: bool = True,
    key_mask: Tensor | None = None,
    heads: int = 1,
    windows: Sequence[int | None] | None = None,
    backend: Backend = "auto",
    op: Literal["relation_mean", "linear_relation"] = "relation_mean",
) -> str:
    """Say which backend `relation_mean` would run for the same arguments, and why; without tensors, which backends there are.

    op="linear_relation" says so of the other op, which takes neither activation nor windows; "plain" is then its form in PyTorch.

    >>> explain(torch.zeros(1, 3, 4), torch.zeros(1, 3, 4), norm="approximate").split(";")[0]
    'linear: exp of a sum is a product: O(T) time'
    """
    if (source is None) != (target is None):
        raise ValueError("explain() got one of source and target; give both, or neither for the list of backends")
    if source is None or target is None:
        lines = ["reference: the definition, all pairs at once"]
        lines += [
            f"{name}: {missing if (missing := _missing(name)) else kernel.what}" for name, kernel in KERNELS.items()
        ]
        lines += ["linear: exp of a sum is a product: O(T) time, where the sum factorises"]
        lines += [f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads"]
        return "\n".join(lines)
    check_choice("op", op, ("relation_mean", "linear_relation"))
    if op == "linear_relation":
        check_linear_relation(source, target, norm, causal, key_mask, heads, backend)
        return ": ".join(relation_linear.choose(source, backend))
    check_relation(source, target, activation, norm, causal, key_mask, heads, windows, backend, BACKENDS)
    return ": ".join(_choose(source, activation, norm, windows, backend))
