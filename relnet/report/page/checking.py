"""That figures are what relnet writes: a run, or a line of an exam, that holds anything else is told instead of shown."""

from collections.abc import Iterable, Mapping
from typing import Any

from relnet.report.page.thinning import number
from relnet.report.reading import CURVE, Run

COUNTS = ("items", "exact", "letters", "letters_right")
# Figures that a line of an exam of candidates may have.
MEASURED = ("train_length", "lr", "steps", "train_accuracy")
# Letters of a foreign value in a reason.
LONGEST = 40


def check_run(run: Run) -> None:
    """Raise ValueError, saying where, unless figures of the log, the exam and the target are numbers, and counts no more than their whole.

    A loss may be nan or infinite, as that of a run that diverged.
    """
    if run.stop_accuracy is not None:
        _finite("the settings", run.config.get("train") or run.result["settings"], ["stop_accuracy"])
    for place, update in enumerate(run.updates, start=1):
        _finite(f"update {place} of the log", update, ["step"])
        _numbers(f"update {place} of the log", update, CURVE)
    for update in run.validated:
        _numbers(f"step {update['step']} of the log", update, run.measured)
    for place, row in enumerate(run.exam, start=1):
        check_counts(f"row {place} of the exam", row)
        _finite(f"row {place} of the exam", row, ["seed", "stopped", "ties"])
        _texts(f"row {place} of the exam", row, ["task", "mode"])
    for place, row in enumerate(run.text, start=1):
        _finite(f"row {place} of the exam", row, ["tokens", "bytes", "context", "stride"])
    for place, row in enumerate(run.images, start=1):
        _finite(f"row {place} of the exam", row, ["images"])


def check_sitting(where: str, line: Mapping[str, Any]) -> None:
    """Raise ValueError, saying `where`, for a line of an exam of candidates that cannot be shown."""
    check_counts(where, line)
    _finite(where, line, [name for name in MEASURED if line.get(name) is not None])
    _texts(where, line, ["task", "mode", *(["trained_task"] if line.get("trained_task") is not None else [])])
    for name in ("subject", "seed"):
        if not isinstance(line[name], str | int | float):
            raise _odd(where, line, name, "a name or a number")


def check_counts(where: str, row: Mapping[str, Any]) -> None:
    """Raise ValueError, saying `where`, unless the row's counts are counts."""
    _finite(where, row, ["length", *COUNTS])
    for part, whole in (("exact", "items"), ("letters_right", "letters")):
        if not 0 <= row[part] <= row[whole]:
            raise ValueError(f"{where}: {row[part]:g} of {row[whole]:g} {whole} are right")


def _finite(where: str, holder: Mapping[str, Any], names: Iterable[str]) -> None:
    for name in names:
        if number(holder.get(name)) is None:
            raise _odd(where, holder, name, "a number")


def _numbers(where: str, holder: Mapping[str, Any], names: Iterable[str]) -> None:
    for name in names:
        if not isinstance(holder.get(name), float) and number(holder.get(name)) is None:
            raise _odd(where, holder, name, "a number")


def _texts(where: str, holder: Mapping[str, Any], names: Iterable[str]) -> None:
    for name in names:
        if not isinstance(holder.get(name), str):
            raise _odd(where, holder, name, "a name")


def _odd(where: str, holder: Mapping[str, Any], name: str, wanted: str) -> ValueError:
    if name not in holder:
        return ValueError(f"{where} lacks {name}")
    told = repr(holder[name])
    return ValueError(
        f"{where}: {name} is {told if len(told) <= LONGEST else told[: LONGEST - 3] + '...'}, {wanted} is wanted"
    )
