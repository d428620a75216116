"""What a line of each kind has to hold to be judged: asked once a line, when a folder is read, so that rules trust what they are given."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any, TypeAlias

from relnet.report.reading import FORMAT

Line = dict[str, Any]
DUPLICATED = "duplicated-ngram"
# A task's name: behind this one stands which n-gram is planted.
NAMED = re.compile(rf"{DUPLICATED}-\d+-|(?!{DUPLICATED})")
TRAINED_BY_LENGTH = ("Copying", "PrefixLookup", "SuffixLookup")


@dataclass(frozen=True)
class Value:
    """A value that is wanted: what it is, in words, and whether one is such."""

    words: str
    fits: Callable[[Any], bool]


# A value; a list of such; the fields of an object, with "?" behind those that may be missing or null; or all of several, in turn.
Wanted: TypeAlias = "Value | list[Wanted] | dict[str, Wanted] | tuple[Wanted, ...]"


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _is_number(value: Any) -> bool:
    return isinstance(value, float) or _is_whole(value)


def _or_null(value: Value) -> Value:
    return Value(f"{value.words} or null", lambda found: found is None or value.fits(found))


ANY = Value("a value", lambda value: True)
TEXT = Value("a text", lambda value: isinstance(value, str))
COUNT = Value("a whole number from 0", lambda value: _is_whole(value) and value >= 0)
SIZE = Value("a whole number from 1", lambda value: _is_whole(value) and value >= 1)
# What a run that diverged measured may be infinite or not a number.
MEASURED = Value("a number", lambda value: _is_number(value) and value != -inf)
NUMBER = Value("a finite number", lambda value: _is_number(value) and isfinite(value))
POSITIVE = Value("a finite number above 0", lambda value: NUMBER.fits(value) and value > 0)
SHARE = Value("a number from 0 to 1", lambda value: _is_number(value) and 0 <= value <= 1)
TASK = Value(
    f"the name of a task, {DUPLICATED} with its n", lambda value: TEXT.fits(value) and bool(NAMED.match(value))
)
ATTACK = Value(
    "an attack, its radius and the accuracy",
    lambda value: isinstance(value, list) and len(value) == 3 and NUMBER.fits(value[1]) and SHARE.fits(value[2]),
)
NOT_EMPTY = Value("a list that holds something", bool)
SEVERAL = Value("a list of several", lambda value: len(value) > 1)
ONE_LENGTH = Value("of lists of one length", lambda value: len(set(map(len, value.values()))) == 1)
COUNTED = Value("of at most as many exact answers as items", lambda value: value["exact"] <= value["items"])

CURVE: Wanted = {"step": [COUNT], "window_accuracy": [MEASURED], "loss": [MEASURED]}
ANSWERS: Wanted = ({"task": TASK, "mode": TEXT, "length": COUNT, "items": COUNT, "exact": COUNT}, COUNTED)
RUN: Wanted = {
    "format": ANY,
    "name": TEXT,
    "config": {"task?": {"length?": SIZE}, "model?": {}, "train?": {}, "penalty?": {}},
    "result": {
        "steps": COUNT,
        "steps_to_accuracy": _or_null(COUNT),
        "machine": TEXT,
        "wall_seconds": NUMBER,
        "seconds_per_step?": MEASURED,
        "final_accuracy?": MEASURED,
        "num_parameters?": COUNT,
    },
    "curve": (CURVE, ONE_LENGTH),
    "exam?": [ANSWERS],
    "images?": [{"test_accuracy": SHARE}],
}
# Of a run on a task, not of one whose trainer was called by itself.
TRAINED: Wanted = {
    "config": {"name": TEXT, "train": {"batch_size": SIZE, "precision": TEXT, "lr": NUMBER, "seed": COUNT}}
}
SHAPED: Wanted = {"width": SIZE, "depth": SIZE}
TEXTS: Wanted = {
    "config": {"task": {"data": [TEXT], "tokenizer": TEXT, "context": SIZE}, "model": SHAPED},
    "result": {"bits_per_byte": _or_null(MEASURED)},
}
EXAM: Wanted = (
    {
        "subject": TEXT,
        "train_length": _or_null(SIZE),
        "lr": _or_null(NUMBER),
        "seed": COUNT,
        "samples?": COUNT,
        "samples_to_99?": COUNT,
        "parameters?": COUNT,
        "train_accuracy?": MEASURED,
        "steps?": COUNT,
        "trained_task?": TEXT,
    },
    ANSWERS,
)
HAND_SET: Wanted = {
    "model": TEXT,
    "n": COUNT,
    "length": COUNT,
    "strings": SIZE,
    "repeats": COUNT,
    "wrong": COUNT,
    "chosen": COUNT,
    "chosen_right": COUNT,
    "bound": POSITIVE,
}
STRUCTURE: Wanted = {"task": TEXT, "penalty": TEXT, "weight": NUMBER, "seed": COUNT, "size?": COUNT, "steps?": COUNT}
SPECTRUM: Wanted = {
    "case": ANY,
    "iters": ANY,
    "starts": ANY,
    "shape": ([COUNT], SEVERAL),
    "rows": ([{"method": TEXT, "products": NUMBER, "error": MEASURED}], NOT_EMPTY),
}
ATTACKED: Wanted = {
    "run": {"data": TEXT, "operator": TEXT, "method": TEXT, "weight": NUMBER, "seed": COUNT},
    "validation": {"attacks": [ATTACK]},
    "test": {"attacks": [ATTACK]},
}
LINEAR: Wanted = {
    "length": SIZE,
    "width": ANY,
    "error": _or_null(MEASURED),
    "training_seconds": POSITIVE,
    "state_bytes": COUNT,
}
SPEEDS: Wanted = {
    "medians": {"cpu?": {"both": NUMBER}, "attention?": {"both": POSITIVE}},
    "shape": [ANY],
    "isa": ANY,
    "threads": ANY,
}


def _is_run(line: Line) -> bool:
    """Whether it is a run that ended."""
    return not line.keys().isdisjoint(("config", "curve")) and line.get("result") != {}


def _is_trained(line: Line) -> bool:
    return _is_run(line) and bool(line["config"].get("task"))


def _learns(*tasks: str) -> Callable[[Line], bool]:
    return lambda line: _is_trained(line) and line["config"]["task"].get("_type") in tasks


def _of(key: str, value: str) -> Callable[[Line], bool]:
    return lambda line: line.get(key) == value


def _has(*keys: str) -> Callable[[Line], bool]:
    """Whether a line has one of these keys, which no other kind has."""
    return lambda line: not line.keys().isdisjoint(keys)


# Asked in turn: which lines a row is about, and what they have to hold. A later row may trust what an earlier one wants.
KINDS: tuple[tuple[Callable[[Line], bool], Wanted], ...] = (
    (lambda line: True, {"command?": TEXT}),
    (_is_run, RUN),
    (_is_trained, TRAINED),
    (_learns(*TRAINED_BY_LENGTH), {"config": {"task": {"length": SIZE}}}),
    (_learns("Copying"), {"config": {"task": {"layout": TEXT}}}),
    (_learns("Text"), TEXTS),
    (_learns("Images"), {"config": {"task": {"data": [TEXT]}, "model": SHAPED}}),
    (_has("train_length", "samples_to_99"), EXAM),
    (_of("kind", "error"), HAND_SET),
    (
        _of("kind", "capacity"),
        {"model": TEXT, "limit": _or_null(COUNT), "examined": [COUNT], "copied": _or_null(COUNT)},
    ),
    (_has("r2", "left"), {"run": STRUCTURE, "r2": MEASURED, "left": MEASURED}),
    (lambda line: "case" in line and "iters" in line, SPECTRUM),
    (lambda line: "run" in line and _has("validation", "test")(line), ATTACKED),
    (_of("case", "linear form"), LINEAR),
    (_of("case", "stability"), {"error": _or_null(MEASURED)}),
    (lambda line: line.get("case") == "relation_mean" and line.get("activation") == "exp", SPEEDS),
    (_has("quantity"), {"run": TEXT, "block": COUNT, "quantity": TEXT, "share": NUMBER, "steps": COUNT}),
)


def fault(line: Line) -> str | None:
    """Why a line cannot be judged, such as "no result.steps"; None where it can be, or no rule is about its kind.

    >>> fault({"case": "stability", "error": "small"}), fault({"case": "another thing"})
    ('error is not a number or null', None)
    """
    if line.get("format", FORMAT) != FORMAT:
        return f"format {line['format']}, this release of relnet reads format {FORMAT}"
    return _first(_fault(line, wanted, "") for is_about, wanted in KINDS if is_about(line))


def _fault(found: Any, wanted: Wanted, place: str) -> str | None:
    if isinstance(wanted, Value):
        return None if wanted.fits(found) else f"{place or 'it'} is not {wanted.words}"
    if isinstance(wanted, tuple):
        return _first(_fault(found, one, place) for one in wanted)
    if isinstance(wanted, list):
        if not isinstance(found, list):
            return f"{place} is not a list"
        return _first(_fault(one, wanted[0], f"{place}[{index}]") for index, one in enumerate(found))
    if not isinstance(found, dict):
        return f"{place} is not an object"
    return _first(_field_fault(found, key, of_key, place) for key, of_key in wanted.items())


def _field_fault(found: Line, key: str, wanted: Wanted, place: str) -> str | None:
    name = key.removesuffix("?")
    if key.endswith("?") and found.get(name) is None:
        return None
    inner = f"{place}.{name}" if place else name
    return _fault(found[name], wanted, inner) if name in found else f"no {inner}"


def _first(faults: Iterable[str | None]) -> str | None:
    return next(filter(None, faults), None)
