"""Does training keep the hand-set copying mechanism, or find it?

One model shape (theory.CopyingRN, n = 3, small weights: A 10, h 4, kappa 2, g 10), three starts: the hand-set weights, the same with
noise (a share of each matrix's own root mean square), the library's random weights. Each trains on uniform strings of 5 to 20 letters and
is asked, teacher-forced, for strings of 20 to 200 letters that repeat no 3-gram; exact means <EOS> included.

    python bench/theory_training.py OUT.jsonl --starts hand noisy random --steps 1000

Appends one JSON line an evaluation; what stands in the file is not done again, an interrupted start goes on from OUT.START-LR-SEED.pt.
"""

import argparse
import json
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from relnet import nn, theory
from relnet.tasks import IGNORE, Copying
from relnet.train.log import commit, machine, versions

N, LENGTHS, NUM, BATCH, NOISE = 3, (20, 50, 100, 200), 20, 64, 0.3
SHORTEST, LONGEST = 5, 20


def settings() -> theory.CopyingRN:
    return theory.CopyingRN(n=N, amplitude=10.0, hot=4.0, kappa=2.0, gain=10.0, head_gain=1.0)


def start_from(start: str, seed: int) -> nn.SequenceModel:
    torch.manual_seed(seed)
    if start == "random":
        return nn.SequenceModel(settings().config)
    model = settings().build()
    if start == "noisy":
        with torch.no_grad():
            for weight in model.parameters():
                weight += NOISE * weight.square().mean().sqrt() * torch.randn_like(weight)
    return model


def batch_of(step: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    length = int(np.random.Generator(np.random.Philox(key=[seed, step])).integers(SHORTEST, LONGEST + 1))
    found = Copying(length=length).sample(BATCH, seed=seed, index=step * BATCH)
    return found.inputs, found.targets


def exact(model: nn.SequenceModel) -> dict[str, float]:
    return {
        f"{length}": float((theory.first_errors(model, strings) < 0).double().mean())
        for length in LENGTHS
        for strings in (theory.strings_without_repeat(NUM, length, N, 26, seed=1),)
    }


def train(out: Path, start: str, steps: int, every: int, lr: float, seed: int) -> None:
    key = {"start": start, "lr": lr, "seed": seed}
    done = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    last = max((row["step"] for row in done if {name: row[name] for name in key} == key), default=-1)
    saved = out.with_suffix(f".{start}-{lr:g}-{seed}.pt")
    if last >= steps:
        return
    model = start_from(start, seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=lr)
    first = 0
    if saved.exists():
        content = torch.load(saved, weights_only=True)
        model.load_state_dict(content["model"])
        optimiser.load_state_dict(content["optimiser"])
        first = content["step"]
    origin = {"commit": commit(), "machine": machine(torch.device("cpu")), "versions": versions()}
    began = time.monotonic()
    for step in range(first, steps + 1):
        inputs, targets = batch_of(step, seed)
        loss = F.cross_entropy(model(inputs)[0].flatten(0, 1), targets.flatten(), ignore_index=IGNORE)
        if step % every == 0 and step > last:
            row = key | {
                "step": step,
                "loss": float(loss.detach()),
                "exact": exact(model),
                "seconds": time.monotonic() - began,
            }
            with out.open("a") as file:
                file.write(json.dumps({"format": 1, **row, "noise": NOISE, "n": N, "batch": BATCH, **origin}) + "\n")
            print(start, {name: row[name] for name in ("lr", "step", "loss", "exact")}, flush=True)
            unfinished = saved.with_suffix(".part")
            torch.save({"model": model.state_dict(), "optimiser": optimiser.state_dict(), "step": step}, unfinished)
            os.replace(unfinished, saved)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimiser.param_groups:
            group["lr"] = lr * min(1.0, step / 50)
        optimiser.step()
    saved.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--starts", nargs="+", choices=("hand", "noisy", "random"), default=["hand", "noisy", "random"])
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--every", type=int, default=250)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for start in arguments.starts:
        train(arguments.out, start, arguments.steps, arguments.every, arguments.lr, arguments.seed)


if __name__ == "__main__":
    main()
