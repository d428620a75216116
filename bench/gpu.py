"""What bench/gpu.sh runs: the Triton kernels held to the definition on this GPU, then timed beside attention and PyTorch's own paths.

Nothing is timed if a check fails. Rounds are interleaved, so that a change of clock meets all; medians are compared, in one run only.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from relation import attention, backend, formula, surroundings
from torch import Tensor

from relnet import ops
from relnet.ops import relation_triton

NORMS = ("exact", "rms", "approximate", "none")
ACTIVATIONS = ("exp", "relu", "elu", "gelu")
# Pairs times channels beyond which the formula over all pairs at once has no room.
MOST_AT_ONCE = 1 << 28


class Check(NamedTuple):
    """One call to compare with the definition in float64."""

    B: int
    T: int
    S: int
    D: int
    dtype: torch.dtype = torch.float32
    masked: bool = False
    exp_on_fma: bool = False
    tile: int = 0
    arguments: tuple[tuple[str, object], ...] = ()


def checks(small: bool) -> Iterator[Check]:
    """Yield every option of the op, every tile, and widths and lengths that fill no tile."""
    for norm in NORMS:
        for activation in ACTIVATIONS:
            options = {"norm": norm, "activation": activation, "heads": 2, "windows": [5, None]}
            yield Check(2, 37, 21, 24, masked=True, arguments=tuple(options.items()))
    yield Check(2, 20, 33, 24, masked=True, arguments=(("heads", 2), ("causal", False)))
    yield Check(2, 37, 37, 24, dtype=torch.bfloat16, masked=True, arguments=(("heads", 2),))
    if small:
        return
    for tile in range(3):
        yield Check(2, 258, 258, 192, tile=tile)
        yield Check(1, 1, 1, 60, tile=tile)
    yield Check(2, 258, 258, 192, exp_on_fma=True)
    yield Check(2, 258, 258, 192, dtype=torch.bfloat16)
    yield Check(1, 2000, 2000, 64, masked=True, arguments=(("windows", [100]),))
    yield Check(1, 3000, 1, 192)
    yield Check(1, 40, 40, 3072)


def run(check: Check, inputs: list[Tensor], mask: Tensor | None, name: str) -> tuple[Tensor, ...]:
    """Return y and the gradients of p and q."""
    p, q, grad = inputs
    p, q = p.detach().requires_grad_(), q.detach().requires_grad_()
    y = ops.relation_mean(p, q, key_mask=mask, backend=name, **dict(check.arguments))
    return y.detach(), *torch.autograd.grad(y, (p, q), grad)


def compare(check: Check, device: torch.device) -> dict[str, object]:
    """Return the relative errors of one call, whether they are allowed, and whether a second call gave the same bits."""
    lengths = (check.T, check.S, check.S)
    inputs = [torch.randn(check.B, n, check.D, device=device).to(check.dtype) for n in lengths]
    mask = torch.rand(check.B, check.T, device=device) > 0.3 if check.masked else None
    if mask is not None:
        # What stands at a pad may be anything.
        inputs[0] = inputs[0].masked_fill(~mask[..., None], torch.nan)
    actual, again = run(check, inputs, mask, "triton"), run(check, inputs, mask, "triton")
    exact = [x.double() for x in inputs]
    whole = check.B * check.T * check.S * check.D < MOST_AT_ONCE // 16
    expected = run(check, exact, mask, "reference" if whole else "blocked")
    errors = [float((a.double() - e).norm() / e.norm()) for a, e in zip(actual, expected, strict=True)]
    same = all(torch.equal(a, b) for a, b in zip(actual, again, strict=True))
    # Rounding to bfloat16, or that of float32 as gradients magnify it.
    allowed = 4e-3 if check.dtype == torch.bfloat16 else 2e-6
    described = {**check._asdict(), "dtype": str(check.dtype)[6:], "arguments": dict(check.arguments)}
    return {**described, "errors": errors, "same_bits": same, "passed": same and max(errors) <= allowed}


def correctness(small: bool, device: torch.device) -> Iterator[dict[str, object]]:
    """Run the checks, each with one tile, so that nothing is measured for choosing one."""
    from relnet.ops import relation_triton_kernels as kernels

    every_tile = kernels.tiles
    for check in checks(small):

        def one_tile(d: int, values_a_lane: int, tile: int = check.tile) -> list:
            found = every_tile(d, values_a_lane)
            return [found[min(tile, len(found) - 1)]]

        kernels.tiles, relation_triton.EXP_ON_FMA = one_tile, check.exp_on_fma
        kernels._tuned.cache_clear()
        yield {"case": "correctness", **compare(check, device)}
    kernels.tiles, relation_triton.EXP_ON_FMA = every_tile, False
    kernels._tuned.cache_clear()


def milliseconds(relation: Callable[[Tensor, Tensor], Tensor], inputs: list[Tensor], both: bool) -> float:
    """Time one forward pass, or one forward and backward pass, on the GPU's own clock."""
    p, q, grad = inputs
    p, q = p.detach().requires_grad_(both), q.detach().requires_grad_(both)
    if on_gpu := p.device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
    began = time.perf_counter()
    y = relation(p, q)
    if both:
        torch.autograd.grad(y, (p, q), grad)
    if not on_gpu:
        return 1e3 * (time.perf_counter() - began)
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)


