"""Files of one JSON line a result, which grow."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol


@contextmanager
def appending(path: str | Path) -> Generator[BinaryIO]:
    """Open a file to write whole lines behind those that it has."""
    with open(path, "ab+") as file:
        # An earlier exam may have been killed in the middle of a line, which must not swallow the first new one.
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.write(b"\n")
        yield file


class _Row(Protocol):
    def to_json(self) -> str: ...


def append_row(row: _Row, path: str | Path) -> None:
    """Add the row to a file of JSON lines."""
    with appending(path) as file:
        file.write(row.to_json().encode() + b"\n")
