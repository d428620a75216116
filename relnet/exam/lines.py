"""Files of one JSON line a result, which grow."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


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
