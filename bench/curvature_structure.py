"""Symmetry and diagonality at equal fit: the two examples over weights, penalties and seeds; a JSON line a run, R^2 and what is left.

Runs whose line stands in the file already are skipped. The fields and energies are those of examples/conservative_field.py (asymmetry
||J - J^T||_F^2 / ||J||_F^2) and examples/diagonal_hessian.py (share of the Hessian's squares off the diagonal). What is left is comparable
between runs of R^2 > 0.95 only: a constant field is symmetric too.

    python bench/curvature_structure.py --json results/curvature-structure.jsonl
"""

import argparse
import json
import platform
import runpy
import statistics
import subprocess
from pathlib import Path

import torch

EXAMPLES = Path(__file__).parents[1] / "examples"
TASKS = {"conservative_field": ("frobenius",), "diagonal_hessian": ("signed", "rows")}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True, help="file of finished runs; grows by a line a run")
    parser.add_argument("--weights", type=float, nargs="+", default=[3.0, 30.0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--steps", type=int, default=2000)
    given = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    about = {
        "commit": commit,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "system": platform.platform(),
    }
    lines = [json.loads(line) for line in given.json.read_text().splitlines()] if given.json.exists() else []
    for task, penalties in TASKS.items():
        train = runpy.run_path(str(EXAMPLES / f"{task}.py"))["train"]
        for penalty, weight in [("none", 0.0), *((name, weight) for name in penalties for weight in given.weights)]:
            for seed in given.seeds:
                run = {"task": task, "penalty": penalty, "weight": weight, "seed": seed}
                run |= {"size": given.size, "steps": given.steps}
                if any(line["run"] == run for line in lines):
                    continue
                r2, left = train(weight, given.size, given.steps, seed, penalties[0] if penalty == "none" else penalty)
                lines.append({"run": run, "r2": r2, "left": left, **about})
                with given.json.open("a") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
            found = [
                line
                for line in lines
                if (line["run"]["task"], line["run"]["penalty"], line["run"]["weight"]) == (task, penalty, weight)
            ]
            r2, left = ([line[name] for line in found] for name in ("r2", "left"))
            print(
                f"{task} {penalty} {weight:g}: R^2 at least {min(r2):.3f}, left {statistics.mean(left):.2e} "
                f"({min(left):.2e} to {max(left):.2e}), {len(found)} seeds",
                flush=True,
            )


if __name__ == "__main__":
    main()
