"""Where attention learns of positions: rotations of queries and keys (RoPE), biases (ALiBi), windows (Hard-ALiBi).

A position is the number of real tokens before a token, so padding moves nothing.
Source: Su et al. 2021 (RoPE); Press et al. 2022 (ALiBi); Jelassi et al. 2024, section 3 (Hard-ALiBi).
"""

import torch
from torch import Tensor

ROPE_BASE = 10_000.0


def rotate(x: Tensor, positions: Tensor) -> Tensor:
    """Rotate pairs of channels by an angle proportional to the position (RoPE, halves layout).

    x: (B, H, S, d), d even; positions: (B or 1, S) int64. Channel k turns with channel k + d/2 by position * 10000^(-2k/d).
    """
    half = x.shape[-1] // 2
    # Angles in float32 at least: a position of 1,000 has no exact bfloat16.
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    frequency = ROPE_BASE ** (-torch.arange(half, device=x.device, dtype=dtype) / half)
    angle = positions[:, None, :, None].to(dtype) * frequency
    cos, sin = angle.cos(), angle.sin()
    first, second = x[..., :half].to(dtype), x[..., half:].to(dtype)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1).to(x.dtype)


def alibi_slopes(heads: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return 2^(-8 h / H) for h = 1..H."""
    return 2.0 ** (-8.0 * torch.arange(1, heads + 1, device=device, dtype=dtype) / heads)


def alibi_bias(heads: int, query_positions: Tensor, key_positions: Tensor, dtype: torch.dtype) -> Tensor:
    """Return -slope * |distance|, (B or 1, H, S, T) of this dtype; positions (B or 1, S) and (B or 1, T)."""
    distance = (query_positions[:, :, None] - key_positions[:, None, :]).abs()
    slopes = alibi_slopes(heads, distance.device, torch.promote_types(dtype, torch.float32))
    return (-slopes[None, :, None, None] * distance[:, None]).to(dtype)
