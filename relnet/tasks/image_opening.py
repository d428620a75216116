"""Data sets of images by name: files, folders, digits, the hub."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from relnet.tasks.image_archives import NpzSource
from relnet.tasks.image_decoding import Fit
from relnet.tasks.image_sources import DIGITS, HUB, DigitsSource, FolderSource, HubImages, ImageSource, ParquetSource

KINDS: dict[str, Callable[[Path, Fit], ImageSource]] = {".parquet": ParquetSource, ".npz": NpzSource}
HELD_OUT = ("test", "val", "validation")
SHORT_NAMES = {
    "cifar10": "hub:uoft-cs/cifar10:plain_text:train",
    "cifar10/test": "hub:uoft-cs/cifar10:plain_text:test",
}


def open_images(names: Sequence[str], fit: Fit = None) -> list[ImageSource]:
    """Open data sets in the order given.

    "digits", "cifar10" (of the hub), parquet and npz files, folders of such files or of a folder a class, "hub:...".

    A file or folder comes before a name. ValueError for what is none of these, an empty folder, and classes that differ.
    """
    sources: list[ImageSource] = []
    for name in names:
        path = Path(name)
        name = name if path.exists() else SHORT_NAMES.get(name, name)
        if not path.exists() and name == DIGITS:
            sources.append(DigitsSource(fit))
        elif not path.exists() and name.startswith(HUB):
            sources.append(HubImages(name, fit))
        elif path.is_dir():
            sources += _in_folder(path, fit)
        else:
            sources.append(_of_file(path, fit))
    if not sources:
        raise ValueError("no images given; give files, folders, digits or a name of the hub")
    check_classes(sources)
    return sources


def own_split(folder: Path) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Return what a folder has to train on and to test on: train/ and test/, or files of which the word is part of the name.

    Where there is no test, val or validation; None where it does not name both.
    """
    parts: dict[str, tuple[str, ...]] = {}
    for path in sorted(folder.iterdir()):
        if path.is_dir() or path.suffix in KINDS:
            words = [path.name] if path.is_dir() else re.split("[^a-z]+", path.stem)
            for part in {*words} & {"train", *HELD_OUT}:
                parts[part] = *parts.get(part, ()), str(path)
    test = next((parts[name] for name in HELD_OUT if name in parts), None)
    return (parts["train"], test) if "train" in parts and test else None


def check_classes(sources: Sequence[ImageSource]) -> None:
    """Raise ValueError for data sets whose classes differ; where they are numbered some may have fewer."""
    longest = max((source.classes for source in sources), key=len)
    for source in sources:
        if source.classes != longest[: len(source.classes)]:
            raise ValueError(
                f"{source.name} has other classes than {sources[0].name}: {', '.join(source.classes[:5])} ..."
            )


def _of_file(path: Path, fit: Fit) -> ImageSource:
    if not path.is_file() or path.suffix not in KINDS:
        raise ValueError(
            f"{path} is no images; give a *.parquet or *.npz file, a folder, digits, or hub:OWNER/NAME:CONFIG:SPLIT"
        )
    return KINDS[path.suffix](path, fit)


def _in_folder(path: Path, fit: Fit) -> list[ImageSource]:
    if not any(path.iterdir()):
        raise ValueError(f"{path} is empty; give a folder of images")
    files = sorted(file for file in path.iterdir() if file.suffix in KINDS)
    if not files:
        return [FolderSource(path, fit)]
    return [_of_file(file, fit) for file in files]
