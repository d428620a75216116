"""Time the blocked relation op against the eager formula, forward + backward, and print one JSON line.

The formula is what one writes down first: the pair norm, exp and a causal mean over a (B, S, T, D) tensor, differentiated by autograd; once
with the norm written out and once with PyTorch's fused layer norm (which gives NaN on equal rows). Rounds are interleaved, so that a change
of the machine's speed meets all; medians are compared. At the default size the goal is a ratio of at least 4 with 2 threads.

    python bench/blocked.py --threads 2
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from relnet import ops

Relation = Callable[[Tensor, Tensor], Tensor]


def causal_mean_of_exp(x: Tensor) -> Tensor:
    """Mean of exp(x) over the sources up to each target; x (B, S, T, D), S = T."""
    length = x.shape[1]
    later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
    total = x.exp().masked_fill(later[..., None], 0.0).sum(2)
    return total / torch.arange(1, length + 1, device=x.device)[:, None]


def eager(source: Tensor, target: Tensor) -> Tensor:
    """The formula with the pair norm written out."""
    x = source[:, None] + target[:, :, None]
    x = x - x.mean(-1, keepdim=True)
    return causal_mean_of_exp(x * x.square().mean(-1, keepdim=True).rsqrt())


def eager_layer_norm(source: Tensor, target: Tensor) -> Tensor:
    """The formula with PyTorch's fused layer norm."""
    return causal_mean_of_exp(F.layer_norm(source[:, None] + target[:, :, None], source.shape[-1:], eps=0))


def blocked(source: Tensor, target: Tensor) -> Tensor:
    """The same by the blocked backend."""
    return ops.relation_mean(source, target, backend="blocked")


def seconds(relation: Relation, source: Tensor, target: Tensor, weights: Tensor) -> float:
    """Wall time of one forward + backward."""
    start = time.perf_counter()
    torch.autograd.grad(relation(source, target), (source, target), weights)
    return time.perf_counter() - start


def processor() -> str:
    """Name of the processor, as the system tells it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, max_help_position=30),
    )
    parser.add_argument("--batch", type=int, default=64, help="B, rows (default: %(default)s)")
    parser.add_argument("--length", type=int, default=34, help="T = S, tokens a row (default: %(default)s)")
    parser.add_argument("--width", type=int, default=192, help="D, channels (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=15, help="interleaved rounds (default: %(default)s)")
    parser.add_argument(
        "--threads", type=int, default=torch.get_num_threads(), help="torch threads (default: %(default)s)"
    )
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    source, target, weights = torch.randn(3, given.batch, given.length, given.width).unbind(0)
    relations: list[Relation] = [eager, eager_layer_norm, blocked]
    difference = (blocked(source, target) - eager(source, target)).norm() / eager(source, target).norm()
    source.requires_grad_()
    target.requires_grad_()
    times: dict[str, list[float]] = {relation.__name__: [] for relation in relations}
    # The first round warms up and does not count.
    for counts in [False] + [True] * given.rounds:
        for relation in relations:
            taken = seconds(relation, source, target, weights)
            if counts:
                times[relation.__name__].append(taken)
    median = {name: statistics.median(values) for name, values in times.items()}
    row = {
        "case": "relation_mean, norm exact, causal, forward + backward",
        "batch": given.batch,
        "length": given.length,
        "width": given.width,
        "rounds": given.rounds,
        **{f"{name}_ms": round(1e3 * value, 2) for name, value in median.items()},
        "ratio": round(median["eager"] / median["blocked"], 2),
        "ratio_layer_norm": round(median["eager_layer_norm"] / median["blocked"], 2),
        "relative_difference": float(difference),
        "threads": torch.get_num_threads(),
        "processor": processor(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(),
    }
    print(json.dumps(row))


if __name__ == "__main__":
    main()
