"""The library of fused CPU kernels (`kernels/`), loaded through ctypes: what machine has it, which instruction set it uses, what it takes.

It is built by `pip install` where there is a C++ compiler, and links neither PyTorch nor Python. It picks the instruction set at run time
(AVX-512, AVX2, baseline); RELNET_ISA forces one. Its threads are those of PyTorch's own OpenMP library, as many as
`torch.get_num_threads()`. Its kernels compute in float32 and take float32 and bfloat16.
"""

import ctypes
import functools
import os
import sysconfig
from pathlib import Path

import torch
from torch import Tensor

ISA_VARIABLE = "RELNET_ISA"
# Another build of the library, such as the one of make sanitize.
LIBRARY_VARIABLE = "RELNET_KERNELS"
# Below it there is no whole large page for sure.
LARGE = 2**22
# PyTorch's team of threads does not live on in a forked child; a library loaded there must not wait for it.
_PROCESS = os.getpid()


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
    if os.getpid() == _PROCESS and (team := _torch_team()):
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


@torch.compiler.assume_constant_result
def missing() -> str | None:
    """Return why this machine does not have the library, or None."""
    try:
        library()
    except RuntimeError as error:
        return str(error)
    return None


def refuses(x: Tensor) -> str | None:
    """Return why the kernels do not take such a tensor, or None."""
    if x.device.type != "cpu":
        return f"tensors are on {x.device}"
    if x.dtype not in (torch.float32, torch.bfloat16):
        return f"tensors are {x.dtype}, the kernels compute in float32"
    return None


def prefer_large_pages(x: Tensor) -> Tensor:
    """Ask the system to back a fresh tensor by pages of 2 MB, and return it. Only a hint, of use to what is read again and again.

    Where each page of 4 KB is looked up on its own, as in a virtual machine, reading a large state takes up to 5 times as long.
    """
    if x.device.type == "cpu" and x.nbytes >= LARGE and missing() is None:
        library().relnet_prefer_large_pages(ctypes.c_void_p(x.data_ptr()), ctypes.c_size_t(x.nbytes))
    return x


def call(name: str, arguments: ctypes.Structure, *buffers: Tensor | None) -> None:
    """Call a kernel with its arguments and where it writes or reads more; MemoryError where it had no memory to work in."""
    # By attribute: ctypes keeps the function, an item it looks up each time.
    if getattr(library(), name)(ctypes.byref(arguments), *(ctypes.c_void_p(pointer(buffer)) for buffer in buffers)):
        raise MemoryError(f"no memory for the scratch of {name}")


def pointer(x: Tensor | None) -> int | None:
    """Return where a tensor lies, None for no tensor and for an empty one."""
    return None if x is None or not x.numel() else x.data_ptr()
