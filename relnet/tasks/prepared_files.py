"""Prepared data on the disk: made once, whole or resumed after a kill, checked by checksums, known by its content.

    STORE/store.json   what it is, written last: a store without it is not finished
    STORE/DATA         what was prepared, in chunks one after the other
    STORE/index.bin    one record a chunk: where it ends, and the CRC-32 of its bytes

A chunk is written before the record that counts it, so what a kill leaves is whole up to the last record whose chunk has its checksum;
preparing goes on from there. STORE is KIND-KEY in `data_root()`, KEY a hash of what the content depends on.
"""

import hashlib
import json
import os
import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np

from relnet.files import lock

# Where prepared data goes; otherwise the user's cache folder.
DATA_VARIABLE = "RELNET_DATA"
OURS = {"store.json", "store.json.tmp", "index.bin", ".lock"}


def data_root() -> Path:
    """Return the folder of prepared data: $RELNET_DATA, or relnet/ in the user's cache folder."""
    named = os.environ.get(DATA_VARIABLE)
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relnet"


def content_key(content: Sequence[str]) -> str:
    """Return what tells a store from others: a hash of the lines that say what is in it."""
    return hashlib.sha256("\n".join(content).encode()).hexdigest()[:32]


@contextmanager
def unfinished(folder: Path, data: str) -> Generator[bool]:
    """Hold the store's lock, and say whether it is still to be made; a second process that prepares the same waits.

    ValueError for a folder that holds other files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if strange := sorted({path.name for path in folder.iterdir()} - OURS - {data}):
        raise ValueError(
            f"{folder} holds {', '.join(strange)}, which is not ours; set ${DATA_VARIABLE} to another folder"
        )
    with open(folder / ".lock", "ab") as file:
        lock(file)
        yield not (folder / "store.json").exists()


class Chunks:
    """The data and the index of a store that is being made, opened behind the last chunk that is whole.

    record: the dtype of a record, with the fields "crc" and `counts`; item_bytes: of what `counts` counts. `last` is the last record.
    """

    def __init__(self, folder: Path, data: str, record: np.dtype, counts: str, item_bytes: int):
        self._data, self._index = folder / data, folder / "index.bin"
        index = _records(self._index, record)
        index = index[: num_good(self._data, index["crc"], index[counts], item_bytes)]
        self.last: np.void | None = index[-1] if len(index) else None
        size = int(index[-1][counts]) * item_bytes if len(index) else 0
        self._files = opened(self._data, size), opened(self._index, index.nbytes)

    def append(self, chunks: Sequence[bytes], records: np.ndarray) -> None:
        """Write chunks and, after them, their records, whose checksums it fills in; OSError naming the file where there is no room."""
        records["crc"] = [zlib.crc32(chunk) for chunk in chunks]
        append(self._data, self._files[0], b"".join(chunks))
        append(self._index, self._files[1], records.tobytes())
        self.last = records[-1]

    def __enter__(self) -> "Chunks":
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files:
            with file:
                os.fsync(file.fileno())


def finish(folder: Path, content: dict[str, Any]) -> None:
    """Write store.json, with the checksum of the index: from then on the store is finished."""
    content = {**content, "index_crc": zlib.crc32((folder / "index.bin").read_bytes())}
    path = folder / "store.json.tmp"
    with opened(path, 0) as file:
        append(path, file, json.dumps(content, indent=2).encode())
        os.fsync(file.fileno())
    os.replace(path, folder / "store.json")


def read_finished(folder: Path, kind: str, version: int, fields: Sequence[str]) -> dict[str, Any]:
    """Return store.json, which has these fields; ValueError for a store not finished, of another format or version, or damaged."""
    path = folder / "store.json"
    try:
        content = json.loads(path.read_bytes())
        found = content["format"], content["version"]
        for name in (*fields, "index_crc"):
            content[name]
    except FileNotFoundError:
        raise ValueError(f"{folder} holds no finished data; prepare it from its files") from None
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} is damaged ({error}); remove {folder}, and it is made again") from None
    if found != (kind, version):
        raise ValueError(
            f"{path} is {found[0]} version {found[1]}, this relnet reads {kind} version {version}; remove {folder}"
        )
    return content


def checked_index(
    folder: Path, data: str, record: np.dtype, counts: str, item_bytes: int, content: dict[str, Any]
) -> np.ndarray:
    """Return the records of a finished store, every chunk checked against its checksum; ValueError for one that is damaged."""
    path = folder / "index.bin"
    index = _records(path, record)
    whole = path.exists() and zlib.crc32(path.read_bytes()) == content["index_crc"]
    if not whole or num_good(folder / data, index["crc"], index[counts], item_bytes) < len(index):
        raise ValueError(f"{folder} is damaged: its content is not what was written; remove it, and it is made again")
    return index


def _records(path: Path, record: np.dtype) -> np.ndarray:
    content = path.read_bytes() if path.exists() else b""
    return np.frombuffer(content[: len(content) // record.itemsize * record.itemsize], record)


def num_good(path: Path, crcs: np.ndarray, ends: np.ndarray, item_bytes: int) -> int:
    """Return how many of the chunks, from the first, have their checksums; they end after so many items of so many bytes."""
    if not path.exists():
        return 0
    start = 0
    with open(path, "rb") as file:
        for number, (end, crc) in enumerate(zip(ends.tolist(), crcs.tolist(), strict=True)):
            wanted = (end - start) * item_bytes
            part = file.read(wanted) if wanted >= 0 else b""
            if len(part) != wanted or zlib.crc32(part) != crc:
                return number
            start = end
    return len(ends)


def opened(path: Path, size: int) -> FileIO:
    """The file, cut or made to `size` bytes, to go on behind them; unbuffered, so that closing it has nothing left to fail at."""
    file = open(path, "ab", buffering=0)  # noqa: SIM115
    file.truncate(size)
    return file


def append(path: Path, file: FileIO, content: bytes) -> None:
    """Hand `content` to the operating system, so that a kill no longer loses it."""
    try:
        left = memoryview(content)
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise OSError(
            error.errno, f"{error.strerror} while writing {path}: make room, then go on with the same command"
        ) from error
