"""Run folders as the trainer and the exam write them."""

import json
from pathlib import Path

TASK = {"_type": "Copying", "length": 16, "layout": "cui2024", "min_length": None, "max_context": None}


TEXT_TASK = {
    "_type": "Text",
    "data": ["data/one.txt", "two.txt"],
    "context": 256,
    "tokenizer": "bytes",
    "stores": ["k"],
}


def update(step, **changes):
    accuracy = min(1.0, step / 100)
    return {
        "step": step,
        "loss": 3.3 * (1 - accuracy),
        "accuracy": accuracy,
        "window_accuracy": accuracy,
        "lr": 5e-4,
        "grad_norm": 0.5,
        "seconds": 0.25,
        "samples": 64 * step,
    } | changes


def result(**changes):
    return {
        "format": 1,
        "steps": 99,
        "steps_to_accuracy": 82,
        "steps_to_stay": 85,
        "final_accuracy": 0.995,
        "seconds_per_step": 0.41234,
        "wall_seconds": 754.4,
        "num_parameters": 1342848,
        "stopped": "accuracy",
    } | changes


def exam_row(mode, **changes):
    return {
        "task": "copying-cui2024",
        "subject": "causalrn",
        "mode": mode,
        "length": 16,
        "seed": 0,
        "items": 320,
        "letters": 5120,
        "letters_right": 5119,
        "exact": 319,
        "stopped": 320,
        "ended": 320,
        "ties": 0,
        "first_errors": [],
        "scorer": "cui2024",
        "score": 0.9998,
        "note": "",
        "format": 1,
    } | changes


def text_row(**changes):
    return {
        "task": "text",
        "subject": "causalrn",
        "context": 256,
        "stride": 256,
        "tokens": 1_256_449,
        "bytes": 1_256_449,
        "bits": 2_512_898.0,
        "state_bytes": 65_536,
        "prompt": "Three years later,",
        "sample": " the\n$caf\u00e9",
        "format": 1,
        "bits_per_byte": 2.0,
        "perplexity": 4.0,
    } | changes


BOTH = (exam_row("teacher_forced"), exam_row("free_running"))


RESULT = result()


def make_run(
    parent: Path, name, *, folder=None, stop_accuracy=0.99, log=99, result=RESULT, exam=BOTH, config=True, task=TASK
):
    """A run folder; log: number of updates; result None, exam (), config False: the file is missing."""
    path = parent / (folder or name)
    path.mkdir(parents=True)
    if config:
        train = {"stop_accuracy": stop_accuracy, "batch_size": 8}
        (path / "config.json").write_text(
            json.dumps({"format": 1, "name": name, "task": task, "train": train, "model": {}})
        )
    if log:
        (path / "log.jsonl").write_text("".join(json.dumps(update(step + 1)) + "\n" for step in range(log)))
    if result is not None:
        (path / "result.json").write_text(json.dumps(result))
    if exam:
        (path / "exam.jsonl").write_text("".join(json.dumps(row) + "\n" for row in exam))
    return path
