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
from relnet.report.tables import aligned, listed

Line = dict[str, Any]
FREE, FORCED = "free_running", "teacher_forced"
# A length counts as copied, or looked up, where so many free-running answers are exact.
PASSED = 0.95
# What one sitting is: a candidate's exam on a task, after one training or as it is.
SITTING = ("subject", "task", "train_length", "trained_task")


def read_exam(path: str | Path) -> list[Line]:
    """Read the lines of an exam; ValueError for a file that is none."""
    try:
        lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} holds no exam ({error})") from None
    if not lines or not all(isinstance(line, dict) and "subject" in line for line in lines):
        raise ValueError(f"{path} holds no exam")
    return lines


def trained_task(line: Line) -> str | None:
    """The task that the model was trained on; None of one that was taken as it is, and where that is unknown.

    A line that does not say it is of the task examined, but for strings with a duplicated n-gram: models trained on any task were asked
    those.
    """
    told = line.get("trained_task")
    if told is not None or line.get("train_length") is None:
        return told
    task = str(line["task"])
    return None if task.startswith("duplicated-ngram") else task


def values(line: Line, keys: Sequence[str]) -> tuple[Any, ...]:
    """The line's values of these fields, None of one that it lacks; "trained_task" as the function of that name knows it."""
    return tuple(trained_task(line) if key == "trained_task" else line.get(key) for key in keys)


def groups(lines: Sequence[Line], *keys: str) -> dict[tuple[Any, ...], list[Line]]:
    """The lines by their `values` of these fields, in order of appearance."""
    found: dict[tuple[Any, ...], list[Line]] = {}
    for line in lines:
        found.setdefault(values(line, keys), []).append(line)
    return found


