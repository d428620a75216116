"""Claims that are identities, measured: the linear form beside the definition, the stabilised sum beside the plain one below the sum norm.

    python bench/exactness.py --json results/exactness.jsonl       (a minute on one core)

linear form: exp of norm "none" over T tokens: seconds, forward and with the backward pass, bytes of the state to go on from, and where T is
small enough for it the relative error against the definition in float64.
stability: exp(a - max a) / sum for exp(a), then a norm without eps: relative difference from float64, for pre-activations of growing
scale.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from relation import surroundings

from relnet import ops

WIDTH = 192
# Below it the definition's (T, T, D) tensor fits.
CHECKED = 512
LENGTHS = (128, 512, 4096, 32768, 131072)
SCALES = (1.0, 5.0, 20.0)


def relative(found: torch.Tensor, exact: torch.Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


def linear_form(length: int) -> dict:
    generator = torch.Generator().manual_seed(length)
    source, target = (torch.randn(1, length, WIDTH, generator=generator) for _ in range(2))
    error = None
    if length <= CHECKED:
        exact = ops.relation_mean(source.double(), target.double(), norm="none", backend="reference")
        error = relative(ops.relation_mean(source, target, norm="none", backend="linear"), exact)
    seconds, training_seconds = [], []
    for _ in range(5):
        began = time.perf_counter()
        ops.relation_mean(source, target, norm="none", backend="linear")
        seconds.append(time.perf_counter() - began)
    grad = torch.randn(1, length, WIDTH, generator=generator)
    inputs = source.clone().requires_grad_(), target.clone().requires_grad_()
    for _ in range(5):
        began = time.perf_counter()
        torch.autograd.grad(ops.relation_mean(*inputs, norm="none", backend="linear"), inputs, grad)
        training_seconds.append(time.perf_counter() - began)
    _, state = ops.linear_relation(source, target)
    kept = sum(tensor.nbytes for tensor in state)
    return {
        "case": "linear form",
        "length": length,
        "width": WIDTH,
        "error": error,
        "seconds": min(seconds),
        "training_seconds": min(training_seconds),
        "state_bytes": kept,
    }


def stability(scale: float, length: int = 64) -> dict:
    generator = torch.Generator().manual_seed(0)
    source, target = (scale * torch.randn(1, length, WIDTH, generator=generator) for _ in range(2))
    exact = ops.plain_norm(ops.relation_mean(source.double(), target.double(), norm="none", backend="reference"))
    log_mean, _ = ops.linear_relation(source, target)
    largest = log_mean.amax(-1, keepdim=True)
    stabilised = ops.plain_norm((log_mean - largest).exp())
    return {"case": "stability", "length": length, "width": WIDTH, "scale": scale, "error": relative(stabilised, exact)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="append a JSON line a case to this file")
    given = parser.parse_args()
    about = surroundings()
    for line in [*map(linear_form, LENGTHS), *map(stability, SCALES)]:
        print(json.dumps(line))
        if given.json:
            with given.json.open("a") as file:
                file.write(json.dumps({**line, **about}) + "\n")


if __name__ == "__main__":
    main()
