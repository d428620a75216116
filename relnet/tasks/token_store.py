"""Prepared text: a memory-mapped file of token numbers, made once a text and tokenizer, whole or resumed, never in memory.

    STORE/store.json   what it is, written last: a store without it is not finished
    STORE/tokens.bin   the tokens, uint8 where 256 numbers are enough, else uint16, little-endian
    STORE/index.bin    one record a piece of text (about 16 KiB): where it ends, in source, bytes and tokens, and the CRC-32 of its tokens

Tokens are written before the record that counts them, so what a kill leaves is whole up to the last record whose tokens
have their checksum; preparing goes on from there. STORE is text-KEY in `data_root()`, KEY a hash of content and tokenizer.
"""

import fcntl
import hashlib
import itertools
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

import numpy as np

from relnet.tasks.text_sources import Progress, Source
from relnet.tasks.text_tokens import Tokens

FORMAT = "relnet-tokens"
VERSION = 1
# Where prepared text goes; otherwise the user's cache folder.
DATA_VARIABLE = "RELNET_DATA"
RECORD = np.dtype([("source", "<u4"), ("crc", "<u4"), ("position", "<u8"), ("bytes", "<u8"), ("tokens", "<u8")])
OURS = {"store.json", "store.json.tmp", "tokens.bin", "index.bin", ".lock"}
# Pieces tokenised at once: 1 MiB of text.
AT_ONCE = 64


def data_root() -> Path:
    """Return the folder of prepared text: $RELNET_DATA, or relnet/ in the user's cache folder."""
    named = os.environ.get(DATA_VARIABLE)
    return Path(named) if named else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "relnet"


@dataclass(frozen=True)
class Span:
    """A stretch of prepared text: its tokens (S,), memory-mapped, and how many bytes of text they are."""

    tokens: np.ndarray
    num_bytes: int


