"""What the tables are made of: their contents before they are drawn, and cells that more than one of them has."""

import math
from dataclasses import dataclass
from statistics import median

from relnet.report.reading import Run

MISSING = "-"


@dataclass(frozen=True)
class Contents:
    """The table before it is drawn: column titles, a list of cells a line, and sentences to stand below."""

    titles: list[str]
    lines: list[list[str]]
    notes: list[str]


def shown(number: int | None) -> str:
    """A whole number with its thousands apart."""
    return MISSING if number is None else f"{number:,}"


def encodable(text: str) -> str:
    """Text with "?" for what no encoding has: the bytes of a file's name that are no UTF-8, halves of a pair of surrogates.

    >>> encodable("bad" + chr(0xDCFF)), encodable("s\u00fc\u00df")
    ('bad?', 's\u00fc\u00df')
    """
    return text.encode(errors="replace").decode()


def seconds_per_step(run: Run) -> float | None:
    """Median seconds of an update, None where none is known."""
    seconds = run.result.get("seconds_per_step")
    if seconds is None and run.updates:
        seconds = median(update.get("seconds", math.nan) for update in run.updates)
    return None if seconds is None or math.isnan(seconds) else seconds


def duration(seconds: float) -> str:
    """Return seconds as a person writes them.

    >>> duration(4.2), duration(75), duration(7260)
    ('4s', '1m15s', '2h01m')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02}m"


def formatted(value: float | None, form: str) -> str:
    """A number by a format such as ".3f"."""
    return MISSING if value is None else format(value, form)


def wall_time(run: Run) -> str:
    """How long the run took."""
    seconds = run.result.get("wall_seconds")
    return MISSING if seconds is None else duration(seconds)
