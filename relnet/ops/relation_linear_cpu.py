"""The linear relation's fused CPU kernels (`kernels/linear.cpp`): log-mean or mean, its state and gradient, each in one pass.

    log y_j = q_j + m_j + log(S_j / |V_j|)        y_j = exp(q_j + m_j) S_j / |V_j|

Arithmetic in float32, storage float32 or bfloat16. What is kept for the backward pass beside the inputs is a maximum and a sum for every 32
positions. Threads share rows and channels, so that no bit depends on their number. The backward's own backward is composed of PyTorch
operations (`linear_sums.py`), which gives every higher derivative.
Source: docs/mathematics.md, section 6.
"""

import ctypes
from functools import partial

import torch
from torch import Tensor

from relnet.ops import cpu_library
from relnet.ops.linear_sums import LinearRelationState, log_mean_by, log_sums, mean_by_sums
from relnet.ops.pairs import Pairs
from relnet.ops.prepare import arithmetic, without_autocast
from relnet.ops.recompute import recomputed, vector_jacobian_product
from relnet.ops.reference_mode import is_plain

TILE = 32  # LINEAR_TILE of kernels/linear.h.

_Strides = ctypes.c_int64 * 2


class _Arguments(ctypes.Structure):
    """RelnetLinear of kernels/linear.h, field by field."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("source", "target", "key_mask", "past", "past_count")),
        *((name, ctypes.c_int64) for name in ("batch", "num_sources", "num_targets", "width")),
        *((name, _Strides) for name in ("source_strides", "target_strides", "grad_strides")),
        *((name, ctypes.c_int32) for name in ("causal", "mean", "bfloat16", "num_threads")),
        ("kept", ctypes.c_void_p),
    )


def refuses(source: Tensor) -> str | None:
    """Return why the kernels cannot be used on such tensors here, or None."""
    return cpu_library.missing() or cpu_library.refuses(source)


def _side_by_side(x: Tensor) -> Tensor:
    """Return x with the channels of a position next to each other; positions and rows may lie anywhere."""
    return x if x.stride(2) == 1 else x.contiguous()


def _call(
    name: str,
    source: Tensor,
    target: Tensor,
    grad: Tensor | None,
    key_mask: Tensor | None,
    past: Tensor | None,
    past_count: Tensor | None,
    kept: Tensor,
    causal: bool,
    mean: bool,
    *buffers: Tensor | None,
) -> None:
    arguments = _Arguments(
        *(cpu_library.pointer(x) for x in (source, target, key_mask, past, past_count)),
        *(source.shape[0], source.shape[1], target.shape[1], source.shape[2]),
        *(_Strides() if x is None else _Strides(*x.stride()[:2]) for x in (source, target, grad)),
        *(causal, mean, source.dtype == torch.bfloat16, torch.get_num_threads()),
        cpu_library.pointer(kept),
    )
    cpu_library.call(name, arguments, *buffers)


def _kept_shape(source: Tensor, causal: bool, keep: bool) -> tuple[int, ...]:
    rows, length, width = source.shape
    return (rows, -(-length // TILE) if causal else 1, 2, width) if keep else (0,)


def _state_shapes(source: Tensor, causal: bool, mean: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    rows, _, width = source.shape
    return ((rows, width), (rows,)) if causal and not mean else ((0,), (0,))


def _contiguous(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


def _forward(
    source: Tensor,
    target: Tensor,
    key_mask: Tensor | None,
    past: Tensor | None,
    past_count: Tensor | None,
    causal: bool,
    mean: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the (log-)mean (B, S, D), the state's log sum (B, D) and count (B), and what the backward pass needs."""
    source, target = _side_by_side(source), _side_by_side(target)
    shapes = _state_shapes(source, causal, mean)
    y = torch.empty(target.shape, dtype=target.dtype)
    log_sum, count = torch.empty(shapes[0], dtype=torch.float32), torch.empty(shapes[1], dtype=torch.int64)
    kept = torch.empty(_kept_shape(source, causal, keep), dtype=torch.float32)
    places = (_contiguous(key_mask), _contiguous(past), _contiguous(past_count))
    _call("relnet_linear_forward", source, target, None, *places, kept, causal, mean, y, log_sum, count)
    return y, log_sum, count, kept


