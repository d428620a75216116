"""What the hand-set CausalRN needs and what it does without: one setting changed at a time."""

from typing import Any

# What is changed -> the settings of CopyingRN that do it. Pair norms without exact pairs overflow at large gains.
NEEDED: dict[str, dict[str, Any]] = {
    "no heads for the first letters": {"delimiter_heads": False},
    "those heads without their gate": {"gate": False},
    "no +A and -A": {"amplitude": 0.0},
    "no hot channel h": {"hot": 0.0},
    "no windows in block 1": {"windows": False},
    "pair norm approximate": {"pair_norm": "approximate"},
    "pair norm none, kappa 1": {"pair_norm": "none", "kappa": 1.0},
}
NOT_NEEDED: dict[str, dict[str, Any]] = {
    "nothing changed": {},
    "kappa 3": {"kappa": 3.0},
    "kappa 3,000": {"kappa": 3000.0},
    "pair norm rms": {"pair_norm": "rms"},
    "ReLU": {"activation": "relu"},
    "ELU": {"activation": "elu"},
    "GELU": {"activation": "gelu"},
    "small weights: A 10, h 4, kappa 2, g 10": {"amplitude": 10.0, "hot": 4.0, "kappa": 2.0, "gain": 10.0},
}
