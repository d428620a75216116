"""Measure what interpolating in the pair scale would cost and err: exp(s x) = sum_k l_k(s) exp(s_k p) exp(s_k q), a matrix product a node.

    relnet train copying --length 16 --out RUN
    python bench/interpolation.py RUN --json results/interpolation.jsonl

Bands of s are fixed and geometric, a pair's own s decides its band, and a band is left out only where no pair lies in it. Sources and
targets are random ones whose scales spread as little as at initialisation, and those of every block of a trained run. Only the forward pass
is written: a backward pass takes three times its matrix products. relnet has no such backend; docs/numerics.md says why.
"""

import argparse
import json
import math
import time
from pathlib import Path
from unittest import mock

import torch
from relation import formula, surroundings
from torch import Tensor

from relnet import ops, run

RATIO = 1.5


def nodes(low: float, high: float, num: int) -> Tensor:
    """Chebyshev nodes of a band, (num,)."""
    angles = (torch.arange(num, dtype=torch.float64) + 0.5) * math.pi / num
    return (low + high) / 2 + (high - low) / 2 * torch.cos(angles)


def lagrange(scales: Tensor, at: Tensor) -> list[Tensor]:
    """l_k(scales) for every node, each as large as scales."""
    weights = [1 / math.prod(float(a - b) for b in at if b != a) for a in at]
    differences = [scales - float(a) for a in at]
    products = []
    for k, weight in enumerate(weights):
        product = torch.full_like(scales, weight)
        for other, difference in enumerate(differences):
            if other != k:
                product = product * difference
        products.append(product)
    return products


def interpolated(source: Tensor, target: Tensor, num: int, lowest: float, highest: float) -> tuple[Tensor, int, float]:
    """Return y (causal, exp, exact norm, one head), the number of bands that pairs fell into, and the share of pairs outside all of them,
    which are computed one by one."""
    length, width = source.shape[1:]
    p = source - source.mean(-1, keepdim=True)
    q = target - target.mean(-1, keepdim=True)
    # The screen may use the product form: it decides nothing but the band, and the direct sum would cost as much as the exp it saves.
    squares = p.square().sum(-1)[:, None] + q.square().sum(-1)[:, :, None] + 2 * q @ p.mT
    scales = (squares / width).clamp_min(1e-30).rsqrt()
    seen = torch.ones(length, length, dtype=torch.bool).tril()
    y = torch.zeros_like(q)
    bands = 0
    low = lowest
    while low < highest:
        high = low * RATIO
        inside = (scales >= low) & (scales < high) & seen
        if bool(inside.any()):
            bands += 1
            at = nodes(low, high, num)
            clamped = scales.clamp(low, high)
            for node, factor in zip(at.tolist(), lagrange(clamped, at), strict=True):
                y += torch.exp(node * q) * ((factor * inside) @ torch.exp(node * p))
        low = high
    outside = (((scales < lowest) | (scales >= low)) & seen).nonzero(as_tuple=True)
    if len(outside[0]):
        rows, targets, sources = outside
        x = p[rows, sources] + q[rows, targets]
        s = x.square().mean(-1, keepdim=True).rsqrt()
        y.index_put_((rows, targets), torch.exp(s * x), accumulate=True)
    share = len(outside[0]) / int(seen.sum()) / len(source)
    return y / torch.arange(1, length + 1)[:, None], bands, share


def pairs(folder: Path | None, shape: list[int]) -> dict[str, tuple[Tensor, Tensor]]:
    """Sources and targets by name: "random", and "block N" for the blocks of a run."""
    batch, length, width = shape
    generator = torch.Generator().manual_seed(0)
    found = {"random": tuple(torch.randn(2, batch, length, width, generator=generator) * 0.28)}
    if folder:
        config, model = run.load(folder)
        relation_mean = ops.relation_mean

        def recorded(source: Tensor, target: Tensor, **arguments: object) -> Tensor:
            found[f"block {len(found)}"] = source, target
            return relation_mean(source, target, **arguments)

        with torch.no_grad(), mock.patch.object(ops, "relation_mean", recorded):
            model(config.task.sample(64, seed=1, index=0).inputs)
    return found


def best(function, repeats: int) -> float:
    """Least wall time in milliseconds."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times)


def main() -> None:
    """Measure both kinds of scales at every number of nodes, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, nargs="?", help="folder of a trained CausalRN")
    parser.add_argument(
        "--shape", type=int, nargs=3, default=[8, 258, 192], metavar=("B", "T", "D"), help="of the random ones"
    )
    parser.add_argument("--json", type=Path, help="append a JSON line a row to this file")
    given = parser.parse_args()
    about = surroundings()
    print(json.dumps(about))
    print(
        f"{'scales':8} {'nodes':>5} {'bands':>5} {'direct':>8} {'error':>9} {'ms':>8} {'eager / it':>10} {'blocked / it':>12}   (forward)"
    )
    for kind, (source, target) in pairs(given.run, given.shape).items():
        exact = ops.relation_mean(source.double(), target.double(), backend="blocked")
        eager = best(lambda a=source, b=target: formula("exp")(a, b), 2)
        blocked = best(lambda a=source, b=target: ops.relation_mean(a, b, backend="blocked"), 5)
        for num in (6, 8):
            y, bands, share = interpolated(source, target, num, 0.2, 12.0)
            taken = best(lambda a=source, b=target, n=num: interpolated(a, b, n, 0.2, 12.0), 5)
            error = float((y - exact).norm() / exact.norm())
            row = {"scales": kind, "nodes": num, "bands": bands, "direct": share, "error": error, "milliseconds": taken}
            row |= {"eager": eager, "blocked": blocked}
            print(
                f"{kind:8} {num:5} {bands:5} {share:8.4f} {error:9.1e} {taken:8.1f} {eager / taken:10.1f} {blocked / taken:12.2f}"
            )
            if given.json:
                with given.json.open("a") as file:
                    file.write(
                        json.dumps({"case": "interpolation", "shape": list(source.shape), **row, **about}) + "\n"
                    )


if __name__ == "__main__":
    main()
