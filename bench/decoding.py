"""Time generation: a step of the copying paper's models, what it is spent on, and a linear model's step along a long text.

The published procedure has no state: the formula over all pairs of the whole context, anew for each token. It is timed for a few tokens
and multiplied by their number. Medians of steps in one process; the last step reads token `--length`.

    python bench/decoding.py --json decoding.jsonl
    python bench/decoding.py --long 100000
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from memory import status
from relation import surroundings
from torch import Tensor

from relnet import nn, ops
from relnet.nn import relation

STEPS = 30
PUBLISHED_TOKENS = 5


def model(
    mixer: nn.CausalMixerConfig, width: int, depth: int, context: int | None, mlp: int | None = None
) -> nn.SequenceModel:
    torch.manual_seed(0)
    positions = "none" if context is None else "learned"
    return nn.SequenceModel(nn.ModelConfig(29, width, depth, context, mixer, mlp, positions=positions)).eval()


def timed(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


@torch.inference_mode()
def step_seconds(tested: nn.SequenceModel, batch: int, length: int) -> list[float]:
    """Seconds of the steps up to token `length`."""
    _, state = tested(torch.randint(29, (batch, length - STEPS)))
    token, seconds = torch.randint(29, (batch, 1)), []
    for _ in range(STEPS):
        began = time.perf_counter()
        _, state = tested(token, state)
        seconds.append(time.perf_counter() - began)
    return seconds[STEPS // 3 :]


def formula(source: Tensor, target: Tensor) -> Tensor:
    """CausalRN's mean as one writes it down first: all pairs at once."""
    x = source[:, None] + target[:, :, None]
    x = x - x.mean(-1, keepdim=True)
    x = (x * x.square().mean(-1, keepdim=True).rsqrt()).exp()
    seen = torch.ones(x.shape[1:3], dtype=torch.bool).tril()
    return (x * seen[..., None]).sum(2) / seen.sum(1)[:, None]


@torch.inference_mode()
def published_seconds(tested: nn.SequenceModel, length: int) -> float:
    """Seconds of one token by the formula over the whole context."""
    ids = torch.randint(29, (1, length))
    original = ops.relation_mean
    relation.ops.relation_mean = lambda source, target, **_: formula(source, target)
    try:
        return statistics.median(timed(lambda: tested(ids)) for _ in range(PUBLISHED_TOKENS))
    finally:
        relation.ops.relation_mean = original


@torch.inference_mode()
def shares(tested: nn.SequenceModel, length: int) -> dict[str, float]:
    """Share of a step's time in matrix products, in the relation op, and outside both."""
    spent = {"matrix products": 0.0, "relation op": 0.0}

    def counting(name: str, function: Callable) -> Callable:
        def counted(*arguments, **options):
            began = time.perf_counter()
            result = function(*arguments, **options)
            spent[name] += time.perf_counter() - began
            return result

        return counted

    _, state = tested(torch.randint(29, (1, length - STEPS)))
    original, linear = ops.relation_mean, torch.nn.functional.linear
    relation.ops.relation_mean = counting("relation op", original)
    torch.nn.functional.linear = counting("matrix products", linear)
    try:
        began = time.perf_counter()
        for _ in range(STEPS):
            _, state = tested(torch.zeros(1, 1, dtype=torch.int64), state)
        whole = time.perf_counter() - began
    finally:
        relation.ops.relation_mean, torch.nn.functional.linear = original, linear
    found = {name: seconds / whole for name, seconds in spent.items()}
    return found | {"outside both": 1 - sum(found.values())}


@torch.inference_mode()
def along(tested: nn.SequenceModel, length: int) -> list[dict[str, float]]:
    """Median milliseconds of a step and resident memory at some places of a long text."""
    places = sorted({100, length, *(10**power for power in range(3, 9) if 10**power < length)})
    token = torch.zeros(1, 1, dtype=torch.int64)
    state, seconds, found = None, [], []
    for place in range(1, length + 1):
        began = time.perf_counter()
        _, state = tested(token, state)
        seconds.append(time.perf_counter() - began)
        seconds = seconds[-1000:]
        if place in places:
            milliseconds = 1e3 * statistics.median(seconds[-min(1000, place // 2) :])
            found.append({"token": place, "ms": milliseconds, "MB": status("VmRSS") / 1e6})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=514, help="token of the last step")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--long", type=int, default=0, help="also walk a linear model along so many tokens")
    parser.add_argument("--json", type=Path, help="append a JSON line to this file")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    about = surroundings()
    print(json.dumps(about))
    rows: list[dict] = []

    def show(name: str, value: float, unit: str) -> None:
        rows.append({"name": name, "value": value, "unit": unit})
        print(f"{name:64} {value:12,.3f} {unit}", flush=True)

    length = options.length
    paper = model(nn.CausalRNConfig(), 192, 12, length)
    step = statistics.median(step_seconds(paper, 1, length))
    show(f"CausalRN, 12 blocks, width 192: step at token {length}", 1e3 * step, "ms")
    show(f"the same, batch 32: step at token {length}", 1e3 * statistics.median(step_seconds(paper, 32, length)), "ms")
    rival = model(nn.AttentionConfig(), 192, 12, length, mlp=768)
    show("Transformer, the same: step", 1e3 * statistics.median(step_seconds(rival, 1, length)), "ms")
    show("the same, batch 32: step", 1e3 * statistics.median(step_seconds(rival, 32, length)), "ms")
    linear = model(nn.LinearCausalRNConfig(), 192, 12, length)
    show("Linear CausalRN, the same", 1e3 * statistics.median(step_seconds(linear, 1, length)), "ms")
    generation = timed(lambda: paper.generate(torch.zeros(1, 1, dtype=torch.int64), length))
    published = length * published_seconds(paper, length)
    show(f"generation of {length} tokens", generation, "s")
    show("the published procedure, estimated", published, "s")
    show("times faster", published / generation, "")
    wide = model(nn.CausalRNConfig(), 768, 12, length)
    show("CausalRN, 12 blocks, width 768: step", 1e3 * statistics.median(step_seconds(wide, 1, length)), "ms")
    for name, share in shares(wide, length).items():
        show(f"    share of it in {name}" if name != "outside both" else f"    share of it {name}", 100 * share, "%")
    if options.long:
        for row in along(model(nn.LinearCausalRNConfig(), 64, 2, None), options.long):
            show(f"Linear CausalRN, 2 blocks, width 64: step at token {row['token']:,}", row["ms"], "ms")
            show("    resident memory", row["MB"], "MB")
    if options.json:
        with options.json.open("a") as file:
            file.write(json.dumps({"case": "decoding", "length": length, "rows": rows, **about}) + "\n")


if __name__ == "__main__":
    main()
