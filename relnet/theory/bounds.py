"""How many tokens T the hand-set models are proved right for, as functions of their settings (docs/theory.md).

CausalRN, K = n b key channels, d = d2, keys and values right up to factors in [1 - eta, 1 + eta]:

    n T e^rho (e^delta - 1) < e^lift - 1      (*)

`margin` is its right side, `noise` is e^rho (e^delta - 1), `votes` are least and most below.

    delta = sqrt( d / ((4 kappa^2 ((1 - eta)/(1 + eta))^2 + 1) (1 - (K + 1)/d)) )     what a pair whose keys differ can add
    rho = sqrt( (K + 1) / (d - K - 1) )
    e = 2 kappa eta sqrt(K) / (1 - eta), t = sqrt(K) e                                what is left of keys that agree
    lift = S (1 - (1 + t)/d),  S = sqrt( d / (1 + e^2 - (1 - t)^2/d) )                sqrt(d - 1) where eta = 0

Above it holds for strings without a repeat, which are copied. Strings with one are not, as long as the votes of agreeing pairs are as
good as equal (all are where eta = 0):

    T (n e^rho (e^delta - 1) + (most - least)/2) < least                              (**)

    least = e^lift - e^(-S (1 - t)/d)
    most = e^(S' (1 - (1 - t)/d)) - e^(-S' (1 + t)/d),  S' = sqrt( d / (1 - (1 + t)^2/d) )

The Transformer: n T (1 + e^-kappa' + T e^(-2 kappa')) < e^kappa' (1 - eta)/(1 + eta), kappa' = kappa (1 - 4 eta n b).
"""

import math

from relnet.theory.copying_rn import CopyingRN
from relnet.theory.copying_transformer import CopyingTransformer
from relnet.theory.residual import spread


def margin(model: CopyingRN, eta: float | None = None) -> float:
    """Return how much a pair whose keys agree adds at least to its letter beyond any other, in units of y's terms.

    eta: how far off keys and values may be; None: the settings' own in exact arithmetic. ValueError as for `most_tokens_rn`.

    >>> margin(CopyingRN(n=4), eta=0.0) > 2_600
    True
    """
    tilt, size = _agreeing(model, eta)
    return math.exp(size * (1 - (1 + tilt) / model.widths[1])) - 1 if tilt < 1 else 0.0


def votes(model: CopyingRN, eta: float | None = None) -> tuple[float, float]:
    """Return the least and the most that a pair whose keys agree adds to its letter beyond another. Arguments as for `margin`.

    Nothing is known of them, (0, inf), where as much as the letter is left of keys that agree.

    >>> least, most = votes(CopyingRN(n=4, kappa=3000.0))
    >>> 0.05 < most / least - 1 < 0.15
    True
    """
    width = model.widths[1]
    tilt, size = _agreeing(model, eta)
    if tilt >= 1:
        return 0.0, math.inf
    least = math.exp(size * (1 - (1 + tilt) / width)) - math.exp(-size * (1 - tilt) / width)
    size = math.sqrt(width / (1 - (1 + tilt) ** 2 / width))
    return least, math.exp(size * (1 - (1 - tilt) / width)) - math.exp(-size * (1 + tilt) / width)


def noise(model: CopyingRN, eta: float | None = None) -> float:
    """Return how much a pair whose keys differ adds at most to one letter beyond another. Arguments as for `margin`."""
    eta, keys, width = _checked(model, eta)
    rest = 1 - (keys + 1) / width
    distance = 4 * (model.kappa * (1 - eta) / (1 + eta)) ** 2
    delta = math.sqrt(width / ((distance + 1) * rest))
    return math.exp(math.sqrt((keys + 1) / (width * rest))) * math.expm1(delta)


def most_tokens_rn(model: CopyingRN, eta: float | None = None) -> int:
    """Return the largest T for which (*) holds: strings of (T - 2) / 2 letters are copied if they repeat no n-gram.

    And only if, with eta = 0; else see `most_tokens_converse_rn`.

    eta: None = what A and h leave in exact arithmetic, 0 = none of it, or what was measured, rounding included.
    ValueError for an eta outside [0, 1) and for other settings than the proof speaks of (exp, exact norm, no ablation).

    >>> most_tokens_rn(CopyingRN(n=4), eta=0.0)
    6955
    """
    return max(0, math.ceil(margin(model, eta) / (model.n * noise(model, eta))) - 1)


def most_tokens_converse_rn(model: CopyingRN, eta: float | None = None) -> int:
    """Return the largest T for which (**) holds: strings of (T - 2) / 2 letters that repeat an n-gram are not copied.

    Arguments and errors as for `most_tokens_rn`.

    >>> most_tokens_converse_rn(CopyingRN(n=4, kappa=3000.0)) < 30
    True
    """
    least, most = votes(model, eta)
    return max(0, math.ceil(least / (model.n * noise(model, eta) + (most - least) / 2)) - 1)


def most_tokens_transformer(model: CopyingTransformer) -> int:
    """Return the largest T that the hand-set Transformer is proved right for, and no more than for kappa = 700.

    0 where the amplitude is too small for any. ValueError where it leaves an eta outside [0, 1), of which nothing is proved.

    >>> most_tokens_transformer(CopyingTransformer(n=4, kappa=10.0)) > 5_000
    True
    """
    residual = model.residual
    eta = _in_range(spread(residual))
    kappa = model.kappa * (1 - 4 * eta * residual.n * residual.bits)
    if kappa <= 0:
        return 0
    # What lies beyond is no number in floating point.
    kappa = min(kappa, 700.0)
    # m T (u + T v) < 1 with u = e^-k (1 + e^-k), v = e^-3k: the positive root of a quadratic.
    m = model.n * (1 + eta) / (1 - eta)
    u, v = math.exp(-kappa) * (1 + math.exp(-kappa)), math.exp(-3 * kappa)
    return max(0, math.ceil(2 / (m * (u + math.sqrt(u**2 + 4 * v / m)))) - 1)


def _checked(model: CopyingRN, eta: float | None) -> tuple[float, int, int]:
    """Return eta, the key channels K and the head width d2."""
    whole = model.windows and model.delimiter_heads and model.gate
    if not whole or model.activation != "exp" or model.pair_norm != "exact":
        raise ValueError(f"{model}: the bound speaks of activation='exp', pair_norm='exact' and no ablation")
    eta = _in_range(model.spread if eta is None else eta)
    return eta, model.n * model.residual.bits, model.widths[1]


def _in_range(eta: float) -> float:
    if not 0 <= eta < 1:
        raise ValueError(f"eta={eta!r}; give a number in [0, 1), or a larger amplitude and hot")
    return eta


def _agreeing(model: CopyingRN, eta: float | None) -> tuple[float, float]:
    """Return t, how much of keys that agree is left beside the letter's 1, and S, the letter's least size in the normed pair."""
    eta, keys, width = _checked(model, eta)
    left = 2 * model.kappa * eta * math.sqrt(keys) / (1 - eta)
    tilt = math.sqrt(keys) * left
    return tilt, math.sqrt(width / (1 + left**2 - min(tilt - 1, 0.0) ** 2 / width))
