"""The relation op's fused CPU kernels (`kernels/relation.cpp`): arithmetic in float32, storage float32 or bfloat16.

Memory O(B (S + T) D), and the scale of each pair, (B, H, S, T) float32, where a gradient will be asked for and T <= 4,096; for the
gradient of few rows by many threads up to 256 MB more.
Source: docs/mathematics.md, sections 2 to 4.
"""

import ctypes

import torch
from torch import Tensor

from relnet.ops import cpu_library
from relnet.ops.kernel import Kernel, Settings

# Beyond this many sources the backward pass computes scales again, at about a sixth of its time, rather than read them from memory.
LONGEST_KEPT_SCALES = 4096

_ACTIVATIONS = {"exp": 0, "relu": 1, "elu": 2, "gelu": 3}
_NORMS = {"none": 0, "rms": 1, "exact": 2}


class _Arguments(ctypes.Structure):
    """RelnetRelation of kernels/relation.h, field by field."""

    _fields_ = (
        ("source", ctypes.c_void_p),
        ("target", ctypes.c_void_p),
        ("key_mask", ctypes.c_void_p),
        ("windows", ctypes.c_void_p),
        *((name, ctypes.c_int64) for name in ("batch", "heads", "num_sources", "num_targets", "d", "source_stride")),
        *((name, ctypes.c_int32) for name in ("activation", "norm", "causal", "bfloat16", "num_threads")),
        ("scales", ctypes.c_void_p),
    )


def _scales_shape(source: Tensor, target: Tensor, settings: Settings, keep: bool) -> tuple[int, ...]:
    (rows, num_sources, _), num_targets = source.shape, target.shape[1]
    kept = keep and settings.norm != "none" and num_sources <= LONGEST_KEPT_SCALES
    return (rows, settings.heads, num_targets, num_sources) if kept else (0,)


def _call(
    name: str,
    source: Tensor,
    target: Tensor,
    key_mask: Tensor | None,
    scales: Tensor,
    settings: Settings,
    *buffers: Tensor,
) -> None:
    windows = torch.tensor(settings.windows, dtype=torch.int64) if settings.windows else None
    arguments = _Arguments(
        source=cpu_library.pointer(source),
        target=cpu_library.pointer(target),
        key_mask=cpu_library.pointer(key_mask),
        windows=cpu_library.pointer(windows),
        batch=source.shape[0],
        heads=settings.heads,
        num_sources=source.shape[1],
        num_targets=target.shape[1],
        d=source.shape[2] // settings.heads,
        source_stride=source.stride(0),
        activation=_ACTIVATIONS[settings.activation],
        norm=_NORMS[settings.norm],
        causal=settings.causal,
        bfloat16=source.dtype == torch.bfloat16,
        num_threads=torch.get_num_threads(),
        scales=cpu_library.pointer(scales),
    )
    cpu_library.call(name, arguments, *buffers)


def _forward(
    source: Tensor, target: Tensor, key_mask: Tensor | None, settings: Settings, keep: bool
) -> tuple[Tensor, Tensor]:
    # A growing cache leaves room behind each batch row: copying it whole would cost a decoding step more than the sums.
    if source.stride()[1:] != (source.shape[2], 1):
        source = source.contiguous()
    target = target.contiguous()
    key_mask = None if key_mask is None else key_mask.contiguous()
    y = torch.empty_like(target)
    scales = torch.empty(_scales_shape(source, target, settings, keep), dtype=torch.float32)
    _call("relnet_relation_forward", source, target, key_mask, scales, settings, y)
    return y, scales


def _backward(
    grad: Tensor, source: Tensor, target: Tensor, key_mask: Tensor | None, scales: Tensor, settings: Settings
) -> tuple[Tensor, Tensor]:
    grad, source, target = grad.contiguous(), source.contiguous(), target.contiguous()
    key_mask = None if key_mask is None else key_mask.contiguous()
    grad_source, grad_target = torch.empty_like(source), torch.empty_like(target)
    _call("relnet_relation_backward", source, target, key_mask, scales, settings, grad, grad_source, grad_target)
    return grad_source, grad_target


KERNEL = Kernel(
    name="cpu",
    what="fused C++ kernels",
    forward=_forward,
    backward=_backward,
    kept_shape=_scales_shape,
    missing=cpu_library.missing,
    refuses=cpu_library.refuses,
)
