"""Kernels as PyTorch operators: torch.library.custom_op is their registry, with derivatives of every order.

`register` makes two operators of a kernel, its forward and its backward, both opaque to torch.compile and autograd. The backward's own
backward is the same for all kernels, composed of PyTorch operations, which gives every higher derivative.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from relnet.ops.kernel import Kernel, Settings
from relnet.ops.prepare import enter, leave, pair_norm, split_heads, without_autocast
from relnet.ops.reference_mode import is_plain
from relnet.ops.relation_blocked import differentiable_backward

Relation = Callable[[Tensor, Tensor, Tensor | None, Settings], Tensor]


def register(kernel: Kernel) -> Relation:
    """Register relnet::relation_NAME and relnet::relation_NAME_backward; return what computes y by them, or without them where it may.

    In plain eager code the kernel is called at once: the way through PyTorch's dispatcher and its Python layers costs as much as a whole
    step of decoding.
    """

    @torch.library.custom_op(f"relnet::relation_{kernel.name}", mutates_args=())
    def op(
        source: Tensor,
        target: Tensor,
        key_mask: Tensor | None,
        activation: str,
        norm: str,
        causal: bool,
        heads: int,
        windows: list[int],
        keep: bool,
    ) -> tuple[Tensor, Tensor]:
        with without_autocast(source.device):
            return kernel.forward(source, target, key_mask, Settings(activation, norm, causal, heads, windows), keep)

    @torch.library.custom_op(f"relnet::relation_{kernel.name}_backward", mutates_args=())
    def op_backward(
        grad: Tensor,
        source: Tensor,
        target: Tensor,
        key_mask: Tensor | None,
        kept: Tensor,
        activation: str,
        norm: str,
        causal: bool,
        heads: int,
        windows: list[int],
    ) -> tuple[Tensor, Tensor]:
        with without_autocast(source.device):
            settings = Settings(activation, norm, causal, heads, windows)
            return kernel.backward(grad, source, target, key_mask, kept, settings)

    @op.register_fake
    def _(source, target, key_mask, activation, norm, causal, heads, windows, keep):
        shape = kernel.kept_shape(source, target, Settings(activation, norm, causal, heads, windows), keep)
        return target.new_empty(target.shape), source.new_empty(shape, dtype=torch.float32)

    @op_backward.register_fake
    def _(grad, source, target, key_mask, kept, activation, norm, causal, heads, windows):
        return source.new_empty(source.shape), target.new_empty(target.shape)

    def save_op(ctx, inputs, output) -> None:
        source, target, key_mask, *settings, _ = inputs
        ctx.settings = Settings(*settings)
        ctx.save_for_backward(source, target, key_mask, output[1])
        # What is kept has no gradient: else zeros of its size would be made for it in every backward pass.
        ctx.mark_non_differentiable(output[1])
        ctx.set_materialize_grads(False)

    def differentiate_op(ctx, grad: Tensor | None, _):
        if grad is None:
            return (None,) * 9
        grads = op_backward(grad, *ctx.saved_tensors, *ctx.settings)
        return *grads, None, None, None, None, None, None, None

    def save_op_backward(ctx, inputs, output) -> None:
        grad, source, target, key_mask, _, *settings = inputs
        ctx.settings = Settings(*settings)
        ctx.save_for_backward(grad, source, target, key_mask)

    def differentiate_op_backward(ctx, cotangent_source: Tensor | None, cotangent_target: Tensor | None):
        grad, source, target, key_mask = ctx.saved_tensors
        cotangent_source = torch.zeros_like(source) if cotangent_source is None else cotangent_source
        cotangent_target = torch.zeros_like(target) if cotangent_target is None else cotangent_target
        with without_autocast(source.device):
            grads = _second_derivative(cotangent_source, cotangent_target, grad, source, target, key_mask, ctx.settings)
        return *grads, None, None, None, None, None, None, None

    op.register_autograd(differentiate_op, setup_context=save_op)
    op_backward.register_autograd(differentiate_op_backward, setup_context=save_op_backward)

    class Direct(torch.autograd.Function):
        @staticmethod
        def forward(ctx, source: Tensor, target: Tensor, key_mask: Tensor | None, settings: Settings) -> Tensor:
            y, kept = kernel.forward(source, target, key_mask, settings, True)
            ctx.settings = settings
            ctx.save_for_backward(source, target, key_mask, kept)
            return y

        @staticmethod
        def backward(ctx, *grads: Tensor):
            (grad,), (source, target, key_mask, kept) = grads, ctx.saved_tensors
            # With create_graph the backward is differentiated in its turn, which the operator knows how to do.
            if torch.is_grad_enabled() or not is_plain(grad):
                found = op_backward(grad, source, target, key_mask, kept, *ctx.settings)
            else:
                with without_autocast(grad.device):
                    found = kernel.backward(grad, source, target, key_mask, kept, ctx.settings)
            return *found, None, None

    def relation(source: Tensor, target: Tensor, key_mask: Tensor | None, settings: Settings) -> Tensor:
        keep = torch.is_grad_enabled() and (source.requires_grad or target.requires_grad)
        if not is_plain(source, target):
            return op(source, target, key_mask, *settings, keep)[0]
        if keep:
            return Direct.apply(source, target, key_mask, settings)
        return kernel.forward(source, target, key_mask, settings, False)[0]

    return relation


def _second_derivative(
    cotangent_source: Tensor,
    cotangent_target: Tensor,
    grad: Tensor,
    source: Tensor,
    target: Tensor,
    key_mask: Tensor | None,
    settings: Settings,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of <cotangents, backward(grad, source, target)> for grad, source and target, differentiable again."""
    # Rows are entered by a linear map (heads, centring), and gradients leave by its transpose: cotangents are entered like rows.
    entered = [enter(source, target, key_mask, settings.norm, settings.heads)]
    entered += [enter(cotangent_source, cotangent_target, key_mask, settings.norm, settings.heads)]
    (p, q), (cotangent_p, cotangent_q) = entered
    grad_g, grad_p, grad_q = differentiable_backward(
        *(cotangent_p, cotangent_q, split_heads(grad.to(p.dtype), settings.heads), p, q),
        *(settings.pairs(source, target, key_mask), settings.activation, pair_norm(settings.norm)),
    )
    leaving = ((grad_g, "none"), (grad_p, settings.norm), (grad_q, settings.norm))
    grad_g, grad_p, grad_q = (leave(part, norm, source.dtype) for part, norm in leaving)
    return grad_g, grad_p, grad_q
