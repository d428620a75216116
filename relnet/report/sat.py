"""Runs as lines of an exam: what was asked and counted, and how the model was trained (`relnet.report.verdict`)."""

from collections.abc import Sequence
from typing import Any

from relnet.report.verdict import Line


def exam_lines(config: dict[str, Any], result: dict[str, Any], rows: Sequence[dict[str, Any]]) -> list[Line]:
    """Return the rows of a finished run's exam with the facts of its training, as `relnet exam` writes them; seed: of the training.

    config, result: as in its files. Empty for a run without them.
    """
    task, told = config.get("task") or {}, config.get("train") or {}
    if not result or "length" not in task:
        return []
    # A run that aimed at another accuracy, or none, tells nothing of its way to 99 %.
    aimed = told.get("stop_accuracy") == 0.99
    reached = result.get("steps_to_accuracy") if aimed else None
    facts = {
        "subject": config["name"],
        "train_length": task["length"],
        "lr": told["lr"],
        "seed": told["seed"],
        "parameters": result.get("num_parameters"),
        "steps": result["steps"],
        "samples": result["steps"] * told["batch_size"] if aimed else None,
        "samples_to_99": None if reached is None else reached * told["batch_size"],
        "train_accuracy": result.get("final_accuracy"),
    }
    # A run sits the exam of its own task.
    return [{**row, **facts, "trained_task": row["task"]} for row in rows]
