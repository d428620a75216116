"""CIFAR-5m's npz parts as a source of images."""

import hashlib
import io
import lzma
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from relnet.tasks.image_decoding import Fit, refitted
from relnet.tasks.image_sources import ROWS_AT_ONCE, Example, numbered


class NpzSource:
    """A part of CIFAR-5m: an npz file with X (images, height, width, channels) uint8 and Y (labels), read as a stream.

    ValueError for a file that is cut short, damaged, or holds other arrays.
    """

    def __init__(self, path: Path, fit: Fit = None) -> None:
        self.name, self._path, self._fit = str(path), path, fit
        with _damage(path), zipfile.ZipFile(path) as archive:
            members = {info.filename: info for info in archive.infolist()}
            if not {"X.npy", "Y.npy"} <= members.keys():
                raise ValueError(f"{path} holds {', '.join(members)}; the arrays X (images) and Y (labels) wanted")
            with archive.open("Y.npy") as file:
                self._labels = np.load(io.BytesIO(file.read()))
            with archive.open("X.npy") as file:
                shape, dtype = _npy_header(file)
        if len(shape) != 4 or shape[3] not in (1, 3) or dtype != np.uint8 or self._labels.shape != shape[:1]:
            raise ValueError(
                f"{path}: X is {shape} {dtype}, Y is {self._labels.shape}; images (N, H, W, 1 or 3) uint8 wanted"
            )
        if self._labels.dtype.kind not in "iu" or not shape[0]:
            raise ValueError(
                f"{path}: labels are {self._labels.dtype}, {shape[0]} images; whole numbers and images wanted"
            )
        self.num_images, self._pixels, self._whole = shape[0], shape[1:], False
        self.classes = numbered(int(self._labels.max()) + 1, path)
        # The archive's own checksums say what is in it.
        said = [f"{name} {members[name].file_size} {members[name].CRC:08x}" for name in ("X.npy", "Y.npy")]
        self.digest = hashlib.sha256("\n".join(said).encode()).hexdigest()

    def examples(self, position: int) -> Iterator[Example]:
        """The images in their order, a few hundred in memory at a time."""
        assert self.num_images is not None
        item = int(np.prod(self._pixels))
        if position:
            self._check()
        with _damage(self._path), zipfile.ZipFile(self._path) as archive, archive.open("X.npy") as file:
            _npy_header(file)
            file.seek(position * item, io.SEEK_CUR)
            for first in range(position, self.num_images, ROWS_AT_ONCE):
                num = min(ROWS_AT_ONCE, self.num_images - first)
                content = file.read(num * item)
                if len(content) < num * item:
                    raise ValueError(
                        f"{self._path} is cut short at image {first + len(content) // item}; fetch it again"
                    )
                images = np.frombuffer(content, np.uint8).reshape(num, *self._pixels)
                for number, image in enumerate(images, start=first):
                    example = refitted(image, self._fit), int(self._labels[number])
                    yield number + 1, f"{self.name}, image {number}", example
                    # Not before: who looks at the first image only, for its shape, need not wait for all to be read.
                    self._check()

    def _check(self) -> None:
        """Read X against the archive's checksum, once: a copy that is damaged has the digest of a good one, so none of it may be kept."""
        if not self._whole:
            with _damage(self._path), zipfile.ZipFile(self._path) as archive, archive.open("X.npy") as file:
                while file.read(ROWS_AT_ONCE * int(np.prod(self._pixels))):
                    pass
        self._whole = True


@contextmanager
def _damage(path: Path) -> Generator[None]:
    """Say of which archive it is that zipfile, its decompressors and NumPy complain; RuntimeError: encrypted, or of no kind they know."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError) as error:
        if str(path) in str(error):
            raise
        raise ValueError(f"{path} is cut short or damaged ({error}); fetch it again") from None


def _npy_header(file: Any) -> tuple[tuple[int, ...], np.dtype]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, by_columns, dtype = read(file)
    if by_columns:
        raise ValueError("X is in Fortran order; C order wanted")
    return shape, dtype
