"""Runs on a text: bits per byte, speed, what a state takes, and what each model writes."""

from collections.abc import Sequence
from typing import Any

from relnet.report.cells import Contents, formatted, seconds_per_step, shown, wall_time
from relnet.report.reading import Run


def text_contents(names: Sequence[str], runs: Sequence[Run]) -> Contents:
    """The table of runs on a text; below it what the figures are, and a sample of each model."""
    titles = [
        "name",
        "parameters",
        "tokens\ntrained on",
        "bits/\nbyte",
        "perplexity\na token",
        "tokens/\ns",
        "state\nbytes",
        "s/\nstep",
        "wall\ntime",
    ]
    lines = []
    for name, run in zip(names, runs, strict=True):
        row = _latest(run)
        seconds, tokens = seconds_per_step(run), _tokens_per_step(run)
        lines.append(
            [
                name,
                shown(run.result.get("num_parameters")),
                shown(None if tokens is None else run.steps * tokens),
                formatted(row.get("bits_per_byte", run.result.get("bits_per_byte")), ".4f"),
                formatted(row.get("perplexity", run.result.get("perplexity")), ".3f"),
                shown(round(tokens / seconds) if tokens and seconds else None),
                shown(row.get("state_bytes")),
                formatted(seconds, ".3g"),
                wall_time(run),
            ]
        )
    return Contents(titles, lines, _notes(names, runs))


def _latest(run: Run) -> dict[str, Any]:
    return run.text[-1] if run.text else {}


def _tokens_per_step(run: Run) -> int | None:
    try:
        return run.config["train"]["batch_size"] * run.config["task"]["context"]
    except (KeyError, TypeError):
        return None


def _notes(names: Sequence[str], runs: Sequence[Run]) -> list[str]:
    rows = [(name, row) for name, run in zip(names, runs, strict=True) if (row := _latest(run))]
    notes = [
        "bits/byte: of the whole validation text, each token predicted once; tokens/s: in training; state bytes: what a model keeps of a "
        "context, one row."
    ]
    for tokens, num_bytes, context, stride in sorted(
        {(row["tokens"], row["bytes"], row["context"], row["stride"]) for _, row in rows}
    ):
        how = f"in windows of {context} that begin every {stride}" if stride else "with the state carried on"
        notes.append(f"Validation: {tokens:,} tokens, {num_bytes:,} bytes, {how}.")
    for name, run in zip(names, runs, strict=True):
        if not run.result:
            notes.append(f"{name}: no result yet, {run.steps:,} updates in the log.")
    notes += [f"{name} wrote: {_printable(row['prompt'])} | {_printable(row['sample'])}" for name, row in rows]
    return notes


def _printable(text: str) -> str:
    """On one line, in ASCII: what is redirected stays readable everywhere."""
    return "".join(letter if letter.isprintable() else " " for letter in text).encode("ascii", "replace").decode()
