"""Time a training step of the paper's CausalRN beside one of the paper's Transformer: forward, loss, backward, clipping, Adam.

    python bench/training_step.py --threads 2

Width 192, 12 blocks, strings of 128 letters (258 tokens), 16 strings a step. Rounds are interleaved; medians are compared, in one run only.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from relation import surroundings

from relnet import recipes, run

MODELS = ("causalrn", "linear-causalrn", "transformer", "linear-transformer")


def stepper(mixer: str, length: int, batch: int, precision: str) -> Callable[[], float]:
    """Return a function that does one training step and returns its seconds."""
    config = recipes.copying(length=length, mixer=mixer)
    model = run.build_model(config)
    optimiser = torch.optim.Adam(model.parameters(), lr=config.train.lr)
    data = config.task.sample(batch, seed=0, index=0)

    def step() -> float:
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
            logits, _ = model(data.inputs)
            loss = F.cross_entropy(logits.float().flatten(0, 1), data.targets.flatten(), ignore_index=-1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        return time.perf_counter() - start

    return step


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--length", type=int, default=128, help="letters in a string (default: 128)")
    parser.add_argument("--batch", type=int, default=16, help="strings a step (default: 16)")
    parser.add_argument("--mixers", nargs="+", choices=MODELS, default=["causalrn", "transformer"])
    parser.add_argument(
        "--rounds", type=int, default=5, help="interleaved rounds after one that does not count (default: 5)"
    )
    parser.add_argument(
        "--threads", type=int, default=torch.get_num_threads(), help="default: as many as there are cores"
    )
    parser.add_argument("--json", type=Path, help="append a JSON line a precision to this file")
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    about = surroundings()
    print(json.dumps(about))
    for precision in ("float32", "bfloat16"):
        steps = {mixer: stepper(mixer, given.length, given.batch, precision) for mixer in given.mixers}
        taken: dict[str, list[float]] = {mixer: [] for mixer in steps}
        for _ in range(given.rounds + 1):
            for mixer, step in steps.items():
                taken[mixer].append(step())
        medians = {mixer: 1e3 * statistics.median(seconds[1:]) for mixer, seconds in taken.items()}
        last = medians[given.mixers[-1]]
        print(f"\n{given.length} letters, {given.batch} strings, {precision}; medians in ms")
        for mixer, median in medians.items():
            print(f"{mixer:20} {median:8.1f}   {median / last:5.2f} of {given.mixers[-1]}")
        if given.json:
            line = {"case": "training step", "length": given.length, "batch": given.batch, "precision": precision}
            with given.json.open("a") as file:
                file.write(json.dumps({**line, "rounds": given.rounds, "milliseconds": medians, **about}) + "\n")


if __name__ == "__main__":
    main()
