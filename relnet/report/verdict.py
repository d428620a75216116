"""The exam's verdict: one screen of what each candidate can remember.

Lines are those of an exam.jsonl: what was asked and counted, and how the model was trained (nothing of that where it was taken as it is).
"""

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

from relnet.report.cells import MISSING, Contents, shown
from relnet.report.intervals import student, wilson
from relnet.report.tables import aligned

Line = dict[str, Any]
FREE, FORCED = "free_running", "teacher_forced"
# A length counts as copied, or looked up, where so many free-running answers are exact.
PASSED = 0.95


def read_exam(path: str | Path) -> list[Line]:
    """Read the lines of an exam; ValueError for a file that is none."""
    try:
        lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} holds no exam ({error})") from None
    if not lines or not all(isinstance(line, dict) and "subject" in line for line in lines):
        raise ValueError(f"{path} holds no exam")
    return lines


def groups(lines: Sequence[Line], *keys: str) -> dict[tuple[Any, ...], list[Line]]:
    """The lines by the values of these fields, in order of appearance."""
    found: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        found.setdefault(tuple(line.get(key) for key in keys), []).append(line)
    return found


def best(lines: Sequence[Line]) -> list[Line]:
    """The lines of each candidate's best learning rate on each paper: the highest accuracy in training, which no exam item decides."""
    chosen = []
    for sitting in groups(lines, "subject", "task", "train_length").values():
        rates = groups(sitting, "lr")
        # One that diverged has no items.
        asked = [rate for rate in rates.values() if any(line["items"] for line in rate)] or list(rates.values())
        chosen += max(asked, key=lambda rate: (_training(rate), -_mean(rate, "steps")))
    return chosen


def _training(lines: Sequence[Line]) -> float:
    return _mean(lines, "train_accuracy")


def _mean(lines: Sequence[Line], key: str) -> float:
    return fmean([line[key] for line in lines if line.get(key) is not None] or [0.0])


def share(lines: Sequence[Line], part: str = "exact", of: str = "items") -> tuple[float, float, float] | None:
    """Mean and 95 % interval of a share; None where nothing was asked.

    The interval of one seed is Wilson's of its counts. Of several seeds it is Student's over them, and reaches at least as far as
    Wilson's of all their counts: three seeds that agree do not make a share certain.
    """
    seeds = [rows for rows in groups(lines, "seed").values() if sum(row[of] for row in rows)]
    shares = [sum(row[part] for row in rows) / sum(row[of] for row in rows) for rows in seeds]
    if not shares:
        return None
    rows = [row for seed in seeds for row in seed]
    low, high = wilson(sum(row[part] for row in rows), sum(row[of] for row in rows))
    if len(shares) > 1:
        lower, higher = student(shares)
        low, high = min(low, lower), max(high, higher)
    return fmean(shares), low, high


def whole(line: Line) -> int:
    """Answers that are right to the end, <EOS> included: by their first errors, else the most that the counts allow."""
    errors = line.get("first_errors") or ()
    return list(errors).count(-1) if len(errors) == line["items"] else min(line["exact"], line["stopped"])


def verdict(lines: Sequence[Line], width: int | None = None) -> str:
    """The verdict as plain text: a line a candidate and task, what it means below. ValueError without lines."""
    if not lines:
        raise ValueError("no results of an exam to show")
    return aligned(_contents(lines), width)


