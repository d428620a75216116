"""Time of a pair of positions by length and by number of threads: forward and backward of the relation op by the fused CPU kernels.

Lengths and thread counts are gone through in turn, several rounds, so that a change of the machine's speed meets all.

    python bench/relation_scaling.py --json relation-scaling.jsonl
"""

import argparse
import json
import statistics
from pathlib import Path

import torch
from relation import backend, seconds, surroundings

SHAPES = ((8, 258), (2, 1024), (1, 4096))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="append a JSON line to this file")
    given = parser.parse_args()
    torch.manual_seed(0)
    relation, about = backend("cpu", "exp"), surroundings()
    cases = [(threads, batch, length) for batch, length in SHAPES for threads in given.threads]
    taken: dict[tuple[int, int, int], list[float]] = {case: [] for case in cases}
    for _ in range(given.rounds):
        for threads, batch, length in cases:
            torch.set_num_threads(threads)
            tensors = list(torch.randn(3, batch, length, given.width))
            pairs = batch * length * (length + 1) / 2
            taken[threads, batch, length].append(1e9 * seconds(relation, tensors, both=True) / pairs)
    medians = {case: statistics.median(times) for case, times in taken.items()}
    print(f"forward and backward, exp, exact norm, causal, D={given.width}, float32; medians in ns a pair")
    print(f"{'shape':>12}" + "".join(f"{threads:>4} threads" for threads in given.threads) + "   first / last")
    lines = []
    for batch, length in SHAPES:
        row = [medians[threads, batch, length] for threads in given.threads]
        print(f"{f'{batch} x {length}':>12}" + "".join(f"{value:12.1f}" for value in row) + f"{row[0] / row[-1]:12.2f}")
        lines.append({"batch": batch, "length": length, "ns": dict(zip(given.threads, row, strict=True))})
    if given.json:
        with given.json.open("a") as file:
            record = {"case": "relation_mean a pair, ns", "width": given.width, "rounds": given.rounds}
            file.write(json.dumps({**record, "figures": lines, **about}) + "\n")


if __name__ == "__main__":
    main()
