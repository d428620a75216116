"""What each idea gives to a CausalRN that is to copy strings ten times as long as those it learns on.

    python bench/length_ideas.py RUNS --json results/length-ideas.jsonl --ideas base uniform --steps 1500

Each idea is `relnet train long-copying --head-width 192 --before 0 --openings 0` with the changes that SETTINGS has for it, which its lines
have too, trained for --steps updates (1.5 to 5 minutes per 1,000 on one core) and examined on strings of 20 to 320 letters that repeat no
4-gram. What RUNS holds is not trained again, and what the file holds is not written again.
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from relnet import exam, nn, recipes, run, tasks
from relnet.exam.lines import appending
from relnet.report.reading import read_lines

LENGTHS = (20, 40, 80, 200, 320)
# Changes of BASE's arguments: the recipe without what these ideas brought to it.
BASE: dict[str, Any] = {"head_width": 192, "before": 0, "openings": 0.0}
SETTINGS: dict[str, dict[str, Any]] = {
    "base": {},
    "head of 64 in block 2": {"head_width": 64},
    "heads of 128 in block 2": {"head_width": 128},
    "heads of 256 in block 2": {"head_width": 256},
    "4 heads in block 2": {"heads": 4},
    "half openings, heads of 256": {"openings": 0.5, "head_width": 256, "batch_size": 48},
    "half openings, heads of 256, learning rate 2e-3": {
        "openings": 0.5,
        "head_width": 256,
        "batch_size": 48,
        "lr": 2e-3,
    },
    "40 letters before, heads of 256": {"before": 40, "head_width": 256},
    "80 letters before, heads of 256": {"before": 80, "head_width": 256},
    "80 letters before, heads of 384": {"before": 80, "head_width": 384},
    "80 letters before, heads of 512": {"before": 80, "head_width": 512},
    "80 letters before, a tenth openings, heads of 384": {"before": 80, "openings": 0.1, "head_width": 384},
    "80 letters before, three tenths openings, heads of 384, batches of 40": {
        "before": 80,
        "openings": 0.3,
        "head_width": 384,
        "batch_size": 40,
    },
    "120 letters before, a tenth openings, heads of 384": {"before": 120, "openings": 0.1, "head_width": 384},
    "80 letters before, a tenth openings, heads of 512": {"before": 80, "openings": 0.1, "head_width": 512},
    "160 letters before, a tenth openings, heads of 384": {"before": 160, "openings": 0.1, "head_width": 384},
    "80 letters before, a fifth openings, heads of 256": {
        "before": 80,
        "openings": 0.2,
        "head_width": 256,
        "batch_size": 40,
    },
    "80 letters before, half openings, heads of 256": {"before": 80, "openings": 0.5, "head_width": 256},
    "windows to 7": {"windows": (1, 2, 3, 4, 5, 6, 7)},
    "width 192, window heads of 64": {"width": 192, "window_width": 64},
    "learning rate 2e-3": {"lr": 2e-3},
    "learning rate 5e-4": {"lr": 5e-4},
}
IDEAS = (*SETTINGS, "strings from 1 letter", "uniform strings", "20 letters always", "RMS pair norm", "no windows")


def config(idea: str, steps: int, seed: int) -> run.RunConfig:
    made = recipes.long_copying(**{**BASE, **SETTINGS.get(idea, {})}, max_steps=steps, seed=seed)
    gather, look_up = made.model.mixers
    if idea == "uniform strings":
        task: tasks.AnyTask = tasks.Copying(length=20, layout="jelassi2024", min_length=5)
        return dataclasses.replace(made, task=task)
    if idea == "strings from 1 letter":
        assert isinstance(made.task, tasks.UnrepeatedCopying)
        return dataclasses.replace(made, task=dataclasses.replace(made.task, min_length=1))
    if idea == "20 letters always":
        return dataclasses.replace(made, task=tasks.UnrepeatedCopying(length=20))
    if idea == "RMS pair norm":
        mixer = tuple(dataclasses.replace(one, pair_norm="rms") for one in (gather, look_up))
        return dataclasses.replace(made, model=dataclasses.replace(made.model, mixer=mixer))
    if idea == "no windows":
        assert isinstance(gather, nn.CausalRNConfig)
        mixer = (dataclasses.replace(gather, windows=None), look_up)
        return dataclasses.replace(made, model=dataclasses.replace(made.model, mixer=mixer))
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--ideas", nargs="+", choices=IDEAS, default=IDEAS)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    there = read_lines(arguments.json)
    for idea in arguments.ideas:
        if any(
            (line["subject"], line["steps"], line["train_seed"]) == (idea, arguments.steps, arguments.seed)
            for line in there
        ):
            print(f"{idea}, seed {arguments.seed}: {arguments.json} has it", flush=True)
            continue
        folder = arguments.runs / f"{idea.replace(' ', '-')}-{arguments.steps}-{arguments.seed}"
        asked = config(idea, arguments.steps, arguments.seed)
        trained = run.train(asked, folder, device="cpu", resume=folder.exists())
        subject = exam.ModelSubject(trained.model, idea)
        task = tasks.UnrepeatedCopying(length=20)
        rows = exam.evaluate(subject, task, lengths=LENGTHS, num=64, batch_size=16, modes=["teacher_forced"])
        with appending(arguments.json) as file:
            for row in rows:
                kept: dict[str, Any] = {"wrong_at_first_letter": row.first_errors.count(0)}
                kept |= {name: value for name, value in dataclasses.asdict(row).items() if name != "first_errors"}
                facts: dict[str, Any] = {"settings": {**BASE, **SETTINGS.get(idea, {})}}
                facts |= {"steps": trained.result.steps, "train_seed": arguments.seed, "commit": trained.result.commit}
                facts |= {"machine": trained.result.machine, "wall_seconds": trained.result.wall_seconds}
                file.write(json.dumps(kept | facts).encode() + b"\n")
        print(f"{idea}, seed {arguments.seed}: {trained.result.wall_seconds:.0f} s")
        for row in rows:
            begun = row.first_errors.count(0)
            print(f"  {row.length}: {row.exact}/{row.items} exact, {begun} wrong at the first letter", flush=True)


if __name__ == "__main__":
    main()