def _contents(lines: Sequence[Line]) -> Contents:
    titles = [
        "candidate",
        "task, length",
        "parameters",
        "samples\nto 99 %",
        "teacher-\nforced\nexact %",
        "free-\nrunning\nexact %",
        "95 %\ninterval",
        "letters\n%",
        "stops\n%",
        "first\nerror",
        "exact\nup to",
        "state\nbytes",
    ]
    table, notes = [], []
    chosen = best(lines)
    for (subject, task, trained), sitting in groups(chosen, "subject", "task", "train_length").items():
        lengths = {length: rows for (length,), rows in groups(sitting, "length").items()}
        # Taken as it is: every length is a line of its own.
        for length in [trained] if trained in lengths else lengths:
            rows = lengths[length]
            free, forced = ([row for row in rows if row["mode"] == mode] for mode in (FREE, FORCED))
            found = share(free)
            errors = [error for row in free for error in row["first_errors"] if error >= 0]
            table.append(
                [
                    str(subject),
                    f"{task}, {length}",
                    shown(rows[0].get("parameters")),
                    _samples(rows),
                    _percent(share(forced)),
                    _percent(found),
                    MISSING if found is None else f"{100 * found[1]:.1f}-{100 * found[2]:.1f}",
                    _percent(share(free, "letters_right", "letters")),
                    _percent(share(free, "stopped")),
                    f"{median(errors):g}" if errors else MISSING,
                    shown(_longest(lengths)) if trained is not None else MISSING,
                    shown(next((row["state_bytes"] for row in rows if row.get("state_bytes") is not None), None)),
                ]
            )
    notes.append(
        "samples: rows trained on, each one example of the trained length or several shorter ones, until 99 % of the answers in "
        "the last 320 were right before their own update (>N: not within N)."
    )
    notes.append(
        "exact: all letters right, whether or not the model stops then; stops: <EOS> where it belongs; letters, stops, first error "
        "(median place among wrong answers): free-running; exact up to: the longest length asked up to which at least "
        f"{100 * PASSED:g} % of the free-running answers are exact and stop; state bytes: of one item, after its prompt, measured."
    )
    notes += _facts(lines)
    return Contents(titles, table, notes)


def _facts(lines: Sequence[Line]) -> list[str]:
    seeds = sorted({line["seed"] for line in lines})
    items = max(line["items"] for line in lines)
    way = (
        "Student's t over seeds, at least Wilson's of all counts"
        if len(seeds) > 1
        else "Wilson's, of one seed's counts"
    )
    notes = [
        f"{items} items a length and seed; seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}; interval: {way}."
    ]
    for (subject, task, trained), sitting in groups(lines, "subject", "task", "train_length").items():
        rates = groups(sitting, "lr")
        if len(rates) > 1:
            told = ", ".join(f"{lr:g}: {100 * _training(rate):.1f} %" for (lr,), rate in rates.items())
            notes.append(
                f"{subject}, {task}, {trained}: accuracy in training by learning rate {told}; the best one is shown."
            )
    noted = [line | {"asked": bool(line["items"])} for line in lines if line["note"]]
    for (subject, task, note, asked), rows in groups(noted, "subject", "task", "note", "asked").items():
        lengths = sorted({row["length"] for row in rows})
        of = f"length{'s' if len(lengths) > 1 else ''} {', '.join(map(str, lengths))}"
        were = "" if asked else f" {'were' if len(lengths) > 1 else 'was'} not asked"
        notes.append(f"{subject}, {task}: {of}{were}: {note}.")
    for (subject, task), rows in groups(_asked(lines), "subject", "task").items():
        scores = {row["scorer"] for row in rows if row.get("score") is not None} - {"jelassi2024", "cui2024"}
        for scorer in sorted(scores):
            own = groups([row for row in rows if row["scorer"] == scorer], "length")
            told = [(length, _mean(rows_at, "score")) for (length,), rows_at in own.items()]
            notes.append(
                f"{subject}, {task}: {scorer} " + ", ".join(f"{length}: {score:.3f}" for length, score in told) + "."
            )
        if not any(row["ended"] for row in rows):
            notes.append(f"{subject}, {task}: never stops; no free-running answer holds an <EOS>.")
    for (subject,), rows in groups(lines, "subject").items():
        ties = sum(row["ties"] for row in rows)
        if ties:
            notes.append(f"{subject}: in {ties:,} decisions the two highest logits were within 1e-4.")
    return notes


def _asked(lines: Sequence[Line]) -> list[Line]:
    """The free-running lines that count something."""
    return [line for line in lines if line["mode"] == FREE and line["items"]]


def _longest(lengths: dict[int, list[Line]]) -> int | None:
    longest = None
    for length, rows in sorted(lengths.items()):
        found = _asked(rows)
        if not found or sum(map(whole, found)) < PASSED * sum(row["items"] for row in found):
            break
        longest = length
    return longest


def _samples(rows: Sequence[Line]) -> str:
    if rows[0].get("samples") is None:
        return MISSING
    found = [row["samples_to_99"] for row in rows]
    if None in found:
        return f">{max(row['samples'] for row in rows):,}"
    return f"{round(fmean(found)):,}"


def _percent(found: tuple[float, float, float] | None) -> str:
    """Percent, rounded down: 100 says that really all are right."""
    return MISSING if found is None else f"{int(1000 * found[0] + 1e-9) / 10:g}"
