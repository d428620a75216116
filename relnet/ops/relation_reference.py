"""The definition of the relation op, over all pairs at once: readable, slow, O(B S T D) memory.

    y_j = 1/|V_j| * sum_{i in V_j} psi( mu(p_i + q_j) )

Every other backend is compared with this one, and `recomputed` calls of it over blocks are the second and higher derivatives of
the fast backends. Inputs come prepared (see `relation.py`): in heads, centred where mu is "exact", normalised where it is "approximate",
so that the pair norm left to do is "rms" or "none".
Source: CausalRN, eq. 1 to 4; docs/mathematics.md, section 1.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from relnet.ops.norm import inverse_rms
from relnet.ops.pairs import Pairs

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"exp": torch.exp, "relu": F.relu, "elu": F.elu, "gelu": F.gelu}


def pair_sum(source: Tensor, target: Tensor, invalid: Tensor | None, activation: str, norm: str) -> Tensor:
    """Sum psi(mu(p_i + q_j)) over the valid sources of each target.

    source: (B, H, I, d); target: (B, H, J, d); invalid: broadcastable to (B, H, J, I) or None. Returns (B, H, J, d).
    """
    x = source[:, :, None, :, :] + target[:, :, :, None, :]
    if invalid is not None:
        # Before the norm and after the activation: an invalid pair may hold inf, and elu(-inf) is not 0.
        x = x.masked_fill(invalid[..., None], 0.0)
    if norm == "rms":
        x = x * inverse_rms(x)
    x = ACTIVATIONS[activation](x)
    if invalid is not None:
        x = x.masked_fill(invalid[..., None], 0.0)
    return x.sum(-2)


def relation_mean_reference(source: Tensor, target: Tensor, pairs: Pairs, activation: str, norm: str) -> Tensor:
    """Return the mean over valid sources; source (B, H, T, d), target (B, H, S, d) -> (B, H, S, d)."""
    total = pair_sum(source, target, pairs.invalid_by_head(), activation, norm)
    return total / pairs.counts().clamp(min=1)[..., None]
