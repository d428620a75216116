"""Where images come from: the digits of scikit-learn, parquet files, folders, data sets of the Hugging Face hub.

A source gives its images one after the other, with the position after each, and can start again at any position. What is wrong with an
image is an `ImageError` that names file and place; whether that ends the reading or is counted is the reader's affair.
"""

import hashlib
import json
import os
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from relnet.tasks.image_decoding import ENDINGS, Fit, ImageError, decode, image_files, readable_name, refitted
from relnet.tasks.text_sources import stream

DIGITS = "digits"
HUB = "hub:"
# Names that columns have in the data sets of the hub, the first that is there.
IMAGE_COLUMNS = ("img", "image")
LABEL_COLUMNS = ("label", "labels", "fine_label", "coarse_label")
ROWS_AT_ONCE = 256


@dataclass(frozen=True)
class Shape:
    """Height, width and channels (1: grey, 3: RGB) of every image of a data set, and its classes by name."""

    height: int
    width: int
    channels: int
    classes: tuple[str, ...]

    @property
    def pixels(self) -> tuple[int, int, int]:
        """(height, width, channels)."""
        return self.height, self.width, self.channels


# The position after it, where it stands in words, and an image (height, width, channels) uint8 with the number of its class, or what is
# wrong with it.
Example = tuple[int, str, tuple[np.ndarray, int] | ImageError]


class ImageSource(Protocol):
    """A data set. `name`: for messages; `digest`: of its content; `num_images`: None where it is not known beforehand.

    `classes`: their names. Sources are opened with `fit`, what every image is brought to, None: it stays as it is.
    """

    name: str
    digest: str
    classes: tuple[str, ...]

    @property
    def num_images(self) -> int | None:
        """Images in all."""
        ...

    def examples(self, position: int) -> Iterator[Example]:
        """The images from `position` on; the start is 0."""
        ...


class DigitsSource:
    """The 1,797 digits of scikit-learn, 8 x 8, grey: the offline default."""

    def __init__(self, fit: Fit = None) -> None:
        try:
            from sklearn.datasets import load_digits
        except ImportError:
            raise ValueError(
                "digits need the extra images: pip install 'relnet[images]'; or give images of yours"
            ) from None
        pixels, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
        self._images = np.round(pixels.reshape(-1, 8, 8, 1) * (255 / 16)).astype(np.uint8)
        self._labels, self._fit = labels.tolist(), fit
        self.name, self.num_images = DIGITS, len(labels)
        self.classes = tuple(str(digit) for digit in range(10))
        self.digest = hashlib.sha256(self._images.tobytes() + bytes(self._labels)).hexdigest()

    def examples(self, position: int) -> Iterator[Example]:
        """The digits in scikit-learn's order."""
        for number in range(position, len(self._labels)):
            yield number + 1, f"digit {number}", (refitted(self._images[number], self._fit), self._labels[number])


class ParquetSource:
    """A parquet file with a column of encoded images (bytes, or bytes and path) and one of labels, as data sets of the hub have them.

    Classes: the names that the hub's metadata give, else 0 to the highest label. ValueError for a file that is none, or lacks a column.
    """

    def __init__(self, path: Path, fit: Fit = None) -> None:
        try:
            import pyarrow.parquet
        except ImportError:
            raise ValueError(f"{path}: parquet needs the extra images: pip install 'relnet[images]'") from None
        self.name, self._path, self._fit = str(path), path, fit
        with _damage(path), pyarrow.parquet.ParquetFile(path) as file:
            names, self.num_images = file.schema_arrow.names, file.metadata.num_rows
            self._image, self._label = (_column(names, wanted, path) for wanted in (IMAGE_COLUMNS, LABEL_COLUMNS))
            if not self.num_images:
                raise ValueError(f"{path} holds no images")
            labels = file.read([self._label]).column(0).to_pylist()
            described = (file.schema_arrow.metadata or {}).get(b"huggingface", b"{}")
        whole = [label for label in labels if isinstance(label, int)]
        self.classes = _described(described, self._label) or numbered(max(whole, default=-1) + 1, path)
        self.digest = _file_digest(path)

    def examples(self, position: int) -> Iterator[Example]:
        """The rows in their order."""
        import pyarrow.parquet

        row = 0
        with _damage(self._path), pyarrow.parquet.ParquetFile(self._path) as file:
            for group in range(file.num_row_groups):
                if row + file.metadata.row_group(group).num_rows <= position:
                    row += file.metadata.row_group(group).num_rows
                    continue
                columns = [self._image, self._label]
                for batch in file.iter_batches(ROWS_AT_ONCE, row_groups=[group], columns=columns):
                    # By name: the file's order of columns is its own.
                    images, labels = (batch.column(name).to_pylist() for name in columns)
                    for image, label in zip(images, labels, strict=True):
                        row += 1
                        if row > position:
                            yield row, *_labelled(image, label, f"{self.name}, row {row - 1}", self._fit)


