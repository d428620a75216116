"""Relation maps as PNG panels: over an image, and of a text's tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from relnet.report.figures import COLOURS, literal, png
from relnet.report.files import write_new

# Most classes shown, and tokens up to which each is written at its row and column.
CLASSES = 5
NAMED_TOKENS = 80


@dataclass(frozen=True)
class ImageMaps:
    """An image and what a model makes of it.

    title: above it. pixels: (height, width, 1 or 3) uint8. maps: each with its name, (rows, columns) of patches, 0 or more.
    probabilities: of each class by name.
    """

    title: str
    pixels: np.ndarray
    maps: Sequence[tuple[str, np.ndarray]]
    probabilities: Sequence[tuple[str, float]]


def image_panel(path: Path, images: Sequence[ImageMaps], title: str) -> Path:
    """Draw a row an image: the image, each map over it, and the likeliest classes; return the file that was written.

    A map's colour is a share of its largest value, which stands below it. path: as for `learning_curves`. All have as many maps.
    """
    from matplotlib.figure import Figure

    columns = len(images[0].maps) + 2
    figure = Figure(figsize=(1.9 * columns, 2.3 * len(images) + 0.4), layout="constrained", facecolor="white")
    rows = figure.subplots(len(images), columns, squeeze=False, width_ratios=[1] * (columns - 1) + [1.3])
    for axes, shown in zip(rows, images, strict=True):
        _draw_image(axes, shown)
    figure.suptitle(literal(title), fontsize=11)
    return write_new(path, png(figure))


def _draw_image(axes: Any, shown: ImageMaps) -> None:
    height, width, channels = shown.pixels.shape
    grey = {"cmap": "gray", "vmin": 0, "vmax": 255, "interpolation": "nearest", "extent": (0, width, height, 0)}
    axes[0].imshow(shown.pixels[..., 0] if channels == 1 else shown.pixels, **grey)
    axes[0].set_title(literal(shown.title), fontsize=9)
    for axis, (name, values) in zip(axes[1:-1], shown.maps, strict=True):
        largest = float(values.max())
        axis.imshow(shown.pixels.mean(-1), **grey)
        axis.imshow(values, **{**grey, "cmap": "magma", "alpha": 0.65, "vmax": largest or 1})
        axis.set_title(literal(name), fontsize=9)
        axis.set_xlabel(f"max {largest:.3g}", fontsize=8)
    for axis in axes[:-1]:
        axis.set_xticks([])
        axis.set_yticks([])
    likeliest = sorted(shown.probabilities, key=lambda one: -one[1])[:CLASSES]
    axes[-1].barh(range(len(likeliest)), [100 * share for _, share in likeliest], color=COLOURS[0])
    axes[-1].set_yticks(range(len(likeliest)), [literal(name[:14]) for name, _ in likeliest], fontsize=8)
    axes[-1].invert_yaxis()
    axes[-1].set_xlim(0, 100)
    axes[-1].set_xlabel("probability (%)", fontsize=8)
    axes[-1].spines[["top", "right"]].set_visible(False)


def text_panel(path: Path, tokens: Sequence[str], maps: Sequence[tuple[str, np.ndarray]], title: str) -> Path:
    """Draw maps of a text, a row for each target and a column for each source; return the file that was written.

    maps: each with its name, (tokens, tokens), 0 or more. path: as for `learning_curves`.
    """
    from matplotlib.figure import Figure

    columns = min(4, len(maps))
    rows = -(-len(maps) // columns)
    side = max(2.8, min(6.0, 0.13 * len(tokens)))
    figure = Figure(figsize=(side * columns, side * rows + 0.5), layout="constrained", facecolor="white")
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    names = [literal(token) for token in tokens] if len(tokens) <= NAMED_TOKENS else []
    for axis, (name, values) in zip(axes, maps, strict=False):
        # Each row by its own largest: the sums over a row are what compares.
        largest = values.max(-1, keepdims=True)
        axis.imshow(values / np.where(largest > 0, largest, 1), cmap="magma", vmin=0, vmax=1, interpolation="nearest")
        axis.set_title(literal(name), fontsize=10)
        axis.set_xticks(range(len(names)), names, fontsize=5)
        axis.set_yticks(range(len(names)), names, fontsize=5)
        axis.set_xlabel("source", fontsize=9)
        axis.set_ylabel("target", fontsize=9)
    for axis in axes[len(maps) :]:
        axis.set_visible(False)
    figure.suptitle(literal(title), fontsize=11)
    return write_new(path, png(figure))
