"""Where text comes from: UTF-8 files, folders of them, data sets of the Hugging Face hub; read in pieces, never whole.

A source's pieces depend on where a piece begins and on nothing else, so reading that starts again at any piece goes on with
the same ones.
"""

import codecs
import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

PIECE = 2**14
BLOCK = 2**20
HUB = "hub:"
SHORT_NAMES = {
    "wikitext-103": "hub:Salesforce/wikitext:wikitext-103-raw-v1:train",
    "wikitext-103/validation": "hub:Salesforce/wikitext:wikitext-103-raw-v1:validation",
    "wikitext-103/test": "hub:Salesforce/wikitext:wikitext-103-raw-v1:test",
}
# Called with what is done, the bytes done, and all of them where that is known.
Progress = Callable[[str, int, int | None], None]


class Source(Protocol):
    """A text. `name`: for messages; `digest`: of its content; `num_bytes`: None where it is not known beforehand."""

    name: str
    digest: str
    num_bytes: int | None

    def pieces(self, position: int) -> Iterator[tuple[int, bytes]]:
        """Pieces of UTF-8 text of about 16 KiB from `position` on, each with the position after it; the start is 0."""
        ...


class FileSource:
    """One file of UTF-8 text, read once through to check it and to know its content by a hash.

    ValueError for a file that is missing, empty, binary or not UTF-8, naming the byte.
    """

    def __init__(self, path: Path, on_progress: Progress | None = None):
        self.name, self._path = str(path), path
        if not path.is_file():
            raise ValueError(f"{path} is no file of text; give a text file, a folder of *.txt files, or wikitext-103")
        self.num_bytes: int | None = path.stat().st_size
        self._version = _version(path)
        self.digest = _read_through(path, self.num_bytes, on_progress)

    def pieces(self, position: int) -> Iterator[tuple[int, bytes]]:
        """Pieces that end at the last line end within 16 KiB, or, in a longer line, at a whole character.

        ValueError where the file is no longer the one whose content `digest` names.
        """
        with open(self._path, "rb") as file:
            file.seek(position)
            rest = b""
            while rest := rest + file.read(PIECE - len(rest)):
                end = len(rest)
                if end == PIECE:
                    end = rest.rfind(b"\n") + 1 or _whole_characters(rest)
                position += end
                if _version(self._path) != self._version:
                    raise ValueError(f"{self._path} was changed while it was read; start again")
                yield position, rest[:end]
                rest = rest[end:]


class HubSource:
    """A split of a data set of the Hugging Face hub, streamed: the column "text", one line end behind each row.

    spec: "hub:OWNER/NAME:CONFIG:SPLIT" (the split may be left out: train; the configuration may be empty). What it holds is
    known by its name alone. ValueError for another spelling or without the extra data.
    """

    num_bytes: int | None = None

    def __init__(self, spec: str):
        self.name = spec
        path, _, rest = spec.removeprefix(HUB).partition(":")
        config, _, split = rest.partition(":")
        if not path:
            raise ValueError(f"{spec}: a data set of the hub is written hub:OWNER/NAME:CONFIG:SPLIT")
        self._where = path, config or None, split or "train"
        self.digest = hashlib.sha256(":".join(map(str, self._where)).encode()).hexdigest()

    def pieces(self, position: int) -> Iterator[tuple[int, bytes]]:
        """Pieces of whole rows; positions count rows."""
        gathered = b""
        for row in stream(*self._where).skip(position):
            text = row.get("text") if isinstance(row, dict) else None
            if not isinstance(text, str):
                raise ValueError(f'{self.name}, row {position}: no column "text" with text in it')
            position += 1
            gathered += text.encode(errors="replace") + (b"" if text.endswith("\n") else b"\n")
            if len(gathered) >= PIECE:
                yield position, gathered
                gathered = b""
        if gathered:
            yield position, gathered


def stream(path: str, config: str | None, split: str) -> Any:
    """Return the rows of a hub data set, fetched as they are read; OSError without a network."""
    try:
        import datasets
    except ImportError:
        raise ValueError(f"{path}: needs the extra data: pip install 'relnet[data]'; or give a text file") from None
    try:
        return datasets.load_dataset(path, config, split=split, streaming=True)
    except (OSError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise OSError(f"{path} cannot be had from the hub ({reason}); without a network give a text file") from error


def open_sources(names: Sequence[str], on_progress: Progress | None = None) -> list[Source]:
    """Open texts in the order given, the files of a folder (*.txt, at any depth, links to folders not followed) by name.

    A file or folder comes before a short name such as "wikitext-103". ValueError for no names, a folder without *.txt
    files, and as `FileSource` and `HubSource`.
    """
    if not names:
        raise ValueError("no text given; give files, folders or a hub name")
    sources: list[Source] = []
    for name in names:
        path = Path(name)
        spec = name if path.exists() else SHORT_NAMES.get(name, name)
        if spec.startswith(HUB):
            sources.append(HubSource(spec))
        elif path.is_dir():
            files = _text_files(path)
            if not files:
                raise ValueError(f"{path} holds no *.txt files; give a folder of UTF-8 text files, or one file")
            sources += [FileSource(file, on_progress) for file in files]
        else:
            sources.append(FileSource(path, on_progress))
    return sources


def _text_files(folder: Path) -> list[Path]:
    """The *.txt files of a folder, at any depth, by name; OSError for a folder that cannot be read, which holds who knows what."""

    def refuse(error: OSError) -> None:
        raise error

    walked = os.walk(folder, onerror=refuse)
    return sorted(Path(place) / name for place, _, names in walked for name in names if name.endswith(".txt"))


def _version(path: Path) -> tuple[int, int, int]:
    """What changes when somebody writes to a file or puts another one in its place."""
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _read_through(path: Path, num_bytes: int | None, on_progress: Progress | None) -> str:
    if num_bytes == 0:
        raise ValueError(f"{path} is empty; give a file with text in it")
    digest, decoder, done = hashlib.sha256(), codecs.getincrementaldecoder("utf-8")(), 0
    with open(path, "rb") as file:
        while block := file.read(BLOCK):
            if (zero := block.find(b"\0")) >= 0:
                raise ValueError(f"{path} is a binary file (byte {done + zero:,} is 0); give UTF-8 text")
            pending = len(decoder.getstate()[0])
            try:
                decoder.decode(block)
            except UnicodeDecodeError as error:
                place = done - pending + error.start
                raise ValueError(f"{path} is not UTF-8 (byte {place:,}: {error.reason}); convert it") from None
            digest.update(block)
            done += len(block)
            if on_progress:
                on_progress(f"reading {path.name}", done, num_bytes)
    try:
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 (its last character is cut short); convert it") from None
    return digest.hexdigest()


def _whole_characters(text: bytes) -> int:
    """Bytes of `text` without the beginning of a character at its end."""
    end = len(text) - 1
    while text[end] & 0xC0 == 0x80:
        end -= 1
    lead = text[end]
    length = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
    return len(text) if end + length == len(text) else end