@contextmanager
def _damage(path: Path) -> Generator[None]:
    """Say of which parquet file it is that pyarrow complains; texts in it are decoded only where they are read."""
    import pyarrow.lib

    try:
        yield
    except (pyarrow.lib.ArrowException, OSError, UnicodeDecodeError) as error:
        what = str(error).partition("\n")[0]
        raise ValueError(f"{path} is no parquet file, or a damaged one ({what}); fetch it again") from None


def _labelled(image: Any, label: Any, place: str, fit: Fit) -> tuple[str, tuple[np.ndarray, int] | ImageError]:
    """The place, and an image (encoded, a file, or a cell of a column, which may be empty) with its label, or what is wrong with it."""
    content = image.get("bytes") if isinstance(image, dict) else image
    if not isinstance(content, bytes | Path):
        return place, ImageError(f"{place}: no image in it")
    if not isinstance(label, int):
        return place, ImageError(f"{place}: label {label!r} is no number of a class")
    try:
        return place, (decode(content, place, fit), label)
    except ImageError as fault:
        return place, fault


def _column(names: Sequence[str], wanted: Sequence[str], where: object) -> str:
    for name in wanted:
        if name in names:
            return name
    raise ValueError(f"{where} has the columns {', '.join(names)}; one of {', '.join(wanted)} wanted")


def _described(metadata: bytes, column: str) -> tuple[str, ...]:
    """The names of classes in the hub's metadata of a parquet file, none where it has none."""
    try:
        names = json.loads(metadata)["info"]["features"][column]["names"]
        return tuple(str(name) for name in names)
    except (ValueError, KeyError, TypeError):
        return ()


def numbered(num: int, where: object) -> tuple[str, ...]:
    """Return the numbers of classes that have no names; ValueError for none of them, and for more than 2^15."""
    if not 1 <= num <= 2**15:
        raise ValueError(f"{where}: its labels make {num} classes; numbers from 0 wanted")
    return tuple(str(number) for number in range(num))


class FolderSource:
    """A folder of one folder of image files a class, at any depth below it, classes and files by name; other files are left alone.

    ValueError for a folder without such folders, without image files in one of them, or with a train/ of folders as one of them.
    """

    def __init__(self, path: Path, fit: Fit = None) -> None:
        self.name, self._fit = str(path), fit
        folders = sorted(place for place in path.iterdir() if place.is_dir() and not place.name.startswith("."))
        if not folders:
            raise ValueError(f"{path} holds no folders of images; give a folder with a folder of images for each class")
        train = path / "train"
        within = list(train.iterdir()) if train in folders else []
        if any(place.is_dir() for place in within) and not any(place.suffix.lower() in ENDINGS for place in within):
            raise ValueError(
                f"{path} has a folder train of folders, which is no class; give {train}, and what to test on by itself"
            )
        self._files: list[tuple[Path, int]] = []
        for number, folder in enumerate(folders):
            files = image_files(folder)
            if not files:
                raise ValueError(f"{folder} is empty: it holds no images ({', '.join(ENDINGS)})")
            self._files += [(file, number) for file in files]
        self.classes, self.num_images = tuple(readable_name(folder.name) for folder in folders), len(self._files)
        digest = hashlib.sha256()
        for file, _ in self._files:
            # A name is bytes, and need not be UTF-8.
            digest.update(os.fsencode(file.relative_to(path)) + f"\n{_file_digest(file)}\n".encode())
        self.digest = digest.hexdigest()

    def examples(self, position: int) -> Iterator[Example]:
        """The files class by class."""
        for number in range(position, len(self._files)):
            path, label = self._files[number]
            yield number + 1, *_labelled(path, label, str(path), self._fit)


class HubImages:
    """A split of an image data set of the Hugging Face hub, streamed: an image column and one of labels with the names of classes.

    spec: "hub:OWNER/NAME:CONFIG:SPLIT" (the configuration may be empty, the split left out: train). What it holds is known by its name
    alone. ValueError for another spelling, without the extra data, or without such columns.
    """

    num_images: int | None = None

    def __init__(self, spec: str, fit: Fit = None) -> None:
        path, _, rest = spec.removeprefix(HUB).partition(":")
        config, _, split = rest.partition(":")
        if not path:
            raise ValueError(f"{spec}: a data set of the hub is written hub:OWNER/NAME:CONFIG:SPLIT")
        self.name, self._fit = spec, fit
        self._where = path, config or None, split or "train"
        self.digest = hashlib.sha256(":".join(map(str, self._where)).encode()).hexdigest()
        features = stream(*self._where).features or {}
        self._image, self._label = (_column(list(features), names, spec) for names in (IMAGE_COLUMNS, LABEL_COLUMNS))
        names = getattr(features[self._label], "names", None)
        if not names:
            raise ValueError(f"{spec}: its column {self._label} names no classes")
        self.classes = tuple(names)

    def examples(self, position: int) -> Iterator[Example]:
        """The rows in their order."""
        import datasets

        # Encoded as they lie there: what decodes them here says what is wrong, and with which.
        rows = stream(*self._where).cast_column(self._image, datasets.Image(decode=False)).skip(position)
        for row in rows:
            place = f"{self.name}, row {position}"
            position += 1
            yield position, *_labelled(row[self._image], row[self._label], place, self._fit)


def _file_digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
