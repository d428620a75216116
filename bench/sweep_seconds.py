"""Seconds of an update of the sweeps' runs on this machine, which the recipes quote: one line a name and length, batches of 64.

    python bench/sweep_seconds.py --lengths 16 128

All lengths take both cores for a minute or two.
"""

import argparse

import torch

from relnet import recipes, run
from relnet.train import seconds_per_step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[16, 32, 64, 128, 256], help="of figure 4's strings")
    parser.add_argument("--ablations", action="store_true", help="figure 2's runs as well")
    parser.add_argument("--exams", action="store_true", help="the exams' runs as well")
    given = parser.parse_args()
    plans = [recipes.figure4(lengths=tuple(given.lengths), seeds=1)]
    plans += [recipes.figure2()] if given.ablations else []
    plans += [recipes.exam_copying(), recipes.exam_lookup()] if given.exams else []
    print(f"{torch.get_num_threads()} threads")
    for config in [planned.config for plan in plans for planned in plan.runs]:
        seconds = seconds_per_step(run.build_model(config), config.task, config.train, "cpu")
        print(f"{config.name}, {config.task.label}: {seconds:.3f} s an update", flush=True)


if __name__ == "__main__":
    main()