@torch.library.custom_op("relnet::relation_linear_cpu", mutates_args=())
def _op(
    source: Tensor,
    target: Tensor,
    key_mask: Tensor | None,
    past: Tensor | None,
    past_count: Tensor | None,
    causal: bool,
    mean: bool,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _forward(source, target, key_mask, past, past_count, causal, mean, keep)


@_op.register_fake
def _(source, target, key_mask, past, past_count, causal, mean, keep):
    shapes = _state_shapes(source, causal, mean)
    return (
        target.new_empty(target.shape),
        source.new_empty(shapes[0], dtype=torch.float32),
        source.new_empty(shapes[1], dtype=torch.int64),
        source.new_empty(_kept_shape(source, causal, keep), dtype=torch.float32),
    )


@torch.library.custom_op("relnet::relation_linear_cpu_backward", mutates_args=())
def _op_backward(
    grad: Tensor | None,
    grad_log_sum: Tensor | None,
    source: Tensor,
    target: Tensor,
    key_mask: Tensor | None,
    past: Tensor | None,
    past_count: Tensor | None,
    kept: Tensor,
    causal: bool,
    mean: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of source, of target (the mean only: else empty) and of the past's log sum (empty without one)."""
    source, target = _side_by_side(source), _side_by_side(target)
    grad = None if grad is None else _side_by_side(grad)
    grad_source = torch.empty(source.shape, dtype=source.dtype)
    grad_target = torch.empty(target.shape if mean else (0,), dtype=target.dtype)
    grad_past = torch.empty((0,) if past is None else past.shape, dtype=torch.float32)
    places = (_contiguous(key_mask), _contiguous(past), _contiguous(past_count))
    buffers = (grad, _contiguous(grad_log_sum), grad_source, grad_target, grad_past)
    _call("relnet_linear_backward", source, target, grad, *places, kept, causal, mean, *buffers)
    return grad_source, grad_target, grad_past


@_op_backward.register_fake
def _(grad, grad_log_sum, source, target, key_mask, past, past_count, kept, causal, mean):
    return (
        source.new_empty(source.shape),
        target.new_empty(target.shape if mean else (0,)),
        source.new_empty((0,) if past is None else past.shape, dtype=torch.float32),
    )


def _save(ctx, inputs, output) -> None:
    source, target, key_mask, past, past_count, ctx.causal, ctx.mean, _ = inputs
    ctx.save_for_backward(source, target, key_mask, past, past_count, output[3])
    ctx.set_materialize_grads(False)


def _differentiate(ctx, grad: Tensor | None, grad_log_sum: Tensor | None, *_):
    source, target, key_mask, past, past_count, kept = ctx.saved_tensors
    nothing = (None,) * 8
    if grad is None and grad_log_sum is None:
        return nothing
    tensors = (source, target, key_mask, past, past_count, kept)
    grad_source, grad_target, grad_past = _op_backward(grad, grad_log_sum, *tensors, ctx.causal, ctx.mean)
    if not ctx.mean:
        grad_target = grad
        if grad is not None and key_mask is not None:
            counts = Pairs(target.shape[1], source.shape[1], ctx.causal, key_mask, (), source.device).counts()[:, 0]
            if past_count is not None:
                counts = counts + past_count[:, None]
            grad_target = grad.masked_fill((counts == 0)[..., None], 0.0)
    return grad_source, grad_target, None, None if past is None else grad_past, *nothing[4:]


def _save_backward(ctx, inputs, output) -> None:
    grad, grad_log_sum, source, target, key_mask, past, past_count, _, ctx.causal, ctx.mean = inputs
    ctx.save_for_backward(grad, grad_log_sum, source, target, key_mask, past, past_count)


def _differentiate_backward(ctx, *cotangents: Tensor):
    """Return the gradients of <cotangents, backward(grads, inputs)>, differentiable again."""
    grad, grad_log_sum, source, target, key_mask, past, past_count = ctx.saved_tensors
    causal, mean = ctx.causal, ctx.mean

    def outputs(*inputs: Tensor) -> tuple[Tensor, ...]:
        p, q = arithmetic(inputs[0], inputs[1] if mean else target, key_mask)
        if mean:
            pairs = Pairs(q.shape[1], p.shape[1], causal, key_mask, (), p.device)
            return (mean_by_sums(p, q, pairs).to(source.dtype),)
        state = None if past is None else LinearRelationState(inputs[1], past_count)
        log_mean, new_state = log_mean_by(log_sums, p, torch.zeros_like(q), key_mask, state, causal)
        found = [(log_mean.to(source.dtype), grad)]
        if new_state is not None:
            found.append((new_state.log_sum, grad_log_sum))
        return tuple(output for output, given in found if given is not None)

    # The mean depends on source and target, the log-mean's other derivatives on source and past alone.
    which = [0, 1] if mean else [0] if past is None else [0, 2]
    inputs = [(source, target, past)[k] for k in which]
    grads = [g for g in (grad, grad_log_sum) if g is not None]
    with without_autocast(source.device):
        backward = partial(vector_jacobian_product, outputs, len(inputs))
        product = partial(vector_jacobian_product, backward, len(inputs) + len(grads))
        found = iter(recomputed(product, *inputs, *grads, *(cotangents[k] for k in which)))
    of_inputs: list[Tensor | None] = [None, None, None]
    for k in which:
        of_inputs[k] = next(found)
    of_grads = [None if g is None else next(found) for g in (grad, grad_log_sum)]
    return *of_grads, of_inputs[0], of_inputs[1], None, of_inputs[2], None, None, None, None


_op.register_autograd(_differentiate, setup_context=_save)
_op_backward.register_autograd(_differentiate_backward, setup_context=_save_backward)


def _run(
    source: Tensor,
    target: Tensor,
    key_mask: Tensor | None,
    past: Tensor | None,
    past_count: Tensor | None,
    causal: bool,
    mean: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    inputs = (source, target) if past is None else (source, target, past)
    keep = torch.is_grad_enabled() and any(x.requires_grad for x in inputs)
    if (
        keep
        and past is not None
        and past_count is not None
        and not torch.compiler.is_compiling()
        and past.is_inference()
    ):
        # A state made in inference mode cannot be saved for a backward pass; a copy of it can.
        past, past_count = past.clone(), past_count.clone()
    arguments = (source, target, key_mask, past, past_count, causal, mean, keep)
    # Past PyTorch's dispatcher, which would take longer than the step of a decoder.
    return _forward(*arguments) if not keep and is_plain(*inputs) else _op(*arguments)


def log_mean(
    source: Tensor,
    target: Tensor,
    key_mask: Tensor | None,
    past: Tensor | None,
    past_count: Tensor | None,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return log y (B, S, D), and when causal the state after the last source: its log sum (B, D) float32 and count (B,)."""
    return _run(source, target, key_mask, past, past_count, causal, False)[:3]


def mean(source: Tensor, target: Tensor, key_mask: Tensor | None, causal: bool) -> Tensor:
    """Return y (B, S, D)."""
    return _run(source, target, key_mask, None, None, causal, True)[0]
