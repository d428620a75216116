"""Files of one JSON line a result, which grow."""

import json
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol


@contextmanager
def appending(path: str | Path) -> Generator[BinaryIO]:
    """Open a file to write whole lines behind those that it has."""
    with open(path, "ab+") as file:
        end_last_line(file)
        yield file


def end_last_line(file: BinaryIO, opening: bytes = b"") -> None:
    """Let the next write begin a line, where a kill in the middle of one may have left it without its end.

    opening: what the writer's own lines begin with; one of these that was cut short goes (`is_cut_short`), all else is kept.
    """
    if file.seek(0, os.SEEK_END) == 0:
        return
    file.seek(-1, os.SEEK_END)
    if file.read(1) == b"\n":
        return
    file.seek(0)
    content = file.read()
    start = content.rfind(b"\n") + 1
    if opening and is_cut_short(content[start:], opening):
        file.truncate(start)
    else:
        file.write(b"\n")


def is_cut_short(line: bytes, opening: bytes) -> bool:
    """Whether a last line without its end is the writer's, which begin with `opening`, and is no JSON as it stands."""
    try:
        json.loads(line)
    except ValueError:
        return line[: len(opening)] == opening[: len(line)]
    return False


class _Row(Protocol):
    def to_json(self) -> str: ...


def append_row(row: _Row, path: str | Path) -> None:
    """Add the row to a file of JSON lines."""
    with appending(path) as file:
        file.write(row.to_json().encode() + b"\n")
