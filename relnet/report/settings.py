"""The settings of a run's config, and in which of them runs differ."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

# Letters of a setting's value in a label.
LONGEST = 40
# Of a task, what says nothing to a reader: keys and figures of prepared data.
HIDDEN = ("stores", "validation", "validation_share", "test", "test_share", "shape", "mean", "std")
# What tells no experiment from another.
UNTOLD = ("train.checkpoint_every", "train.keep", "format", "name")
# A setting that another one brings with it.
FOLLOWS = {"model.context": "task.length"}
# Settings in a label.
MOST = 4


def flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """The settings of a config one by one, by their path in it."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from flat(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and any(isinstance(one, dict) for one in value):
        for number, inner in enumerate(value, start=1):
            yield from flat(inner, f"{name} {number}")
    else:
        yield name, value if isinstance(value, str) else json.dumps(value)


def telling(config: dict[str, Any]) -> dict[str, str]:
    """The settings that tell runs apart; one that is None is as good as none: an older relnet may not have had it."""
    return {name: value for name, value in flat(config) if name not in UNTOLD and value != "null"}


def differences(settings: Sequence[Mapping[str, str]]) -> list[str]:
    """For each of these settings the first ones in which they differ, in words, such as "length 16, lr 0.001"."""
    names = dict.fromkeys(name for told in settings for name in told if not _is_hidden(name))
    differ = [name for name in names if len({told.get(name) for told in settings}) > 1]
    differ = [name for name in differ if FOLLOWS.get(name) not in differ]
    return [
        ", ".join(
            f"{name.rpartition('.')[2].lstrip('_')} {_shown(told[name])}"
            for name in [name for name in differ if name in told][:MOST]
        )
        for told in settings
    ]


def _is_hidden(name: str) -> bool:
    holder, _, last = name.rpartition(".")
    return holder == "task" and last in (*HIDDEN, "_type")


def _shown(value: str) -> str:
    """A value in a label: of files, their names."""
    try:
        read = json.loads(value)
    except ValueError:
        read = value
    files = isinstance(read, list) and all(isinstance(one, str) for one in read)
    return (", ".join(Path(one).name for one in read) if files else value)[:LONGEST]
