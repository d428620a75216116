"""Switch between the fast paths and the definitions, and refuse what the fast paths cannot do."""

from collections.abc import Generator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.autograd import forward_ad

_reference_depth = 0


@contextmanager
def use_reference() -> Generator[None, None, None]:
    """Compute every op by its definition inside the block: any transform of torch.func, any device, slow.

    Process-wide, so that it also holds in autograd's threads.

    >>> with use_reference():
    ...     in_reference()
    True
    """
    global _reference_depth
    _reference_depth += 1
    try:
        yield
    finally:
        _reference_depth -= 1


def in_reference() -> bool:
    """Return True inside `use_reference()`."""
    return _reference_depth > 0


def transform() -> str | None:
    """Return "forward-mode", "torch.func" or "vmap" inside one of PyTorch's transforms, None in plain eager or compiled code."""
    if forward_ad._current_level >= 0:
        return "forward-mode"
    if torch.compiler.is_compiling():
        # torch.compile cannot ask for the stack of transforms, and fails by itself on those that are left.
        return None
    levels = [level.key() for level in torch._C._functorch.get_interpreter_stack() or []]
    if any(key != torch._C._functorch.TransformType.Vmap for key in levels):
        return "torch.func"
    return "vmap" if levels else None


def is_plain(*tensors: Tensor) -> bool:
    """Return True where nothing but autograd looks on: no compiler, tracer, transform, dispatch mode or subclass of Tensor."""
    watched = (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or forward_ad._current_level >= 0
        or torch._C._len_torch_dispatch_stack() > 0
        or torch._C._functorch.peek_interpreter_stack() is not None
    )
    return not watched and not any(
        type(tensor) not in (Tensor, torch.nn.Parameter)
        # autograd.grad(..., is_grads_batched=True) batches by the old vmap, which has no level to ask for.
        or torch._C._functorch.is_legacy_batchedtensor(tensor)
        # The imaginary part of a conjugate: its memory holds the opposite of its values, which the dispatcher sees to.
        or tensor.is_neg()
        for tensor in tensors
    )


def refuse_transforms(op_name: str) -> None:
    """Raise NotImplementedError where a custom op would give zeros in silence, or fail without saying what helps.

    Forward mode (jvp, jacfwd, forward_ad) gives zeros; the reverse transforms of torch.func (grad, vjp, jacrev) fail; vmap works.
    """
    if in_reference():
        return
    mode = transform()
    if mode not in (None, "vmap"):
        raise NotImplementedError(
            f"{op_name} has no {mode} derivative; use torch.autograd.grad, "
            "or compute by the definition: with ops.use_reference(): ..."
        )