def on_fma(p: Tensor, q: Tensor) -> Tensor:
    """The Triton kernels with the exp of the FMA units, forward only: the switch is read when a kernel starts."""
    relation_triton.EXP_ON_FMA = True
    try:
        return ops.relation_mean(p, q, backend="triton")
    finally:
        relation_triton.EXP_ON_FMA = False


def measure(shape: tuple[int, int, int], dtype: torch.dtype, rounds: int, compiled: bool, device: torch.device) -> dict:
    """Return the median milliseconds of each way, forward and forward + backward."""
    B, T, D = shape
    inputs = [torch.randn(B, T, D, device=device).to(dtype) for _ in range(3)]
    relations = {name: backend(name, "exp") for name in ("blocked", "triton")}
    relations |= {"triton, exp on FMA units forward": on_fma, "attention": attention}
    if B * T * T * D < MOST_AT_ONCE:
        relations["eager"] = formula("exp")
        if compiled:
            relations["compiled"] = torch.compile(formula("exp"), dynamic=False)
    times: dict[str, dict[str, list[float]]] = {name: {"forward": [], "both": []} for name in relations}
    for counted in [False, False] + [True] * rounds:
        for name, relation in relations.items():
            repeats = 10 if counted and name not in ("blocked", "eager") else 1
            for both, kind in ((False, "forward"), (True, "both")):
                taken = [milliseconds(relation, inputs, both) for _ in range(repeats)]
                if counted:
                    times[name][kind] += taken
    return {name: {kind: statistics.median(all_) for kind, all_ in kinds.items()} for name, kinds in times.items()}


def main() -> int:
    """Check, time, print; 1 if a check failed, 2 without a GPU."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True, help="append a JSON line a result to this file")
    parser.add_argument("--dry-run", action="store_true", help="tiny shapes, interpreted on a CPU")
    given = parser.parse_args()
    if not given.dry_run and not torch.cuda.is_available():
        print("no CUDA GPU: torch.cuda.is_available() is False; --dry-run needs none", file=sys.stderr)
        return 2
    began = time.perf_counter()
    device = torch.device("cpu" if given.dry_run else "cuda")
    torch.manual_seed(0)
    given.json.parent.mkdir(parents=True, exist_ok=True)

    def write(line: dict[str, object]) -> None:
        with given.json.open("a") as file:
            file.write(json.dumps(line) + "\n")

    about = {**surroundings(), "seed": 0, "gpu": None if given.dry_run else torch.cuda.get_device_name()}
    write({"case": "surroundings", **about})
    failed = 0
    for line in correctness(given.dry_run, device):
        write(line)
        failed += not line["passed"]
        if not line["passed"]:
            print(f"FAILED: {line}")
    print(f"checks against the definition: {failed} failed ({time.perf_counter() - began:.0f} s)")
    if failed:
        return 1
    shapes = [((1, 8, 24), torch.float32)] if given.dry_run else []
    shapes += [] if given.dry_run else [((8, 258, 192), torch.float32), ((64, 34, 192), torch.float32)]
    shapes += [] if given.dry_run else [((1, 4096, 192), torch.float32), ((8, 258, 192), torch.bfloat16)]
    for number, (shape, dtype) in enumerate(shapes):
        # Compiling the formula takes half a minute a shape: the first one stands for all.
        medians = measure(shape, dtype, 1 if given.dry_run else 5, number == 0 and not given.dry_run, device)
        write({"case": "relation_mean", "shape": shape, "dtype": str(dtype)[6:], "milliseconds": medians, **about})
        print(f"\nB={shape[0]} T={shape[1]} D={shape[2]} {dtype}, exp, exact norm, causal; medians in ms")
        print(f"{'':34} {'forward':>10} {'both':>10} {'it / attention':>15}")
        for name, row in medians.items():
            ratio = row["both"] / medians["attention"]["both"]
            print(f"{name:34} {row['forward']:10.3f} {row['both']:10.3f} {ratio:15.2f}")
    print(f"\n{time.perf_counter() - began:.0f} s in all")
    return 0


if __name__ == "__main__":
    sys.exit(main())
