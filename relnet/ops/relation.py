"""The relation op's contract: what it takes and refuses, which backend runs, and how a kernel plugs in.

    y_j = 1/|V_j| * sum_{i in V_j} psi( mu(p_i + q_j) )

`relation_mean` checks its arguments, prepares p and q (heads, centring, float32 arithmetic) and hands them to one backend. A kernel is a
`Kernel`: a forward and a backward over prepared tensors. `register_kernel` makes a torch.library.custom_op of each; the backward of the
backward is the same for all, composed of PyTorch operations, so derivatives of every order exist with every kernel.
Source: CausalRN, section 3; docs/mathematics.md, sections 1 to 3.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from relnet.ops import relation_blocked
from relnet.ops.checks import check_relation
from relnet.ops.norm import centre
from relnet.ops.pairs import Pairs
from relnet.ops.prepare import merge_heads, normalise_heads, prepare, split_heads
from relnet.ops.reference_mode import in_reference, refuse_transforms
from relnet.ops.relation_linear import relation_mean_linear
from relnet.ops.relation_reference import relation_mean_reference

Activation = Literal["exp", "relu", "elu", "gelu"]
PairNorm = Literal["exact", "rms", "approximate", "none"]
Backend = Literal["auto", "reference", "blocked", "linear"]
BACKENDS = ("auto", "reference", "blocked", "linear")

PreparedOp = Callable[[Tensor, Tensor, Tensor | None, str, str, bool, list[int]], Tensor]


@dataclass(frozen=True)
class Kernel:
    """A way to compute the op on prepared tensors: source (B, H, T, d), target (B, H, S, d), pair norm "rms" or "none"."""

    name: str
    forward: Callable[[Tensor, Tensor, Pairs, str, str], Tensor]
    backward: Callable[[Tensor, Tensor, Tensor, Pairs, str, str], tuple[Tensor, Tensor]]


def register_kernel(kernel: Kernel) -> PreparedOp:
    """Register relnet::relation_NAME and relnet::relation_NAME_backward and return the first.

    Both are opaque to torch.compile and to autograd, which sees the op, its backward (an op too) and a backward of that composed of
    PyTorch operations.
    """

    def make_pairs(source: Tensor, target: Tensor, key_mask: Tensor | None, causal: bool, windows: list[int]) -> Pairs:
        return Pairs(target.shape[2], source.shape[2], causal, key_mask, tuple(windows), source.device)

    @torch.library.custom_op(f"relnet::relation_{kernel.name}", mutates_args=())
    def op(
        source: Tensor,
        target: Tensor,
        key_mask: Tensor | None,
        activation: str,
        norm: str,
        causal: bool,
        windows: list[int],
    ) -> Tensor:
        with torch.autocast(source.device.type, enabled=False):
            return kernel.forward(
                source, target, make_pairs(source, target, key_mask, causal, windows), activation, norm
            )

    @torch.library.custom_op(f"relnet::relation_{kernel.name}_backward", mutates_args=())
    def op_backward(
        grad: Tensor,
        source: Tensor,
        target: Tensor,
        key_mask: Tensor | None,
        activation: str,
        norm: str,
        causal: bool,
        windows: list[int],
    ) -> tuple[Tensor, Tensor]:
        with torch.autocast(source.device.type, enabled=False):
            pairs = make_pairs(source, target, key_mask, causal, windows)
            return kernel.backward(grad, source, target, pairs, activation, norm)

    @op.register_fake
    def _(source, target, key_mask, activation, norm, causal, windows):
        return target.new_empty(target.shape)

    @op_backward.register_fake
    def _(grad, source, target, key_mask, activation, norm, causal, windows):
        return source.new_empty(source.shape), target.new_empty(target.shape)

    def keep_op(ctx, inputs, output) -> None:
        source, target, key_mask, *ctx.arguments = inputs
        ctx.save_for_backward(source, target, key_mask)

    def backward_of_op(ctx, grad: Tensor):
        grads = op_backward(grad, *ctx.saved_tensors, *ctx.arguments)
        return *grads, None, None, None, None, None

    def keep_op_backward(ctx, inputs, output) -> None:
        grad, source, target, key_mask, *ctx.arguments = inputs
        ctx.save_for_backward(grad, source, target, key_mask)

    def backward_of_op_backward(ctx, cotangent_source: Tensor | None, cotangent_target: Tensor | None):
        grad, source, target, key_mask = ctx.saved_tensors
        activation, norm, causal, windows = ctx.arguments
        cotangent_source = torch.zeros_like(source) if cotangent_source is None else cotangent_source
        cotangent_target = torch.zeros_like(target) if cotangent_target is None else cotangent_target
        with torch.autocast(source.device.type, enabled=False):
            grads = relation_blocked.differentiable_backward(
                *(cotangent_source, cotangent_target, grad, source, target),
                *(make_pairs(source, target, key_mask, causal, windows), activation, norm),
            )
        return *grads, None, None, None, None, None

    op.register_autograd(backward_of_op, setup_context=keep_op)
    op_backward.register_autograd(backward_of_op_backward, setup_context=keep_op_backward)
    return op


# The kernels of this machine, best first; `auto` takes the first.
KERNELS: dict[str, PreparedOp] = {
    "blocked": register_kernel(Kernel("blocked", relation_blocked.forward, relation_blocked.backward))
}


def _is_linear(activation: str, norm: str, windows: Sequence[int | None] | None) -> bool:
    return activation == "exp" and norm in ("none", "approximate") and not any(windows or ())


def _choose(activation: str, norm: str, windows: Sequence[int | None] | None, backend: str) -> tuple[str, str]:
    """Return the backend's name and why, from the arguments alone."""
    linear = _is_linear(activation, norm, windows)
    if backend == "linear" and not linear:
        raise ValueError(
            f"backend 'linear' needs activation='exp', norm='none' or 'approximate' and no windows; "
            f"got activation={activation!r}, norm={norm!r}, windows={windows!r}: use backend='auto'"
        )
    if in_reference():
        return "reference", "the definition, all pairs at once (inside use_reference())"
    if backend == "reference":
        return "reference", "the definition, all pairs at once (asked for)"
    if backend == "linear" or (backend == "auto" and linear):
        return "linear", "exp of a sum is a product: O(T) time, running maximum and sum"
    name = next(iter(KERNELS)) if backend == "auto" else backend
    return name, "plain PyTorch over blocks of pairs, backward recomputed" + (
        " (asked for)" if backend != "auto" else ""
    )


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
    backend: "auto", "reference" (the definition), "blocked" (plain PyTorch), "linear" (where the sum factorises); see `explain`.

    Raises ValueError naming value and remedy for shapes, dtypes (float16), masks, heads, windows and choices that do not fit, and
    NotImplementedError under forward-mode differentiation. NaN in a valid pair gives NaN. Source: CausalRN, section 3.

    >>> source, target = torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    >>> relation_mean(source, target).shape
    torch.Size([2, 5, 8])
    """
    check_relation(source, target, activation, norm, causal, key_mask, heads, windows, backend, BACKENDS)
    refuse_transforms("relation_mean")
    name, _ = _choose(activation, norm, windows, backend)
    with torch.autocast(source.device.type, enabled=False):
        p, q = prepare(source, target, key_mask)
        if norm == "approximate":
            p, q = normalise_heads(p, heads), normalise_heads(q, heads)
        if name == "linear":
            pairs = Pairs(q.shape[1], p.shape[1], causal, key_mask, (), p.device)
            return relation_mean_linear(p, q, pairs).to(source.dtype)
        p, q = split_heads(p, heads), split_heads(q, heads)
        if norm == "exact":
            # The mean of a pair is the sum of the means: centred once a row, a pair needs only its scale.
            p, q = centre(p), centre(q)
        pair_norm = "rms" if norm in ("exact", "rms") else "none"
        limits = [window or 0 for window in windows] if windows is not None and any(windows) else []
        if name == "reference":
            pairs = Pairs(q.shape[2], p.shape[2], causal, key_mask, tuple(limits), p.device)
            y = relation_mean_reference(p, q, pairs, activation, pair_norm)
        else:
            y = KERNELS[name](p, q, key_mask, activation, pair_norm, causal, limits)
        return merge_heads(y).to(source.dtype)


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
) -> str:
    """Say which backend `relation_mean` would run for the same arguments, and why; without tensors, which backends there are.

    >>> explain(torch.zeros(1, 3, 4), torch.zeros(1, 3, 4), norm="approximate")
    'linear: exp of a sum is a product: O(T) time, running maximum and sum'
    """
    if (source is None) != (target is None):
        raise ValueError("explain() got one of source and target; give both, or neither for the list of backends")
    if source is None or target is None:
        names = ", ".join(["reference", *KERNELS, "linear"])
        machine = (
            f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}"
        )
        return f"backends: {names}; auto takes linear where the sum factorises, else {next(iter(KERNELS))}\n{machine}"
    check_relation(source, target, activation, norm, causal, key_mask, heads, windows, backend, BACKENDS)
    return ": ".join(_choose(activation, norm, windows, backend))