class TokenStore:
    """A finished store, opened: every token is checked against its checksum once.

    ValueError for a store that is damaged, not finished or of another format version.
    """

    def __init__(self, folder: Path):
        path = folder / "store.json"
        try:
            content = json.loads(path.read_bytes())
            if content["format"] != FORMAT or content["version"] != VERSION:
                found = f"{content['format']} version {content['version']}"
                raise ValueError(f"{path} is {found}, this relnet reads {FORMAT} version {VERSION}; remove {folder}")
            self._one_byte_each: bool = content["tokenizer"] == "bytes"
            dtype, crc = np.dtype(content["dtype"]), content["index_crc"]
            index = (folder / "index.bin").read_bytes()
        except FileNotFoundError:
            raise ValueError(f"{folder} holds no finished text; prepare it from its files") from None
        except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is damaged ({error}); remove {folder}, and it is made again") from None
        self._index = np.frombuffer(index[: len(index) // RECORD.itemsize * RECORD.itemsize], RECORD)
        if zlib.crc32(index) != crc or _num_good(folder / "tokens.bin", self._index, dtype) < len(self._index):
            raise ValueError(
                f"{folder} is damaged: its content is not what was written; remove it, and it is made again"
            )
        self.num_bytes = int(self._index[-1]["bytes"])
        self.tokens = np.memmap(folder / "tokens.bin", dtype, "r", shape=(int(self._index[-1]["tokens"]),))

    def whole(self) -> Span:
        """All of the text."""
        return Span(self.tokens, self.num_bytes)

    def split(self, share: float) -> tuple[Span, Span]:
        """The text without its end, and its end: about `share` of the bytes, cut between pieces where tokens are not bytes.

        ValueError where there is nothing to cut off.
        """
        place = self.num_bytes - round(self.num_bytes * share)
        cut = place
        if not self._one_byte_each:
            before = int(np.searchsorted(self._index["bytes"], place, side="right"))
            place, cut = (int(self._index[before - 1][name]) for name in ("bytes", "tokens")) if before else (0, 0)
        if not 0 < place < self.num_bytes:
            raise ValueError(
                f"the text ({self.num_bytes:,} bytes) is too short to cut {share:g} off; give --validation FILE"
            )
        return Span(self.tokens[:cut], place), Span(self.tokens[cut:], self.num_bytes - place)


def store_key(sources: Sequence[Source], tokens: Tokens) -> str:
    """Return what tells a store from others: a hash of the texts, in their order, and of the tokenizer."""
    content = [FORMAT, str(VERSION), tokens.digest, *(source.digest for source in sources)]
    return hashlib.sha256("\n".join(content).encode()).hexdigest()[:32]


def store_folder(key: str) -> Path:
    """Return where the store of a key lies, made or not."""
    return data_root() / f"text-{key}"


def prepare(sources: Sequence[Source], tokens: Tokens, on_progress: Progress | None = None) -> str:
    """Make the store of these texts, unless it is there, and return its key.

    What an earlier call left unfinished is gone on with; a second process that prepares the same waits. ValueError for a
    folder that holds other files, OSError (naming the file) where there is no room: what is written stays good.
    """
    key = store_key(sources, tokens)
    folder = store_folder(key)
    folder.mkdir(parents=True, exist_ok=True)
    if strange := sorted({path.name for path in folder.iterdir()} - OURS):
        raise ValueError(
            f"{folder} holds {', '.join(strange)}, which is not ours; set ${DATA_VARIABLE} to another folder"
        )
    with open(folder / ".lock", "ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "store.json").exists():
            _write(folder, sources, tokens, on_progress)
    return key


def _write(folder: Path, sources: Sequence[Source], tokens: Tokens, on_progress: Progress | None) -> None:
    dtype = np.dtype("<u1" if tokens.vocab_size <= 256 else "<u2")
    total = sum(source.num_bytes or 0 for source in sources) if all(source.num_bytes for source in sources) else None
    index = _good_records(folder, dtype)
    num_bytes, num_tokens = (int(index[-1][name]) if len(index) else 0 for name in ("bytes", "tokens"))
    where = (int(index[-1]["source"]), int(index[-1]["position"])) if len(index) else (0, 0)
    with (
        _opened(folder / "tokens.bin", num_tokens * dtype.itemsize) as token_file,
        _opened(folder / "index.bin", index.nbytes) as index_file,
    ):
        pieces = _pieces(sources, *where)
        while batch := list(itertools.islice(pieces, AT_ONCE)):
            records = np.zeros(len(batch), RECORD)
            parts = [part.astype(dtype).tobytes() for part in tokens.encode([piece for _, _, piece in batch])]
            for record, (number, position, piece), part in zip(records, batch, parts, strict=True):
                num_bytes, num_tokens = num_bytes + len(piece), num_tokens + len(part) // dtype.itemsize
                record["source"], record["position"], record["bytes"] = number, position, num_bytes
                record["tokens"], record["crc"] = num_tokens, zlib.crc32(part)
            # In this order: see above.
            _append(folder / "tokens.bin", token_file, b"".join(parts))
            _append(folder / "index.bin", index_file, records.tobytes())
            if on_progress:
                on_progress("preparing text", num_bytes, total)
        for file in (token_file, index_file):
            os.fsync(file.fileno())
    if num_tokens == 0 or (total is not None and num_bytes != total):
        names = ", ".join(source.name for source in sources)
        raise ValueError(
            f"{names}: {num_bytes:,} bytes and {num_tokens:,} tokens were read; was it changed meanwhile? Start again"
        )
    content = {
        "format": FORMAT,
        "version": VERSION,
        "tokenizer": tokens.digest,
        "dtype": dtype.str,
        "sources": [{"name": Path(source.name).name, "digest": source.digest} for source in sources],
        "num_bytes": num_bytes,
        "num_tokens": num_tokens,
        "index_crc": zlib.crc32((folder / "index.bin").read_bytes()),
    }
    with _opened(folder / "store.json.tmp", 0) as file:
        _append(folder / "store.json.tmp", file, json.dumps(content, indent=2).encode())
        os.fsync(file.fileno())
    os.replace(folder / "store.json.tmp", folder / "store.json")


def _pieces(sources: Sequence[Source], first: int, position: int) -> Iterator[tuple[int, int, bytes]]:
    for number in range(first, len(sources)):
        for after, piece in sources[number].pieces(position):
            yield number, after, piece
        position = 0


def _opened(path: Path, size: int) -> FileIO:
    """The file, cut or made to `size` bytes, to go on behind them; unbuffered, so that closing it has nothing left to fail at."""
    file = open(path, "ab", buffering=0)  # noqa: SIM115
    file.truncate(size)
    return file


def _append(path: Path, file: FileIO, content: bytes) -> None:
    """Hand `content` to the operating system, so that a kill no longer loses it."""
    try:
        left = memoryview(content)
        while left:
            left = left[file.write(left) :]
    except OSError as error:
        raise OSError(
            error.errno, f"{error.strerror} while writing {path}: make room, then go on with the same command"
        ) from error


def _good_records(folder: Path, dtype: np.dtype) -> np.ndarray:
    """The records that a kill left, up to the last one whose tokens are whole."""
    path = folder / "index.bin"
    content = path.read_bytes() if path.exists() else b""
    index = np.frombuffer(content[: len(content) // RECORD.itemsize * RECORD.itemsize], RECORD)
    return index[: _num_good(folder / "tokens.bin", index, dtype)]


def _num_good(path: Path, index: np.ndarray, dtype: np.dtype) -> int:
    """How many of the records, from the first, have the tokens that their checksums say."""
    if not path.exists():
        return 0
    start = 0
    with open(path, "rb") as file:
        for number, (end, crc) in enumerate(zip(index["tokens"].tolist(), index["crc"].tolist(), strict=True)):
            wanted = (end - start) * dtype.itemsize
            part = file.read(wanted) if wanted >= 0 else b""
            if len(part) != wanted or zlib.crc32(part) != crc:
                return number
            start = end
    return len(index)
