"""A sweep of two runs that take a second, in a process of its own: python -m tests.sweeping FOLDER [--kill N]."""

import argparse
import json
import os
import signal
from dataclasses import replace
from pathlib import Path

from relnet import recipes, sweep
from relnet.sweep import Outcome, PlannedRun

TINY = {"length": 3, "width": 16, "depth": 1, "batch_size": 8, "max_steps": 6, "checkpoint_every": 2}


def tiny_runs(seeds=(0, 1), **changes):
    return [PlannedRun(recipes.copying(**{**TINY, "seed": seed, **changes})) for seed in seeds]


def renamed(planned, name):
    return replace(planned, config=replace(planned.config, name=name))


def swept(folder: Path, runs=None, **options) -> Outcome:
    """Sweep on the CPU, each finished run a line of folder/lines.jsonl."""
    return sweep.sweep(
        tiny_runs() if runs is None else runs, folder, device="cpu", lines=folder / "lines.jsonl", **options
    )


def numbers(folder: Path) -> list:
    """What the lines hold but for times."""
    lines = [json.loads(line) for line in (folder / "lines.jsonl").read_text().splitlines()]
    for line in lines:
        for key in ("seconds_per_step", "wall_seconds", "commit"):
            line["result"].pop(key)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kill", type=int, help="SIGKILL itself after so many updates")
    options = parser.parse_args()
    done = 0

    def on_step(*_: object) -> None:
        nonlocal done
        done += 1
        if done == options.kill:
            os.kill(os.getpid(), signal.SIGKILL)

    swept(options.folder, on_step=on_step)


if __name__ == "__main__":
    main()