def best(lines: Sequence[Line]) -> list[Line]:
    """The lines of each candidate's best learning rate on each paper: the highest accuracy in training, which no exam item decides."""
    chosen = []
    for sitting in groups(lines, *SITTING).values():
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
    """Mean and 95 % interval of a share over the seeds that were asked (`lost` tells of the others); None where nothing was asked.

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


def lost(lines: Sequence[Line]) -> str:
    """How many seeds lack answers that others have, such as "1 of 3 seeds diverged"; empty where none does."""
    without: list[Line] = []
    for rows in groups(lines, "length", "mode").values():
        seeds = groups(rows, "seed").values()
        empty = [row for of_seed in seeds if not any(row["items"] for row in of_seed) for row in of_seed]
        if len(empty) < len(rows):
            without += empty
    if not without:
        return ""
    diverged = all(str(row.get("note")).startswith("diverged") for row in without)
    number = f"{len(groups(without, 'seed'))} of {len(groups(lines, 'seed'))} seeds"
    return f"{number} {'diverged' if diverged else 'did not give all answers'}"


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
    table = []
    chosen = best(lines)
    for (subject, task, trained, learned), sitting in groups(chosen, *SITTING).items():
        lengths = {length: rows for (length,), rows in groups(sitting, "length").items()}
        # Taken as it is: every length is a line of its own.
        for length in [trained] if trained in lengths else lengths:
            rows = lengths[length]
            free, forced = ([row for row in rows if row["mode"] == mode] for mode in (FREE, FORCED))
            found = share(free)
            errors = [error for row in free for error in row["first_errors"] if error >= 0]
            named = [f"{task}, {length}", *([f"trained on {learned}"] if elsewhere(task, learned) else []), lost(rows)]
            table.append(
                [
                    str(subject),
                    "\n".join(filter(None, named)),
                    shown(first(rows, "parameters")),
                    samples_to_99(rows),
                    _percent(share(forced)),
                    _percent(found),
                    MISSING if found is None else f"{100 * found[1]:.1f}-{100 * found[2]:.1f}",
                    _percent(share(free, "letters_right", "letters")),
                    _percent(share(free, "stopped")),
                    f"{median(errors):g}" if errors else MISSING,
                    shown(longest_copied(sitting)) if trained is not None else MISSING,
                    shown(first(rows, "state_bytes")),
                ]
            )
    notes = [
        "samples: rows trained on, each one example of the trained length or several shorter ones, until 99 % of the answers in "
        "the last 320 were right before their own update (>N: not within N).",
        "exact: all letters right, whether or not the model stops then; stops: <EOS> where it belongs; letters, stops, first error "
        "(median place among wrong answers): free-running; exact up to: the longest length asked up to which at least "
        f"{100 * PASSED:g} % of the free-running answers are exact and stop; state bytes: of one item, after its prompt, measured.",
    ]
    return Contents(titles, table, [*notes, _counted(chosen), *_rates(lines), *_noted(lines, chosen), *_told(chosen)])


def elsewhere(task: str, learned: str | None) -> bool:
    """Whether a model is known to have been trained on another task than the one that it was examined on."""
    return learned not in (None, task)


def _named(sitting: tuple[Any, ...]) -> str:
    """A sitting in a sentence."""
    subject, task, trained, learned = sitting
    if trained is None:
        return f"{subject}, {task}"
    return f"{subject}, {task} (trained {f'on {learned} ' if elsewhere(task, learned) else ''}up to {trained})"


def _counted(chosen: Sequence[Line]) -> str:
    seeds = sorted({line["seed"] for line in chosen})
    items = max(line["items"] for line in chosen)
    way = (
        "Student's t over seeds, at least Wilson's of all counts"
        if len(seeds) > 1
        else "Wilson's, of one seed's counts"
    )
    left_out = any(lost(sitting) for sitting in groups(chosen, *SITTING).values())
    end = "; a seed that was not asked is in no share and no interval." if left_out else "."
    return f"{items} items a length and seed; {listed('seed', seeds)}; interval: {way}{end}"


def _rates(lines: Sequence[Line]) -> list[str]:
    notes = []
    for sitting, rows in groups(lines, *SITTING).items():
        rates = groups(rows, "lr")
        if len(rates) > 1:
            told = ", ".join(f"{lr:g}: {100 * _training(rate):.1f} %" for (lr,), rate in rates.items())
            notes.append(f"{_named(sitting)}: accuracy in training by learning rate {told}; the best one is shown.")
    return notes


def _noted(lines: Sequence[Line], chosen: Sequence[Line]) -> list[str]:
    """What lines say themselves: of the rates shown, and at each rate why something was not asked."""
    noted = [line | {"asked": False} for line in lines if line["note"] and not line["items"]]
    noted += [line | {"asked": True} for line in chosen if line["note"] and line["items"]]
    seeds = groups(lines, *SITTING)
    notes = []
    for (*sitting, note, asked), rows in groups(noted, *SITTING, "note", "asked").items():
        lengths, own = (sorted({row[key] for row in rows}) for key in ("length", "seed"))
        every = {line["seed"] for line in seeds[tuple(sitting)]}
        at = f" at {listed('seed', own)}" if len(own) < len(every) else ""
        were = "" if asked else f" {'were' if len(lengths) > 1 else 'was'} not asked"
        notes.append(f"{_named(tuple(sitting))}: {listed('length', lengths)}{at}{were}: {note}.")
    return notes


def _told(chosen: Sequence[Line]) -> list[str]:
    """Scores that no column shows, who never stops, and ties."""
    notes = []
    for sitting, rows in groups(_asked(chosen), *SITTING).items():
        scores = {row["scorer"] for row in rows if row.get("score") is not None} - {"jelassi2024", "cui2024"}
        for scorer in sorted(scores):
            own = groups([row for row in rows if row["scorer"] == scorer], "length")
            told = ", ".join(f"{length}: {_mean(rows_at, 'score'):.3f}" for (length,), rows_at in own.items())
            notes.append(f"{_named(sitting)}: {scorer} {told}.")
        if not any(row["ended"] for row in rows):
            notes.append(f"{_named(sitting)}: never stops; no free-running answer holds an <EOS>.")
    for sitting, rows in groups(chosen, *SITTING).items():
        ties = sum(row["ties"] for row in rows)
        if ties:
            notes.append(f"{_named(sitting)}: in {ties:,} decisions the two highest logits were within 1e-4.")
    return notes


def _asked(lines: Sequence[Line]) -> list[Line]:
    """The free-running lines that count something."""
    return [line for line in lines if line["mode"] == FREE and line["items"]]


def longest_copied(lines: Sequence[Line]) -> int | None:
    """The longest length asked up to which at least PASSED of one sitting's free-running answers are exact and stop, None where none is.

    lines: of any modes and lengths. A length that was not asked ends it.
    """
    longest = None
    for (length,), rows in sorted(groups(lines, "length").items()):
        found = _asked(rows)
        if not found or sum(map(whole, found)) < PASSED * sum(row["items"] for row in found):
            break
        longest = length
    return longest


def first(rows: Sequence[Line], key: str) -> Any:
    """The first figure of this kind: a seed that diverged has none."""
    return next((row[key] for row in rows if row.get(key) is not None), None)


def samples_to_99(rows: Sequence[Line]) -> str:
    """The mean over rows, ">N" where one of them was not there after N, "-" where they tell nothing."""
    if rows[0].get("samples") is None:
        return MISSING
    found = [row["samples_to_99"] for row in rows]
    if None in found:
        return f">{max(row['samples'] for row in rows):,}"
    return f"{round(fmean(found)):,}"


def _percent(found: tuple[float, float, float] | None) -> str:
    """Percent, rounded down: 100 says that really all are right."""
    return MISSING if found is None else f"{int(1000 * found[0] + 1e-9) / 10:g}"
