"""The plain norm's fused CPU kernels (`kernels/norm.cpp`): one pass over x forward, one over x and the gradient backward."""

import ctypes

import torch
from torch import Tensor

from relnet.ops import cpu_library


class _Arguments(ctypes.Structure):
    """RelnetNorm of kernels/norm.h, field by field."""

    _fields_ = (
        ("x", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("width", ctypes.c_int64),
        ("bfloat16", ctypes.c_int32),
        ("num_threads", ctypes.c_int32),
    )


def refuses(x: Tensor) -> str | None:
    """Return why the kernels cannot be used on such a tensor here, or None."""
    return cpu_library.missing() or cpu_library.refuses(x)


def _call(name: str, x: Tensor, *buffers: Tensor) -> None:
    width = x.shape[-1]
    rows = x.numel() // width
    arguments = _Arguments(cpu_library.pointer(x), rows, width, x.dtype == torch.bfloat16, torch.get_num_threads())
    cpu_library.call(name, arguments, *buffers)


def norm(x: Tensor) -> Tensor:
    """Return the norm of each row of (..., D)."""
    x = x.contiguous()
    y = torch.empty_like(x)
    _call("relnet_norm_forward", x, y)
    return y


def gradient(grad: Tensor, x: Tensor) -> Tensor:
    """Return the gradient of x from the gradient of its norm."""
    x, grad = x.contiguous(), grad.contiguous()
    grad_x = torch.empty_like(x)
    _call("relnet_norm_backward", x, grad, grad_x)
    return grad_x
