"""Locks of files, as far as the file system has them. They end with the process that holds them, however that ends."""

import fcntl
from typing import IO, Any


def lock(file: IO[Any], wait: bool = True) -> str | None:
    """Keep every other process that asks from this open file until it is closed; None, or why the file system has no locks.

    Where another process has it: `wait` for that, or raise BlockingIOError.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        return error.strerror
    return None
