"""The settings of a run's config."""

import json
from collections.abc import Iterator
from typing import Any


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
