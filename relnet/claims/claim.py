"""A claim, the rule that judges it, and what the rule found."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from relnet.claims.lines import Results
from relnet.claims.parts import Part

Verdict = Literal["holds", "holds in part", "does not hold", "not tested"]


@dataclass(frozen=True)
class Finding:
    """What a rule found: the verdict, what was run, what came out, and the files that say so."""

    verdict: Verdict
    ran: str = ""
    came: str = ""
    files: tuple[str, ...] = ()


@dataclass(frozen=True)
class Claim:
    """A paper's claim: its key, what it says, where, and the rule that judges it; the rule's docstring is the rule in words."""

    key: str
    text: str
    source: str
    judge: Callable[[Results], Finding]

    @property
    def rule(self) -> str:
        """The rule in words."""
        return " ".join((inspect.getdoc(self.judge) or "").split())


def claim(key: str, text: str, source: str) -> Callable[[Callable[[Results], Finding]], Claim]:
    """Make a claim of the function that judges it."""
    return lambda judge: Claim(key, text, source, judge)


def untested(why: str = "no data") -> Finding:
    """What is said where there is nothing to judge by."""
    return Finding("not tested", came=why)


def graded(parts: Sequence[Part], whole: bool = True) -> Verdict:
    """Return the verdict on a claim of several parts: all hold, some, or none; whole: whether all that it speaks of was run.

    A part that is undecided is left out, and is a part of the whole that was not run.

    >>> graded([True, True]), graded([True, True], whole=False), graded([True, False]), graded([False]), graded([])
    ('holds', 'holds in part', 'holds in part', 'does not hold', 'not tested')
    >>> graded([True, None]), graded([False, None]), graded([None])
    ('holds in part', 'does not hold', 'not tested')
    """
    decided = [part for part in parts if part is not None]
    if not decided:
        return "not tested"
    if not any(decided):
        return "does not hold"
    return "holds" if whole and len(decided) == len(parts) and all(decided) else "holds in part"
