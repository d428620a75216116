"""What every op refuses, each a ValueError that names the value and the remedy. Shapes, dtypes and arguments only: no tensor's values."""

from collections.abc import Sequence

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.float64, torch.bfloat16)
ACTIVATION_NAMES = ("exp", "relu", "elu", "gelu")
PAIR_NORMS = ("exact", "rms", "approximate", "none")


def check_dtype(name: str, tensor: Tensor) -> None:
    """Refuse what is not a float32, float64 or bfloat16 tensor."""
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} is a {type(tensor).__name__}; give a tensor")
    if tensor.dtype == torch.float16:
        raise ValueError(
            f"{name} is float16, whose range exp leaves at 11; use bfloat16 or float32 ({name}.bfloat16())"
        )
    if tensor.dtype not in DTYPES:
        raise ValueError(f"{name} is {tensor.dtype}; give float32, float64 or bfloat16")


def check_floating(name: str, tensor: Tensor, dims: int, layout: str) -> None:
    """Refuse what is not a float32, float64 or bfloat16 tensor of `dims` non-empty dimensions."""
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{name} is a {type(tensor).__name__}; give a tensor of shape {layout}")
    if tensor.dim() != dims:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; give {layout}")
    if 0 in tensor.shape[1:]:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}: length and width must be at least 1")
    check_dtype(name, tensor)


def check_same(name: str, tensor: Tensor, other_name: str, other: Tensor, dims: Sequence[int]) -> None:
    """Refuse two tensors that differ in dtype, device or one of the named dimensions."""
    if tensor.dtype != other.dtype:
        raise ValueError(f"{name} is {tensor.dtype} and {other_name} is {other.dtype}; cast one of them")
    if tensor.device != other.device:
        raise ValueError(f"{name} is on {tensor.device} and {other_name} on {other.device}; move one of them")
    for dim in dims:
        if tensor.shape[dim] != other.shape[dim]:
            raise ValueError(
                f"{name} {tuple(tensor.shape)} and {other_name} {tuple(other.shape)} differ in dimension {dim}; they must agree there"
            )


def check_mask(name: str, mask: Tensor | None, rows: int, length: int, device: torch.device) -> None:
    """Refuse a mask that is not (rows, length) bool on the device."""
    if mask is None:
        return
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool:
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"{name} is {kind}; give a bool tensor, True = real token ({name}.bool())")
    if tuple(mask.shape) != (rows, length):
        raise ValueError(f"{name} has shape {tuple(mask.shape)}; give (batch, length) = ({rows}, {length})")
    if mask.device != device:
        raise ValueError(f"{name} is on {mask.device}; move it to {device}")


def check_choice(name: str, value: object, known: Sequence[str]) -> None:
    """Refuse a value that is not among the known ones, and list them."""
    if value not in known:
        raise ValueError(f"{name} {value!r} is unknown; choose from {', '.join(known)}")


def check_heads(name: str, width: int, heads: int) -> None:
    """Refuse a number of heads that does not divide the width."""
    if not isinstance(heads, int) or isinstance(heads, bool) or heads < 1 or width % heads:
        raise ValueError(f"{name} {width} is not divisible by heads={heads!r}; choose heads that divide it")


def check_windows(windows: Sequence[int | None] | None, heads: int, causal: bool) -> None:
    """Refuse windows of the wrong count, below 1, or on a bidirectional op."""
    if windows is None:
        return
    if not causal:
        raise ValueError(f"windows={windows!r} need causal=True: a window is the last sources before a target")
    if isinstance(windows, str) or not isinstance(windows, Sequence) or len(windows) != heads:
        raise ValueError(
            f"windows={windows!r} has not {heads} entries; give one for each of the {heads} heads (None = no limit)"
        )
    for window in windows:
        if window is not None and (not isinstance(window, int) or isinstance(window, bool) or window < 1):
            raise ValueError(
                f"windows={windows!r} holds {window!r}; a window is an integer of at least 1, or None for no limit"
            )


def check_relation(
    source: Tensor,
    target: Tensor,
    activation: str,
    norm: str,
    causal: bool,
    key_mask: Tensor | None,
    heads: int,
    windows: Sequence[int | None] | None,
    backend: str,
    backends: Sequence[str],
) -> None:
    """Refuse arguments of a relation op that do not fit together."""
    check_floating("source", source, 3, "(batch, sources, width)")
    check_floating("target", target, 3, "(batch, targets, width)")
    check_same("source", source, "target", target, dims=(0, 2))
    check_choice("activation", activation, ACTIVATION_NAMES)
    check_choice("norm", norm, PAIR_NORMS)
    check_choice("backend", backend, backends)
    check_heads("width", source.shape[2], heads)
    check_windows(windows, heads, causal)
    check_mask("key_mask", key_mask, source.shape[0], source.shape[1], source.device)
    if causal and target.shape[1] > source.shape[1]:
        raise ValueError(
            f"{target.shape[1]} targets and {source.shape[1]} sources: a causal relation takes at most as many targets as sources, "
            "the last target at the last source"
        )
