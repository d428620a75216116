"""Files that reports write: whole or not at all, and never over one that is there, but for a page over an earlier one."""

import contextlib
import errno
import os
import uuid
from collections.abc import Generator
from pathlib import Path

from relnet.files import written


def check_new(path: Path) -> None:
    """Raise ValueError for a name that no file can be written under: a folder's, and one in a folder that is not there."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file")
    if not path.parent.is_dir():
        raise ValueError(f"{path.parent} is no folder; make it, or give another name than {path}")


def check_free(path: Path) -> None:
    """Raise FileExistsError where something has this name, be it a link that leads nowhere."""
    if os.path.lexists(path):
        raise taken(path)


def taken(path: Path) -> FileExistsError:
    """The error that says that the name is another file's."""
    return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))


def write_once(path: Path, content: bytes) -> None:
    """Write a file of this name; FileExistsError where there is one, also one that comes meanwhile.

    OSError (no space left, no permission) names the file; nothing half-written stays behind.
    """
    check_free(path)
    with _beside(path, content) as temporary:
        # Only one can make it: another's file of this name is not replaced.
        path.open("xb").close()
        try:
            os.replace(temporary, path)
        except BaseException:
            path.unlink(missing_ok=True)
            raise


def write_new(path: Path, content: bytes) -> Path:
    """Write a file under this name, or NAME-2, NAME-3, ... where it is taken, as `write_once` does; return the file written.

    Folders that are missing are made.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    number, candidate = 1, path
    while True:
        try:
            write_once(candidate, content)
            return candidate
        except FileExistsError:
            number += 1
            candidate = path.with_stem(f"{path.stem}-{number}")


def replace(path: Path, content: bytes) -> None:
    """Write a file in place of the one of this name, if any, which stays where that fails; errors as those of `write_once`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _beside(path, content) as temporary:
        os.replace(temporary, path)


@contextlib.contextmanager
def _beside(path: Path, content: bytes) -> Generator[Path]:
    """A file beside `path` with all of the content, to be renamed; what is left of it at the end is removed."""
    # A name that no other file has: neither one of the user's nor that of a second process that writes the same path.
    temporary = path.with_name(f".{uuid.uuid4().hex}.tmp")
    try:
        with written(temporary, content):
            yield temporary
    except OSError as error:
        raise _not_written(path, error) from error


def _not_written(path: Path, error: OSError) -> OSError:
    """The same error, naming the file and, where there is no room for it, the remedy."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    remedy = "; make room, or give a name where there is some" if full else ""
    return OSError(error.errno, f"{error.strerror}{remedy}", str(path))
