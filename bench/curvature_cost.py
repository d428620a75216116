"""Seconds of a training step with each penalty, as multiples of a step without, and how resident memory grows over 200 steps.

The CIFAR-10 network of curvature_robustness.py on random images, batches of 128; each method's step is the median of `--repeats`. A line
of JSON a method.

    python bench/curvature_cost.py --json results/curvature-cost.jsonl
"""

import argparse
import json
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from curvature_robustness import network
from memory import status
from torch import Tensor

from relnet.curvature import HessianRegularizer, JacobianRegularizer

JACOBIAN = {
    "Hutchinson": {"norm": "frobenius"},
    "power": {"method": "power"},
    "Lanczos on J J^T": {"method": "lanczos"},
    "Golub-Kahan": {"method": "golub_kahan"},
    "exact": {"method": "exact"},
}
HESSIAN = {"Hutchinson": {"norm": "frobenius"}, "power": {"method": "power"}, "Lanczos": {"method": "lanczos"}}
CASES = [
    ("none", "none", {}),
    *(("jacobian", name, options) for name, options in JACOBIAN.items()),
    *(("hessian", name, options) for name, options in HESSIAN.items()),
]


def step_of(operator: str, options: dict[str, str], iters: int, channels: int) -> Callable[[Tensor, Tensor], None]:
    """One update of a fresh network."""
    torch.manual_seed(0)
    model = network(channels)
    optimiser = torch.optim.Adam(model.parameters())
    kind = {"none": None, "jacobian": JacobianRegularizer, "hessian": HessianRegularizer}[operator]
    regularizer = kind and kind(iters=iters, **options)

    def step(x: Tensor, y: Tensor) -> None:
        loss = F.cross_entropy(model(x), y)
        if regularizer:
            f = model if operator == "jacobian" else lambda x: F.cross_entropy(model(x), y, reduction="none")
            loss = loss + 0.01 * regularizer(f, x)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()

    return step


def seconds_of(step: Callable[[Tensor, Tensor], None], batch: int, repeats: int) -> float:
    x, y = torch.rand(batch, 3, 32, 32), torch.randint(10, (batch,))
    seconds = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        step(x, y)
        seconds.append(time.perf_counter() - start)
    # The first is longer by what is set up once.
    return statistics.median(seconds[1:])


def growth_of(step: Callable[[Tensor, Tensor], None], steps: int) -> int:
    """Bytes of resident memory gained from step 50 to the last, digits' network and batches of 128."""
    x, y = torch.rand(128, 1, 8, 8), torch.randint(10, (128,))
    for number in range(steps):
        if number == 50:
            before = status("VmRSS")
        step(x, y)
    return status("VmRSS") - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="append a JSON line a method to this file")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--iters", type=int, default=4, help="solver steps")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--steps", type=int, default=200, help="over which memory is watched, more than 50")
    given = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    about = {
        "commit": commit,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "system": platform.platform(),
    }
    plain = 0.0
    for operator, method, options in CASES:
        seconds = seconds_of(step_of(operator, options, given.iters, 3), given.batch_size, given.repeats)
        growth = growth_of(step_of(operator, options, given.iters, 1), given.steps)
        plain = plain or seconds
        print(
            f"{operator:9} {method:17} {seconds:7.3f} s a step, {seconds / plain:5.1f} times a plain one, "
            f"{growth / 1e6:+.1f} MB in {given.steps - 50} steps",
            flush=True,
        )
        if given.json:
            line = {"operator": operator, "method": method, "batch_size": given.batch_size, "iters": given.iters}
            line |= {"seconds": seconds, "times_plain": seconds / plain, "growth_bytes": growth, "steps": given.steps}
            with given.json.open("a") as file:
                file.write(json.dumps(line | about) + "\n")


if __name__ == "__main__":
    main()
