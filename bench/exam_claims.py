"""Claims J5 to J8 of "Repeat After Me" (arXiv 2402.01032) at the size of a CPU: eight models, trained on up to 20 letters, or --length.

    copying             samples until 99 % (J5), longer strings (J6), strings with a duplicated n-gram for n = 2 to 8 (J7)
    prefix and suffix lookup of 3-grams, longer strings (J8)

Width 128, no learned positions: Transformers of 2 blocks (8 heads, MLP of 512) by four ways to know positions, LSTM of 2 layers, CausalRN,
Linear CausalRN and Mamba of 4 blocks. One seed, Adam at 1e-3, batches of 32 packed rows, until 99 % has stayed for 20 updates or --steps;
with --anneal all steps, the learning rate falling to 0 by a cosine, for models that know what they were trained on.

    python bench/exam_claims.py RUNS --json results/exam.jsonl --models causalrn transformer-hard-alibi --tasks copying
    python bench/exam_claims.py RUNS --json results/exam-annealed.jsonl --length 12 --anneal --steps 4000

What RUNS holds is not trained again, and an interrupted training goes on; new lines take the place of earlier ones. --tables trains nothing
and prints what the file holds as the tables of results/exam.md.
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from relnet import nn, protocol, report, tasks
from relnet.recipes.exam import transformers_model
from relnet.report.verdict import FREE, best, samples_to_99, share, trained_task
from relnet.train import TrainConfig
from relnet.train.log import versions

WIDTH, NUM = 128, 128
# In trained lengths.
ASKED = (0.5, 1, 1.25, 1.5, 2, 3, 4, 20)
NGRAMS = (2, 3, 4, 5, 6, 8)
MIXERS: dict[str, tuple[nn.CausalMixerConfig, int, int | None]] = {
    **{
        f"transformer-{'nope' if positions == 'none' else positions.replace('_', '-')}": (
            nn.AttentionConfig(heads=8, positions=positions),
            2,
            4 * WIDTH,
        )
        for positions in ("none", "rope", "alibi", "hard_alibi")
    },
    "lstm": (nn.LSTMConfig(), 2, None),
    "linear-causalrn": (nn.LinearCausalRNConfig(), 4, None),
    "causalrn": (nn.CausalRNConfig(), 4, None),
}
MODELS = (*MIXERS, "mamba")


def candidate(name: str) -> protocol.Candidate:
    if name == "mamba":
        return transformers_model("mamba", WIDTH, 4)
    mixer, depth, mlp = MIXERS[name]

    def build(vocab_size: int, context: int) -> torch.nn.Module:
        return nn.SequenceModel(nn.ModelConfig(vocab_size, WIDTH, depth, context, mixer, mlp=mlp, positions="none"))

    return protocol.Candidate(name, build, f"{mixer}, width {WIDTH}, depth {depth}, MLP {mlp}, no positions")


def papers(length: int = 20, steps: int = 1000, anneal: bool = False) -> dict[str, protocol.Paper]:
    train = TrainConfig(steps=steps, batch_size=32, checkpoint_every=100)
    if anneal:
        train = dataclasses.replace(train, schedule="cosine", stay=steps)
    lookup = tasks.SuffixLookup(length, "jelassi2024")
    asked = tuple(int(times * length) for times in ASKED)
    found = tuple(dict.fromkeys(max(one, lookup.shortest) for one in asked))
    # A string of less than twice its letters has no room for two.
    duplicates = tuple(tasks.DuplicatedNgram(length, "jelassi2024", ngram=n) for n in NGRAMS if 2 * n <= length)
    return {
        "copying": protocol.Paper(tasks.Copying(length, "jelassi2024"), asked, train, duplicates),
        "prefix-lookup": protocol.Paper(tasks.PrefixLookup(length, "jelassi2024"), found, train),
        "suffix-lookup": protocol.Paper(lookup, found, train),
    }


def tables(lines: list[dict[str, Any]]) -> str:
    """Free-running: whole strings that are exact, %, and in the first column the rows until 99 % of the answers were right in training.

    Of several learning rates the best one in training, of several seeds the mean; "-" where nothing was asked.
    """
    parts = []
    chosen = [line for line in best(lines) if line["mode"] == FREE]
    for trained in sorted({line["train_length"] for line in chosen}):
        own = [line for line in chosen if line["train_length"] == trained]
        for name, paper in papers(trained).items():
            of_task = [line for line in own if line["task"] == paper.task.name == trained_task(line)]
            if of_task:
                parts.append(
                    _table(f"{name} to {trained}: length", of_task, paper.lengths, lambda line: line["length"])
                )
        copying = papers(trained)["copying"]
        planted = {task.name: task.ngram for task in copying.others if isinstance(task, tasks.DuplicatedNgram)}
        duplicates = [
            line | {"ngram": planted[line["task"]]}
            for line in own
            if line["task"] in planted and line["length"] == trained and trained_task(line) in (None, copying.task.name)
        ]
        if duplicates:
            title = f"{trained} letters, duplicated n-gram: n"
            parts.append(_table(title, duplicates, sorted(planted.values()), lambda line: line["ngram"]))
    return "\n\n".join(parts)


def _table(
    title: str, lines: list[dict[str, Any]], columns: Sequence[int], column: Callable[[dict[str, Any]], int]
) -> str:
    rows = [[title, "rows to 99 %", *map(str, columns)], ["---", *["---:"] * (len(columns) + 1)]]
    for name in MODELS:
        own = [line for line in lines if line["subject"] == name]
        if not own:
            rows.append([name, "not run", *[""] * len(columns)])
            continue
        found = [share([line for line in own if column(line) == at]) for at in columns]
        rows.append([name, samples_to_99(own), *("-" if one is None else f"{100 * one[0]:.3g}" for one in found)])
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="?", default=Path("runs/exam-claims"))
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    parser.add_argument("--tasks", nargs="+", choices=papers(), default=list(papers()))
    parser.add_argument("--length", type=int, default=20)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--anneal", action="store_true")
    parser.add_argument("--lrs", nargs="+", type=float, default=[1e-3])
    parser.add_argument("--tables", action="store_true")
    arguments = parser.parse_args()
    if arguments.tables:
        print(tables(report.read_exam(arguments.json)))
        return
    try:
        asked = papers(arguments.length, arguments.steps, arguments.anneal)
    except ValueError as error:
        parser.error(str(error))
    for task in arguments.tasks:
        for name in arguments.models:
            began = time.monotonic()
            lines = protocol.sit([candidate(name)], [asked[task]], arguments.runs, lrs=arguments.lrs, num=NUM)
            kept = [line | {"versions": versions()} for line in lines if line["subject"] == name]
            protocol.add_lines(arguments.json, kept)
            free = {
                f"{line['task']} {line['length']}": line["exact"]
                for line in kept
                if line["mode"] == FREE and task in line["task"]
            }
            print(name, task, f"{time.monotonic() - began:.0f} s", json.dumps(free), flush=True)


if __name__ == "__main__":
    main()
