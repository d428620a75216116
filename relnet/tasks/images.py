"""Classification of images, cut into patches: the tokens of a bidirectional model.

Item k of a seed is a training image, flipped and shifted by chance. Images come in epochs, each with every one once in a random order;
order, flips and shifts are functions of (seed, k), computed from Philox's raw words: an item is the same in any batch and process.

    N = training images; item k is image P_e(k mod N), e = floor(k / N), P_e a keyed permutation as of `tasks.text`
    patches (H/p W/p, p p C), row by row, of (pixel / 255 - mean) / std
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from relnet.tasks.image_archives import NpzSource
from relnet.tasks.image_decoding import Fit, decode
from relnet.tasks.image_opening import SHORT_NAMES, check_classes, open_images, own_split
from relnet.tasks.image_sources import DIGITS, ImageSource, Shape
from relnet.tasks.image_store import ImageStore, prepare, shape_of, store_folder, store_key
from relnet.tasks.task import Batch
from relnet.tasks.text import ROUNDS, permuted
from relnet.tasks.text_sources import Progress

# Counters of Philox streams that no other task has: of an epoch's order, of an item's flip and shift, of the images held out.
ORDER, CHANCE, HELD_OUT = 4, 5, 6


@dataclass(frozen=True)
class Images:
    """The class of an image.

    data: "digits" (of scikit-learn), parquet and npz files, a folder of such files or of a folder a class, "cifar10" from the
        Hugging Face hub, "hub:OWNER/NAME:CONFIG:SPLIT".
    test: images held out, in the same forms; None: a folder's test/ beside its train/ (or val/, validation/; files named so likewise),
        CIFAR-10's own, the last of several npz parts (CIFAR-5m), or else `test_share` of the data, drawn once for all seeds.
    patch: side of a patch, in pixels. size: bring every image to RGB of size x size; None: all must be alike.
    flip: turn half of the training images left to right. crop: shift them by up to so many pixels; the mean colour fills the border.
    skip: leave faulty images out and count them; else the first one is refused.
    shape, mean, std (of each channel, over all of `data`), stores: what the data are; `prepared` fills them in.

    ValueError for settings that do not fit, and, where the data are first read, what its sources refuse, a single class, too few images
    to hold some out, images that the patch does not divide, and data that are no longer what `stores` says.

    >>> task = Images(patch=4).prepared()
    >>> batch = task.sample(2, seed=0, index=0)
    >>> batch.inputs.shape, batch.targets.shape, task.num_held_out
    (torch.Size([2, 4, 16]), torch.Size([2]), 359)
    """

    data: tuple[str, ...] = (DIGITS,)
    test: str | None = None
    test_share: float = 0.2
    patch: int = 2
    size: int | None = None
    flip: bool = False
    crop: int = 0
    skip: bool = False
    shape: Shape | None = None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    stores: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if isinstance(self.data, str):
            raise ValueError(f"data {self.data!r}: give a tuple of data sets, ({self.data!r},)")
        if not self.data:
            raise ValueError("no images given; give files, folders, digits or a name of the hub")
        if not 0 < self.test_share <= 0.5:
            raise ValueError(f"test_share {self.test_share}: a share above 0 and at most 0.5 wanted")
        for name, least in (("patch", 1), ("size", 1), ("crop", 0)):
            if (value := getattr(self, name)) is not None and value < least:
                raise ValueError(f"{name} {value}: at least {least} wanted")

    @property
    def name(self) -> str:
        """The task as it stands in results."""
        return "images"

    @property
    def label(self) -> str:
        """The task in a run folder's name."""
        return f"images-{Path(self.data[0]).stem.replace(':', '-')}"

    @property
    def rows(self) -> str:
        """What a row of a batch is, in words."""
        return f"{self.num_patches} patches of {self.patch} x {self.patch}"

    @cached_property
    def seen(self) -> Shape:
        """The shape of the images and their classes, read from the first image where `prepared` has not filled it in."""
        if self.shape is not None:
            return self.shape
        training, _ = self._sources()
        shape = shape_of(training, self.skip)
        self._check(shape)
        return shape

    def _check(self, shape: Shape) -> None:
        if len(shape.classes) < 2:
            raise ValueError(f"{', '.join(self.data)}: all images are {shape.classes[0]}; at least 2 classes wanted")
        if shape.height % self.patch or shape.width % self.patch:
            raise ValueError(
                f"patches of {self.patch} do not divide images of {shape.width} x {shape.height}; give another patch"
            )

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes."""
        return self.seen.classes

    @property
    def vocab_size(self) -> int:
        """Number of classes, which are all that a model says."""
        return len(self.classes)

    @property
    def num_patches(self) -> int:
        """Patches of an image."""
        return self.seen.height * self.seen.width // self.patch**2

    @property
    def context(self) -> int:
        """Patches of an image, what a model reads."""
        return self.num_patches

    @property
    def patch_width(self) -> int:
        """Numbers of a patch."""
        return self.patch**2 * self.seen.channels

    @property
    def _fit(self) -> Fit:
        return None if self.size is None else (self.size, self.size, 3)

    def _sources(self) -> tuple[list[ImageSource], list[ImageSource] | None]:
        """The data sets to train on and those to test on; None: a share of the first."""
        data, test = self.data, None if self.test is None else (self.test,)
        folder = Path(data[0])
        if test is None and len(data) == 1 and folder.is_dir() and (split := own_split(folder)):
            data, test = split
        if test is None and len(data) == 1 and f"{data[0]}/test" in SHORT_NAMES and not folder.exists():
            test = (f"{data[0]}/test",)
        training = open_images(data, self._fit)
        if test is None and len(training) > 1 and all(isinstance(source, NpzSource) for source in training):
            return training[:-1], training[-1:]
        if test is None:
            return training, None
        testing = open_images(test, self._fit)
        check_classes([*training, *testing])
        return training, testing

    def prepared(self, on_progress: Progress | None = None) -> "Images":
        """Return the task with its images prepared, and what they are filled in.

        on_progress: called with what is done, bytes done, and all bytes (None where not known).
        """
        if self.stores and all((store_folder(key) / "store.json").exists() for key in self.stores):
            return self
        training, testing = self._sources()
        shape = shape_of(training, self.skip)
        self._check(shape)
        sets = [training] if testing is None else [training, testing]
        if testing is not None and (both := {one.digest for one in training} & {one.digest for one in testing}):
            name = next(one.name for one in testing if one.digest in both)
            raise ValueError(
                f"{name}: images to test on that are trained on too say nothing; give others, or leave it out"
            )
        for sources, wanted in zip(sets, self.stores, strict=False):
            if store_key(sources, self._fit, shape, self.skip) != wanted:
                names = ", ".join(source.name for source in sources)
                raise ValueError(f"{names}: no longer the images of this run; put back what it was")
        keys = tuple(prepare(sources, self._fit, shape, self.skip, on_progress) for sources in sets)
        store = ImageStore(store_folder(keys[0]))
        filled = dataclasses.replace(
            self, shape=shape, mean=self.mean or store.mean, std=self.std or store.std, stores=keys
        )
        filled._check_statistics()
        # What is too little is refused now, not at the first batch.
        filled._splits  # noqa: B018
        return filled

    @cached_property
    def _whole(self) -> "Images":
        return self.prepared()

    def _check_statistics(self) -> None:
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) != self.seen.channels or (name == "std" and not all(value > 0 for value in values)):
                raise ValueError(
                    f"{name} {values}: a number for each of {self.seen.channels} channels wanted, std above 0"
                )

    @cached_property
    def _splits(self) -> tuple["_Split", "_Split"]:
        stores = [ImageStore(store_folder(key)) for key in self._whole.stores]
        images = stores[0].images
        if len(stores) == 2:
            return _Split(images, 0, len(images), None), _Split(stores[1].images, 0, len(stores[1].images), None)
        num_held_out = round(self.test_share * len(images))
        if not 0 < num_held_out < len(images):
            raise ValueError(
                f"{', '.join(self.data)}: {len(images)} images, too few to hold some out; give others to test on"
            )
        keys = np.random.Philox(key=[0, 0], counter=[0, 0, 0, HELD_OUT]).random_raw(ROUNDS).tolist()
        return (
            _Split(images, num_held_out, len(images) - num_held_out, keys),
            _Split(images, 0, num_held_out, keys),
        )

    @property
    def num_training(self) -> int:
        """Images to train on, N."""
        return self._splits[0].num

    @property
    def num_held_out(self) -> int:
        """Images to test on, none of which is trained on."""
        return self._splits[1].num

    def sample(self, batch: int, seed: int, index: int) -> Batch:
        """Training items index, ..., index + batch - 1 of a seed: inputs (batch, patches, p p C) float32, targets (batch,) classes.

        ValueError for a batch under 1, a negative index and a seed outside [0, 2^64).
        """
        if batch < 1 or index < 0:
            raise ValueError(f"{batch} items from {index}: at least 1 item wanted, numbered from 0")
        if not 0 <= seed < 2**64:
            raise ValueError(f"seed {seed}: an integer in [0, 2^64) wanted")
        images = [self._item(seed, item) for item in range(index, index + batch)]
        return self._batch(np.stack([pixels for pixels, _ in images]), [label for _, label in images])

    def _item(self, seed: int, item: int) -> tuple[np.ndarray, int]:
        """An image (H, W, C) float32, normalised, flipped and shifted, and its class."""
        epoch, place = divmod(item, self.num_training)
        keys = np.random.Philox(key=[seed, epoch], counter=[0, 0, 0, ORDER]).random_raw(ROUNDS).tolist()
        image, label = self._splits[0][permuted(place, self.num_training, keys)]
        pixels = self.normalise(image)
        if not (self.flip or self.crop):
            return pixels, label
        words = np.random.Philox(key=[seed, item], counter=[0, 0, 0, CHANCE]).random_raw(3)
        turned, down, right = (
            (words >> np.uint64(32)) * np.array([2, *[2 * self.crop + 1] * 2], np.uint64)
        ) >> np.uint64(32)
        if self.flip and turned:
            pixels = pixels[:, ::-1]
        if self.crop:
            height, width, _ = pixels.shape
            # 0 is the mean colour.
            bordered = np.pad(pixels, ((self.crop, self.crop), (self.crop, self.crop), (0, 0)))
            pixels = bordered[int(down) : int(down) + height, int(right) : int(right) + width]
        return pixels, label

    def held_out(self, first: int, num: int) -> Batch:
        """Images first, ..., first + num - 1 held out, as they are; fewer at the end."""
        images = [self._splits[1][place] for place in range(first, min(first + num, self.num_held_out))]
        return self._batch(np.stack([self.normalise(pixels) for pixels, _ in images]), [label for _, label in images])

    def held_out_image(self, place: int) -> tuple[np.ndarray, int]:
        """One image held out, (height, width, channels) uint8, and its class."""
        return self._splits[1][place]

    def _batch(self, images: np.ndarray, labels: Sequence[int]) -> Batch:
        inputs = patches(torch.from_numpy(images), self.patch)
        return Batch(inputs, torch.tensor(labels), torch.zeros(inputs.shape[:2], dtype=torch.int64))

    def normalise(self, pixels: np.ndarray) -> np.ndarray:
        """(..., channels) uint8 as float32, mean 0 and deviation 1 a channel over the data."""
        mean, std = (
            np.array(getattr(self, name) or getattr(self._whole, name), np.float32) for name in ("mean", "std")
        )
        return (pixels.astype(np.float32) / np.float32(255) - mean) / std

    def read(self, path: Path) -> np.ndarray:
        """An image file, brought to the shape of the data: (height, width, channels) uint8; ValueError naming a file that is no image."""
        return decode(path, str(path), self.seen.pixels)

    def encode(self, pixels: np.ndarray) -> Tensor:
        """Images (B, height, width, channels) uint8 as a model reads them, (B, patches, p p C) float32."""
        return patches(torch.from_numpy(self.normalise(pixels)), self.patch)

    def accuracy(self, predictions: Tensor, targets: Tensor) -> Tensor:
        """(B,) float64: 1 where the class is right."""
        return (predictions == targets).double()


class _Split:
    """Some of a store's images, `num` of them from `first` on, in its order or in that of a keyed permutation."""

    def __init__(self, images: np.ndarray, first: int, num: int, keys: list[int] | None) -> None:
        self._images, self._first, self.num, self._keys = images, first, num, keys

    def __getitem__(self, place: int) -> tuple[np.ndarray, int]:
        place += self._first
        item = self._images[place if self._keys is None else permuted(place, len(self._images), self._keys)]
        return np.array(item["pixels"]), int(item["label"])


def patches(images: Tensor, patch: int) -> Tensor:
    """Cut images (B, H, W, C) into patches, row by row: (B, H/p W/p, p p C); ValueError where p does not divide them.

    >>> patches(torch.arange(16).view(1, 4, 4, 1), 2)[0]
    tensor([[ 0,  1,  4,  5],
            [ 2,  3,  6,  7],
            [ 8,  9, 12, 13],
            [10, 11, 14, 15]])
    """
    rows, height, width, channels = images.shape
    if height % patch or width % patch:
        raise ValueError(f"patches of {patch} do not divide images of {width} x {height}; give another patch")
    cut = images.reshape(rows, height // patch, patch, width // patch, patch, channels)
    return cut.transpose(2, 3).reshape(rows, -1, patch * patch * channels)
