"""The relation op's fused CPU kernels (`kernels/`), loaded through ctypes: arithmetic in float32, storage float32 or bfloat16.

The library is built by `pip install` where there is a C++ compiler, and links neither PyTorch nor Python. It picks the instruction set at
run time (AVX-512, AVX2, baseline); RELNET_ISA forces one. Its threads are those of PyTorch's own OpenMP library, as many as
`torch.get_num_threads()`. Memory O(B (S + T) D), and the scale of each pair, (B, H, S, T) float32, where a gradient will be asked for and
T <= 4,096.
Source: docs/mathematics.md, sections 2 to 4.
"""

import ctypes
import functools
import os
import sysconfig
from pathlib import Path

import torch
from torch import Tensor

from relnet.ops.kernel import Kernel, Settings

ISA_VARIABLE = "RELNET_ISA"
# Another build of the library, such as the one of make sanitize.
LIBRARY_VARIABLE = "RELNET_KERNELS"
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


def _find_library() -> Path | None:
    if given := os.environ.get(LIBRARY_VARIABLE):
        return Path(given)
    # Beside the sources where they lie in the wheel; in the environment where the sources are those of a checkout (pip install -e).
    beside, installed = Path(__file__).parent, Path(sysconfig.get_path("platlib"), "relnet", "ops")
    return next(
        (path for folder in (beside, installed) for path in (folder / "kernels").glob("librelnet_kernels.*")), None
    )


@functools.cache
def library() -> ctypes.CDLL:
    """Load the library once; RuntimeError saying why where it cannot be had."""
    path = _find_library()
    if path is None:
        raise RuntimeError("not built: pip found no C++ compiler; install one (g++ or clang++), then reinstall relnet")
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise RuntimeError(f"{path.name} does not load ({error}); reinstall relnet") from None
    loaded.relnet_isa.restype = ctypes.c_char_p
    if team := _torch_team():
        loaded.relnet_use_team(team)
    if wanted := os.environ.get(ISA_VARIABLE):
        choose_isa(wanted, loaded)
    return loaded


def choose_isa(name: str, loaded: ctypes.CDLL | None = None) -> None:
    """Use another instruction set: avx512, avx2 or baseline; RuntimeError where this machine does not have it."""
    if (loaded or library()).relnet_choose_isa(name.encode()):
        raise RuntimeError(
            f"instruction set {name!r} is unknown or not of this machine; unset {ISA_VARIABLE} or choose baseline"
        )


def isa() -> str:
    """Return the instruction set in use."""
    return library().relnet_isa().decode()


def _torch_team() -> ctypes.c_void_p | None:
    """GOMP_parallel of the OpenMP library that PyTorch brought along, if it brought one that has it."""
    for path in sorted((Path(torch.__file__).parent / "lib").glob("lib*omp*")):
        try:
            return ctypes.cast(ctypes.CDLL(str(path)).GOMP_parallel, ctypes.c_void_p)
        except (OSError, AttributeError):
            continue
    return None


def _missing() -> str | None:
    try:
        library()
    except RuntimeError as error:
        return str(error)
    return None


def _refuses(source: Tensor) -> str | None:
    if source.device.type != "cpu":
        return f"tensors are on {source.device}"
    if source.dtype not in (torch.float32, torch.bfloat16):
        return f"tensors are {source.dtype}, the kernels compute in float32"
    return None


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
    windows = (ctypes.c_int64 * settings.heads)(*settings.windows) if settings.windows else None
    arguments = _Arguments(
        source=source.data_ptr(),
        target=target.data_ptr(),
        key_mask=None if key_mask is None else key_mask.data_ptr(),
        windows=None if windows is None else ctypes.cast(windows, ctypes.c_void_p),
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
        scales=scales.data_ptr() if scales.numel() else None,
    )
    # By attribute: ctypes keeps the function, an item it looks up each time.
    failed = getattr(library(), name)(
        ctypes.byref(arguments), *(ctypes.c_void_p(buffer.data_ptr()) for buffer in buffers)
    )
    if failed:
        raise MemoryError(
            f"no memory for the scratch of {name}: source {tuple(source.shape)}, target {tuple(target.shape)}"
        )


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
    missing=_missing,
    refuses=_refuses,
)
