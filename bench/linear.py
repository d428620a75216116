"""Time the linear relation's fused kernels beside two ways in PyTorch, a token's time by length, and a decoder's step.

"logcumsumexp" is what one writes down first, q + logcumsumexp(p) - log n; "plain" is relnet's own form in PyTorch. Rounds are
interleaved, so that a change of the machine's speed meets all; medians are compared, in one run only.

    python bench/linear.py --threads 2
    python bench/linear.py --shape 1 65536 192 --lengths 65536 1000000 --json linear.jsonl
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from relation import Relation, seconds, surroundings
from torch import Tensor

from relnet import ops
from relnet.ops import linear_sums, relation_linear_cpu


def logcumsumexp(source: Tensor, target: Tensor) -> Tensor:
    """The log-mean by PyTorch's own scan."""
    counts = torch.arange(1, source.shape[1] + 1, dtype=source.dtype)
    return target + source.logcumsumexp(1) - counts.log()[:, None]


def plain(source: Tensor, target: Tensor) -> Tensor:
    """The log-mean by relnet's form in PyTorch."""
    return linear_sums.log_mean_by(linear_sums.log_sums, source, target, None, None, True)[0]


def fused(source: Tensor, target: Tensor) -> Tensor:
    """The log-mean by the kernels."""
    return ops.linear_relation(source, target, backend="cpu")[0]


def normalised(source: Tensor, target: Tensor) -> Tensor:
    """The same with the approximate pair norm, which comes before the kernels."""
    return ops.linear_relation(source, target, norm="approximate", backend="cpu")[0]


WAYS: dict[str, Relation] = {
    "logcumsumexp": logcumsumexp,
    "plain": plain,
    "cpu": fused,
    "cpu, approximate": normalised,
}


def measure(ways: dict[str, Relation], shape: list[int], rounds: int) -> dict[str, dict[str, float]]:
    """Return the median milliseconds of each way, forward and forward + backward."""
    tensors = [torch.randn(shape) for _ in range(3)]
    times: dict[str, dict[str, list[float]]] = {name: {"forward": [], "both": []} for name in ways}
    for counted in [False] + [True] * rounds:
        for name, way in ways.items():
            for both, kind in ((False, "forward"), (True, "both")):
                taken = seconds(way, tensors, both)
                if counted:
                    times[name][kind].append(taken)
    return {
        name: {kind: 1e3 * statistics.median(values) for kind, values in kinds.items()} for name, kinds in times.items()
    }


def check(shape: list[int]) -> None:
    """Refuse to time kernels that are wrong."""
    source, target = torch.randn(2, *shape[:1], min(shape[1], 1000), shape[2])
    error = (fused(source, target) - logcumsumexp(source.double(), target.double())).abs().max()
    assert error < 1e-5, f"the kernels are off by {error}"


def step_microseconds(batch: int, width: int, rounds: int) -> dict[str, float]:
    """Return the median time of one more token for each row, without gradients."""
    source, target = torch.randn(2, batch, 1, width)
    times: dict[str, list[float]] = {"plain": [], "cpu": []}
    with torch.no_grad():
        state = ops.linear_relation(source, target)[1]
        for _ in range(50 * rounds):
            start = time.perf_counter()
            linear_sums.log_mean_by(linear_sums.log_sums, source, target, None, state, True)
            middle = time.perf_counter()
            ops.linear_relation(source, target, state=state, backend="cpu")
            times["plain"].append(middle - start)
            times["cpu"].append(time.perf_counter() - middle)
    return {name: 1e6 * statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--shape", type=int, nargs=3, action="append", metavar=("B", "T", "D"), help="may stand several times"
    )
    parser.add_argument("--lengths", type=int, nargs="*", default=[4096, 65_536, 1_000_000], help="B = 1, D = 192")
    parser.add_argument("--rounds", type=int, default=5, help="interleaved rounds (default: 5)")
    parser.add_argument(
        "--threads", type=int, default=torch.get_num_threads(), help="default: as many as there are cores"
    )
    parser.add_argument("--json", type=Path, help="append a JSON line a table to this file")
    given = parser.parse_args()
    if reason := relation_linear_cpu.refuses(torch.zeros(1)):
        parser.error(f"no kernels to time: {reason}")
    torch.set_num_threads(given.threads)
    torch.manual_seed(0)
    about = surroundings()
    print(json.dumps(about))

    def record(case: str, figures: object, **where: object) -> None:
        if given.json:
            with given.json.open("a") as file:
                file.write(
                    json.dumps({"case": case, **where, "rounds": given.rounds, "figures": figures, **about}) + "\n"
                )

    for shape in given.shape or [[1, 65_536, 192], [32, 256, 768]]:
        check(shape)
        medians = measure(WAYS, shape, given.rounds)
        print(f"\nlog-mean, B={shape[0]} T={shape[1]} D={shape[2]}, causal, float32; medians in ms")
        print(f"{'':18} {'forward':>10} {'both':>10} {'times faster':>14}   (both, than logcumsumexp)")
        for name, row in medians.items():
            speed = medians["logcumsumexp"]["both"] / row["both"]
            print(f"{name:18} {row['forward']:10.2f} {row['both']:10.2f} {speed:14.1f}")
        record("linear_relation", medians, shape=shape)
    tokens = {}
    for length in given.lengths:
        # What reading two tensors and writing a fresh one takes: the memory's share, which grows where the caches end.
        rows = measure({"cpu": fused, "addition": torch.add}, [1, length, 192], given.rounds)
        tokens[length] = {
            name: {kind: 1e6 * milliseconds / length for kind, milliseconds in row.items()}
            for name, row in rows.items()
        }
    if tokens:
        print(f"\na token, B=1 D=192; medians in ns\n{'T':>10} {'forward':>10} {'both':>10} {'addition, both':>16}")
        for length, row in tokens.items():
            print(
                f"{length:10} {row['cpu']['forward']:10.0f} {row['cpu']['both']:10.0f} {row['addition']['both']:16.0f}"
            )
        record("linear_relation a token, ns", tokens)
    for batch, width in ((1, 192), (32, 768)):
        row = step_microseconds(batch, width, given.rounds)
        print(
            f"\none step of decoding, B={batch} D={width}; medians in us: plain {row['plain']:.0f}, cpu {row['cpu']:.0f}"
        )
        record("linear_relation step, us", row, shape=[batch, 1, width])


if __name__ == "__main__":
    main()
