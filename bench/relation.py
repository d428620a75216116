"""Time every way to compute the relation op beside softmax attention at the same shape, and print a table and JSON lines.

The eager formula is what one writes down first: the pair norm, the activation and a causal mean over a (B, S, T, D) tensor, differentiated
by autograd. Rounds are interleaved, so that a change of the machine's speed meets all; medians are compared, in one run only.

    python bench/relation.py --threads 2
    python bench/relation.py --shape 64 34 192 --no-compiled
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from exp_floor import exp_floor
from memory import peak_growth
from torch import Tensor

from relnet import ops
from relnet.ops import cpu_library

Relation = Callable[[Tensor, Tensor], Tensor]
LARGEST_FORMULA = 16 * 2**30  # bytes
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"exp": torch.exp, "relu": F.relu, "elu": F.elu, "gelu": F.gelu}


def formula(activation: str) -> Relation:
    """Return the formula over all pairs at once, causal, one head, S = T, exact pair norm."""

    def eager(source: Tensor, target: Tensor) -> Tensor:
        x = source[:, None] + target[:, :, None]
        x = x - x.mean(-1, keepdim=True)
        x = ACTIVATIONS[activation](x * x.square().mean(-1, keepdim=True).rsqrt())
        length = x.shape[1]
        later = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        counts = torch.arange(1, length + 1, device=x.device)
        return x.masked_fill(later[..., None], 0.0).sum(2) / counts[:, None]

    return eager


def attention(source: Tensor, target: Tensor) -> Tensor:
    """PyTorch's fused softmax attention, one head: queries from the targets, keys and values from the sources."""
    key = source[:, None]
    return F.scaled_dot_product_attention(target[:, None], key, key, is_causal=True)[:, 0]


def backend(name: str, activation: str) -> Relation:
    """Return the op by one backend."""

    def relation(source: Tensor, target: Tensor) -> Tensor:
        return ops.relation_mean(source, target, activation=activation, backend=name)

    return relation


def seconds(relation: Relation, tensors: list[Tensor], both: bool) -> float:
    """Wall time of one forward pass, or of one forward and backward pass."""
    source, target, weights = tensors
    source, target = source.detach().requires_grad_(both), target.detach().requires_grad_(both)
    start = time.perf_counter()
    y = relation(source, target)
    if both:
        torch.autograd.grad(y, (source, target), weights)
    return time.perf_counter() - start


def processor() -> str:
    """Name of the processor, as the system tells it."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def surroundings() -> dict[str, object]:
    """Return what the figures depend on beside the code."""
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    return {
        "date": datetime.date.today().isoformat(),
        "commit": commit or None,
        "threads": torch.get_num_threads(),
        "processor": processor(),
        "isa": None if cpu_library.missing() else cpu_library.isa(),
        "torch": torch.__version__,
        "system": platform.platform(),
        "allocator": {name: value for name, value in os.environ.items() if name.startswith(("MALLOC_", "LD_PRELOAD"))},
    }


def measure(shape: list[int], activation: str, rounds: int, compiled: bool) -> dict[str, dict[str, float | None]]:
    """Return of each way the median milliseconds, forward and forward + backward, and the peak growth of resident memory in bytes."""
    batch, length, width = shape
    tensors = [torch.randn(batch, length, width) for _ in range(3)]
    relations: dict[str, Relation] = {"eager": formula(activation)}
    # Eight tensors of all pairs live in its backward pass: beyond some length it fits no machine.
    if 32 * batch * length * length * width > LARGEST_FORMULA:
        relations, compiled = {}, False
    if compiled:
        relations["compiled"] = torch.compile(formula(activation), dynamic=False)
    names = ["blocked"] if cpu_library.missing() else ["blocked", "cpu"]
    relations |= {name: backend(name, activation) for name in names}
    relations["attention"] = attention
    expected = relations["blocked"](*tensors[:2])
    for name in names:
        assert (relations[name](*tensors[:2]) - expected).norm() < 1e-6 * expected.norm(), name
    times: dict[str, dict[str, list[float]]] = {name: {"forward": [], "both": []} for name in relations}
    for counted in [False] + [True] * rounds:
        for name, relation in relations.items():
            # The slow ones would take most of the time and need it least.
            repeats = 1 if name in ("eager", "compiled") else 5
            for both, kind in ((False, "forward"), (True, "both")):
                taken = [seconds(relation, tensors, both) for _ in range(repeats)]
                if counted:
                    times[name][kind] += taken
    medians: dict[str, dict[str, float | None]] = {
        name: {kind: 1e3 * statistics.median(values) for kind, values in kinds.items()} for name, kinds in times.items()
    }
    for name, relation in relations.items():
        medians[name]["memory"] = peak_growth(lambda relation=relation: seconds(relation, tensors, True))
    return medians


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--shape", type=int, nargs=3, action="append", metavar=("B", "T", "D"), help="may stand several times"
    )
    parser.add_argument("--activation", choices=tuple(ACTIVATIONS), default="exp", help="default: exp")
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (default: 7)")
    parser.add_argument(
        "--threads", type=int, default=torch.get_num_threads(), help="default: as many as there are cores"
    )
    parser.add_argument(
        "--compiled", action=argparse.BooleanOptionalAction, default=True, help="time torch.compile's formula too"
    )
    parser.add_argument("--json", type=Path, help="append a JSON line a shape to this file")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    about = surroundings()
    print(json.dumps(about))
    for shape in given.shape or [[64, 34, 192], [8, 258, 192]]:
        batch, length, width = shape
        medians = measure(shape, given.activation, given.rounds, given.compiled)
        pairs = batch * length * (length + 1) // 2
        if given.activation == "exp" and (floor := exp_floor(pairs * width)):
            medians["exp alone"] = {"forward": floor, "both": 2 * floor, "memory": None}
        eager, rival = medians.get("eager"), medians["attention"]
        print(f"\nB={batch} T={length} D={width}, {given.activation}, exact norm, causal, float32; medians in ms")
        print(
            f"{'':10} {'forward':>9} {'both':>9} {'eager / it':>17} {'it / attention':>15} {'ns a pair':>10} {'peak MB':>8}"
        )
        for name, row in medians.items():
            faster = (
                "" if eager is None else f"{eager['forward'] / row['forward']:8.1f} {eager['both'] / row['both']:8.1f}"
            )
            memory = "" if row["memory"] is None else f"{row['memory'] / 1e6:.0f}"
            print(
                f"{name:10} {row['forward']:9.2f} {row['both']:9.2f} {faster:>17} {row['both'] / rival['both']:15.2f} "
                f"{1e6 * row['both'] / pairs:10.1f} {memory:>8}"
            )
        if given.json:
            line = {"case": "relation_mean", "shape": shape, "activation": given.activation, "rounds": given.rounds}
            with given.json.open("a") as file:
                file.write(json.dumps({**line, "medians": medians, **about}) + "\n")


if __name__ == "__main__":
    main()
