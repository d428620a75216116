"""A run folder: that it may be used, that one run at a time trains in it, and that each file in it is whole.

Files are written beside their final names, synced and renamed. The lock is the operating system's and ends with the
process that holds it, however that ends; its file stays, since removing it would let two in.
"""

import errno
import logging
import os
import re
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from relnet.files import lock, written

HELD = ("log.jsonl", "checkpoints", "model.safetensors", "result.json")
LOCK = ".lock"
_LEFTOVER = re.compile(
    r"\.(config\.json|log\.jsonl|result\.json|model\.safetensors|step-\d{8,}\.safetensors)\.[0-9a-f]{32}\.tmp"
)

logger = logging.getLogger(__name__)


def check_folder(folder: Path, resume: bool) -> None:
    """Raise ValueError where `folder` is a file, or holds a run that is not to be resumed."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: give a folder for the run")
    held = [name for name in HELD if (folder / name).exists()]
    if held and not resume:
        raise ValueError(
            f"{folder} already holds a run ({', '.join(held)}): resume it (--resume), or use another folder"
        )


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Make `folder` where it is missing and keep every other run out of it; what a killed save left there is removed.

    ValueError where another run trains in it. On a file system without locks a log message says that nothing is kept
    out.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOCK, "ab") as file:
        try:
            missing = lock(file, wait=False)
        except BlockingIOError:
            raise ValueError(f"{folder} is in use, a run trains in it: wait for it, or use another folder") from None
        if missing:
            logger.warning("%s cannot be locked (%s): start no second run in it", folder, missing)
        for place in (folder, folder / "checkpoints"):
            for name in os.listdir(place) if place.is_dir() else ():
                if _LEFTOVER.fullmatch(name):
                    (place / name).unlink(missing_ok=True)
        yield


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` so that at any moment, whatever happens, `path` is what it was before or all of `content`.

    OSError (no space left, no permission) names the file; nothing half-written stays behind.
    """
    # A name that no other file has: neither one of the user's nor that of a second process that writes the same path.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with written(temporary, content):
            os.replace(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise not_written(path, error) from error


def not_written(path: Path, error: OSError) -> OSError:
    """The same error, naming the file and, where there is no room for it, the remedy."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    remedy = ": make room, then resume" if full else ""
    return OSError(error.errno, f"{error.strerror} while writing {path}; what was saved before is whole{remedy}")
