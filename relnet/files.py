"""Files that no other process disturbs: locks, as far as the file system has them, and content that is whole before it has its name."""

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any


def lock(file: IO[Any], wait: bool = True) -> str | None:
    """Keep every other process that asks from this open file until it is closed; None, or why the file system has no locks.

    A lock ends with the process that holds it, however that ends. Where another process has it: `wait` for that, or raise BlockingIOError.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        return error.strerror
    return None


@contextlib.contextmanager
def written(temporary: Path, content: bytes) -> Generator[None]:
    """Make a new file with all of the content, on the disk, for the caller to rename; what still has this name at the end is removed."""
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
