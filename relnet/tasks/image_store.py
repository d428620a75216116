"""Prepared images: a memory-mapped file of pixels and labels, made once a data set, never in memory (`prepared_files`).

STORE/images.bin   an image after the other: the number of its class, uint16, and its pixels (height, width, channels), uint8
STORE/index.bin    one record a chunk of images: where it ends, in source and images, how many were left out, and its CRC-32
"""

import itertools
import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from relnet.tasks.image_decoding import ImageError
from relnet.tasks.image_sources import Example, ImageSource, Shape
from relnet.tasks.prepared_files import Chunks, checked_index, content_key, data_root, finish, read_finished, unfinished
from relnet.tasks.text_sources import Progress

FORMAT = "relnet-images"
VERSION = 1
RECORD = np.dtype([("source", "<u4"), ("crc", "<u4"), ("position", "<u8"), ("images", "<u8"), ("skipped", "<u8")])
CHUNK = 256

logger = logging.getLogger(__name__)


class ImageStore:
    """A finished store, opened, every image checked against its checksum once; ValueError for one that is damaged or not finished.

    images: (N,) with the fields "label" and "pixels", memory-mapped; mean, std: of each channel over all of them, pixels in [0, 1].
    """

    def __init__(self, folder: Path):
        content = read_finished(folder, FORMAT, VERSION, ("pixels", "classes", "num_images", "skipped", "mean", "std"))
        height, width, channels = content["pixels"]
        self.shape = Shape(height, width, channels, tuple(content["classes"]))
        self.skipped: int = content["skipped"]
        self.mean, self.std = tuple(content["mean"]), tuple(content["std"])
        dtype = item_dtype(self.shape)
        checked_index(folder, "images.bin", RECORD, "images", dtype.itemsize, content)
        self.images = np.memmap(folder / "images.bin", dtype, "r", shape=(content["num_images"],))


def item_dtype(shape: Shape) -> np.dtype:
    """Return how an image lies in a store."""
    return np.dtype([("label", "<u2"), ("pixels", "u1", shape.pixels)])


def store_folder(key: str) -> Path:
    """Return where the store of a key lies, made or not."""
    return data_root() / f"images-{key}"


def store_key(sources: Sequence[ImageSource], fit: object, shape: Shape, skip: bool) -> str:
    """Return what tells a store from others: a hash of the data sets, in their order, what images are brought to, what is left out.

    shape: what is left out depends on it too.
    """
    taken = json.dumps([fit, shape.pixels, shape.classes, skip])
    return content_key([FORMAT, str(VERSION), taken, *(source.digest for source in sources)])


def shape_of(sources: Sequence[ImageSource], skip: bool) -> Shape:
    """Return the shape of the first image, which all others must have, and the classes; ValueError for faults as `prepare`."""
    for _, _, example in itertools.chain.from_iterable(source.examples(0) for source in sources):
        if not isinstance(example, ImageError):
            height, width, channels = example[0].shape
            return Shape(height, width, channels, max((source.classes for source in sources), key=len))
        if not skip:
            raise example
    raise ValueError(f"{', '.join(source.name for source in sources)}: not one image that can be read")


def prepare(
    sources: Sequence[ImageSource], fit: object, shape: Shape, skip: bool, on_progress: Progress | None = None
) -> str:
    """Make the store of these data sets, unless it is there, and return its key.

    fit: what the sources bring images to. shape: what every image must have. skip: leave out what is faulty, and say how much
    that was; else ValueError at the first fault, naming file and place. What an earlier call left unfinished is gone on with.
    """
    key = store_key(sources, fit, shape, skip)
    folder = store_folder(key)
    with unfinished(folder, "images.bin") as wanted:
        if wanted:
            _write(folder, sources, shape, skip, on_progress)
    return key


def _write(
    folder: Path, sources: Sequence[ImageSource], shape: Shape, skip: bool, on_progress: Progress | None
) -> None:
    dtype = item_dtype(shape)
    counts = [source.num_images for source in sources]
    total = None if None in counts else sum(count or 0 for count in counts) * dtype.itemsize
    first_fault = None
    with Chunks(folder, "images.bin", RECORD, "images", dtype.itemsize) as chunks:
        last = np.zeros((), RECORD) if chunks.last is None else chunks.last
        source, position, num_images, skipped = (
            int(last[name]) for name in ("source", "position", "images", "skipped")
        )
        examples = _examples(sources, source, position)
        while batch := list(itertools.islice(examples, CHUNK)):
            good = np.zeros(len(batch), dtype)
            kept = 0
            for _, (_, place, example) in batch:
                fault = example if isinstance(example, ImageError) else _misfit(*example, shape, place)
                if not isinstance(example, ImageError) and fault is None:
                    good["pixels"][kept], good["label"][kept] = example
                    kept += 1
                elif skip:
                    first_fault, skipped = first_fault or fault, skipped + 1
                else:
                    assert fault is not None
                    raise fault
            num_images += kept
            source, (position, _, _) = batch[-1]
            record = np.array([(source, 0, position, num_images, skipped)], RECORD)
            chunks.append([good[:kept].tobytes()], record)
            if on_progress:
                on_progress("preparing images", (num_images + skipped) * dtype.itemsize, total)
    names = ", ".join(source.name for source in sources)
    if not num_images:
        raise ValueError(f"{names}: not one image that can be read")
    if skipped:
        # None: all of them were left out before a kill.
        such_as = f"; such as: {first_fault}" if first_fault else ""
        logger.warning("%s: %d of %d images left out%s", names, skipped, skipped + num_images, such_as)
    mean, std = _statistics(np.memmap(folder / "images.bin", dtype, "r", shape=(num_images,)))
    finish(
        folder,
        {
            "format": FORMAT,
            "version": VERSION,
            "pixels": shape.pixels,
            "classes": shape.classes,
            "num_images": num_images,
            "skipped": skipped,
            "mean": mean,
            "std": std,
            "sources": [{"name": Path(source.name).name, "digest": source.digest} for source in sources],
        },
    )


def _examples(sources: Sequence[ImageSource], first: int, position: int) -> Iterator[tuple[int, Example]]:
    for number in range(first, len(sources)):
        for example in sources[number].examples(position):
            yield number, example
        position = 0


def _misfit(pixels: np.ndarray, label: int, shape: Shape, place: str) -> ImageError | None:
    """What is wrong with an image that can be read."""
    if not 0 <= label < len(shape.classes):
        return ImageError(f"{place}: label {label}, and there are {len(shape.classes)} classes, numbered from 0")
    if pixels.shape != shape.pixels:
        return ImageError(
            f"{place} is {_said(pixels.shape)}, the first image is {_said(shape.pixels)}; give a size to bring all to"
        )
    return None


def _said(pixels: tuple[int, ...]) -> str:
    height, width, channels = pixels
    return f"{width} x {height} {'grey' if channels == 1 else 'RGB'}"


def _statistics(images: np.ndarray) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel, pixels in [0, 1]; exact sums of whole numbers, so the blocks change nothing."""
    sums, squares, num = 0, 0, 0
    for start in range(0, len(images), CHUNK):
        pixels = images["pixels"][start : start + CHUNK].astype(np.int64)
        sums, squares = sums + pixels.sum((0, 1, 2)), squares + (pixels**2).sum((0, 1, 2))
        num += pixels[..., 0].size
    mean = np.asarray(sums) / num
    std = np.sqrt(np.maximum(np.asarray(squares) / num - mean**2, 0.0))
    # A channel that is the same everywhere says nothing; it becomes 0, not 0 / 0.
    return (mean / 255).tolist(), np.where(std == 0, 1.0, std / 255).tolist()
