"""Recompute instead of remembering, for derivatives of any order.

`recomputed(function, *tensors)` equals `function(*tensors)`, keeps only its inputs, and computes its vector-Jacobian product by
running the function again. That product is itself wrapped in the same way, so the rule holds at every order and the memory of a
derivative is that of one call. (torch.utils.checkpoint does this for the first derivative only.)
"""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

TensorFunction = Callable[..., tuple[Tensor, ...]]


def vector_jacobian_product(function: TensorFunction, num_inputs: int, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of sum_k <outputs_k, cotangents_k> with respect to the inputs, differentiable again.

    tensors: the `num_inputs` inputs of the function (all requiring gradients), then one cotangent an output.
    """
    inputs, cotangents = tensors[:num_inputs], tensors[num_inputs:]
    outputs = function(*inputs)
    return torch.autograd.grad(outputs, inputs, cotangents, create_graph=True, materialize_grads=True)


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function: TensorFunction, *tensors: Tensor):
        ctx.function = function
        ctx.save_for_backward(*tensors)
        leaves = [tensor.detach().requires_grad_() for tensor in tensors]
        with torch.enable_grad():
            outputs = function(*leaves)
        return tuple(output.detach() for output in outputs)

    @staticmethod
    def backward(ctx, *cotangents: Tensor):
        tensors = ctx.saved_tensors
        product = partial(vector_jacobian_product, ctx.function, len(tensors))
        return None, *_Recomputed.apply(product, *tensors, *cotangents)


def recomputed(function: TensorFunction, *tensors: Tensor) -> tuple[Tensor, ...]:
    """Call `function(*tensors)`, keeping only the tensors for the backward pass. Every tensor is floating point."""
    return _Recomputed.apply(function, *tensors)
