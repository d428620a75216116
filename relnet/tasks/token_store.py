"""Prepared text: a memory-mapped file of token numbers, made once a text and tokenizer, never in memory (`prepared_files`).

STORE/tokens.bin   the tokens, uint8 where 256 numbers are enough, else uint16, little-endian
STORE/index.bin    one record a piece of text (about 16 KiB): where it ends, in source, bytes and tokens, and the CRC-32 of its tokens
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from relnet.tasks.prepared_files import Chunks, checked_index, content_key, data_root, finish, read_finished, unfinished
from relnet.tasks.text_sources import Progress, Source
from relnet.tasks.text_tokens import Tokens

FORMAT = "relnet-tokens"
VERSION = 1
RECORD = np.dtype([("source", "<u4"), ("crc", "<u4"), ("position", "<u8"), ("bytes", "<u8"), ("tokens", "<u8")])
# Pieces tokenised at once: 1 MiB of text.
AT_ONCE = 64


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
        content = read_finished(folder, FORMAT, VERSION, ("tokenizer", "dtype"))
        self._one_byte_each: bool = content["tokenizer"] == "bytes"
        dtype = np.dtype(content["dtype"])
        self._index = checked_index(folder, "tokens.bin", RECORD, "tokens", dtype.itemsize, content)
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
    return content_key([FORMAT, str(VERSION), tokens.digest, *(source.digest for source in sources)])


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
    with unfinished(folder, "tokens.bin") as wanted:
        if wanted:
            _write(folder, sources, tokens, on_progress)
    return key


def _write(folder: Path, sources: Sequence[Source], tokens: Tokens, on_progress: Progress | None) -> None:
    dtype = np.dtype("<u1" if tokens.vocab_size <= 256 else "<u2")
    total = sum(source.num_bytes or 0 for source in sources) if all(source.num_bytes for source in sources) else None
    with Chunks(folder, "tokens.bin", RECORD, "tokens", dtype.itemsize) as chunks:
        last = np.zeros((), RECORD) if chunks.last is None else chunks.last
        source, position, num_bytes, num_tokens = (
            int(last[name]) for name in ("source", "position", "bytes", "tokens")
        )
        pieces = _pieces(sources, source, position)
        while batch := list(itertools.islice(pieces, AT_ONCE)):
            records = np.zeros(len(batch), RECORD)
            parts = [part.astype(dtype).tobytes() for part in tokens.encode([piece for _, _, piece in batch])]
            for record, (number, position, piece), part in zip(records, batch, parts, strict=True):
                num_bytes, num_tokens = num_bytes + len(piece), num_tokens + len(part) // dtype.itemsize
                record["source"], record["position"], record["bytes"] = number, position, num_bytes
                record["tokens"] = num_tokens
            chunks.append(parts, records)
            if on_progress:
                on_progress("preparing text", num_bytes, total)
    if num_tokens == 0 or (total is not None and num_bytes != total):
        names = ", ".join(source.name for source in sources)
        raise ValueError(
            f"{names}: {num_bytes:,} bytes and {num_tokens:,} tokens were read; was it changed meanwhile? Start again"
        )
    finish(
        folder,
        {
            "format": FORMAT,
            "version": VERSION,
            "tokenizer": tokens.digest,
            "dtype": dtype.str,
            "sources": [{"name": Path(source.name).name, "digest": source.digest} for source in sources],
            "num_bytes": num_bytes,
            "num_tokens": num_tokens,
        },
    )


def _pieces(sources: Sequence[Source], first: int, position: int) -> Iterator[tuple[int, int, bytes]]:
    for number in range(first, len(sources)):
        for after, piece in sources[number].pieces(position):
            yield number, after, piece
        position = 0
