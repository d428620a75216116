"""The definitions that relnet.ops is held against, as loops over single numbers or as one dense formula, in float64."""

import math

import torch
from torch import Tensor


def plain_norm_of(row: list[float], centred: bool = True) -> list[float]:
    """Layer norm of one list of channels (centred=False: root mean square norm); 0 where the variance is 0."""
    mean = math.fsum(row) / len(row) if centred else 0.0
    variance = math.fsum((x - mean) ** 2 for x in row) / len(row)
    return [(x - mean) / math.sqrt(variance) if variance > 0 else 0.0 for x in row]


PSI = {
    "exp": math.exp,
    "relu": lambda z: max(z, 0.0),
    "elu": lambda z: z if z > 0 else math.expm1(z),
    "gelu": lambda z: z * (1 + math.erf(z / math.sqrt(2))) / 2,
}


def pair_norm_of(p: list[float], q: list[float], norm: str) -> list[float]:
    """mu(p + q) for one pair of channel lists."""
    if norm == "approximate":
        return [a + b for a, b in zip(plain_norm_of(p), plain_norm_of(q), strict=True)]
    pair = [a + b for a, b in zip(p, q, strict=True)]
    return pair if norm == "none" else plain_norm_of(pair, centred=norm == "exact")


def valid_sources(target: int, S: int, T: int, causal: bool, mask: list[bool], window: int | None) -> list[int]:
    """V_j: the last `window` real sources up to the target's own position; bidirectional: every real source."""
    real = [i for i in range(T) if mask[i] and (not causal or i <= target + T - S)]
    return real if window is None else real[-window:]


def relation_by_loops(
    source, target, *, activation="exp", norm="exact", causal=True, key_mask=None, heads=1, windows=None
):
    """y_j = 1/|V_j| sum psi(mu(p_i + q_j)), one number at a time."""
    rows, T, D = source.shape
    S, d = target.shape[1], D // heads
    y = torch.zeros(rows, S, D, dtype=torch.float64)
    for b in range(rows):
        mask = [True] * T if key_mask is None else key_mask[b].tolist()
        for head in range(heads):
            channels = slice(head * d, (head + 1) * d)
            for j in range(S):
                seen = valid_sources(j, S, T, causal, mask, windows[head] if windows else None)
                pairs = [
                    pair_norm_of(source[b, i, channels].tolist(), target[b, j, channels].tolist(), norm) for i in seen
                ]
                for h in range(d) if seen else ():
                    y[b, j, head * d + h] = math.fsum(PSI[activation](pair[h]) for pair in pairs) / len(seen)
    return y


def decayed_cumsum_by_loops(decay: Tensor, x: Tensor) -> Tensor:
    """y_t = decay_t y_{t-1} + x_t along dimension 1."""
    y = [x[:, 0]]
    for t in range(1, x.shape[1]):
        y.append(decay[:, t] * y[-1] + x[:, t])
    return torch.stack(y, dim=1)


def linear_attention_by_pairs(
    query: Tensor, key: Tensor, value: Tensor, causal: bool, key_mask: Tensor | None
) -> Tensor:
    """Attention with features elu + 1 by its T x T matrix of weights, in float64; 0 for a query without a key."""
    query, key, value = query.double(), key.double(), value.double()
    query, key = (torch.where(x > 0, x + 1, x.clamp(max=0).exp()) for x in (query, key))
    weights = query @ key.transpose(-1, -2)
    invalid = torch.zeros(weights.shape[-2:], dtype=torch.bool)
    if causal:
        invalid = torch.ones_like(invalid).triu(1)
    if key_mask is not None:
        invalid = invalid | ~key_mask[:, None, None, :]
    weights = weights.masked_fill(invalid, 0.0)
    total = weights.sum(-1, keepdim=True)
    return (weights / torch.where(total == 0, 1.0, total)) @ value


MASKS = ("none", "left", "right", "inner", "empty row", "only the middle")


def make_mask(kind: str, rows: int, T: int) -> Tensor | None:
    """(rows, T) True = real token; each row is padded by another number of tokens."""
    if kind == "none":
        return None
    at = torch.arange(T)
    pads = (torch.arange(rows)[:, None] + T // 3).clamp(max=T - 1)
    if kind == "left":
        return at >= pads
    if kind == "right":
        return at < T - pads
    if kind == "inner":
        return (at + torch.arange(rows)[:, None]) % 3 != 1
    if kind == "only the middle":
        return ((at >= pads) & (at < T - pads // 2)).clone()
    mask = at >= pads
    mask[-1] = False
    return mask
