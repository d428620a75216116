"""Encoded images as arrays: decoded, checked, brought to one size."""

import io
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np

# Pillow's names of what it is let to open, and their files' endings: others it hands to programs outside, EPS to Ghostscript.
FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
# More than that is refused before it is decoded.
MAX_PIXELS = 2**26
# Height, width and channels that each image is brought to; None: as it is.
Fit = tuple[int, int, int] | None


class ImageError(ValueError):
    """What is wrong with one image: file, place and remedy."""


def decode(content: bytes | Path, name: str, fit: Fit = None) -> np.ndarray:
    """Return an encoded image, or an image file, as (height, width, 1 or 3) uint8, turned as its EXIF data say.

    fit: what it is brought to: scaled until it covers height and width, the middle taken, what is transparent on white; None: as it is.
    ImageError for what is no image, is damaged or cut short, has more than 2^26 pixels or than 8 bits a channel, or, without fit, is
    neither grey nor RGB.
    """
    image_module = _pillow()
    try:
        with warnings.catch_warnings():
            # Pillow only warns where the data behind a header are doubtful.
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", image_module.DecompressionBombWarning)
            with image_module.open(
                content if isinstance(content, Path) else io.BytesIO(content), formats=FORMATS
            ) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise ImageError(f"{name}: {image.width} x {image.height} pixels are too many; scale it down")
                return pixels_of(image, name, fit)
    except ImageError:
        raise
    except FileNotFoundError:
        raise ImageError(f"{name} does not exist") from None
    except image_module.DecompressionBombError as error:
        raise ImageError(f"{name}: too many pixels ({error}); scale it down") from None
    # Pillow's decoders raise whatever they meet: SyntaxError, struct.error, IndexError, ...
    except Exception as error:
        raise ImageError(f"{name} is no image, or a damaged one ({type(error).__name__}: {error})") from None


def pixels_of(image: Any, name: str, fit: Fit = None) -> np.ndarray:
    """Return an image of Pillow's as (height, width, 1 or 3) uint8, as `decode`."""
    image.load()
    # Pillow clips them to 255 where it converts them, and what range they have it does not know.
    if image.mode.startswith(("I", "F")):
        raise ImageError(f"{name} is {image.mode}, more than 8 bits a channel; convert it to 8")
    if fit is None and image.mode not in ("L", "RGB"):
        raise ImageError(f"{name} is {image.mode}, neither grey nor RGB; convert it, or bring all to one size")
    image = _turned(image)
    pixels = np.asarray(image if fit is None else _fitted(image, fit, _pillow()))
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _turned(image: Any) -> Any:
    """The image as its EXIF data say, which turn nothing where they are damaged."""
    from PIL import ImageOps

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ImageOps.exif_transpose(image)
        # Pillow raises whatever it meets in them.
        except Exception:
            return image


def _fitted(image: Any, fit: tuple[int, int, int], image_module: Any) -> Any:
    height, width, channels = fit
    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        white = image_module.new("RGBA", image.size, (255, 255, 255, 255))
        image = image_module.alpha_composite(white, image)
    image = image.convert("L" if channels == 1 else "RGB")
    scale = min(image.width / width, image.height / height)
    left, top = (image.width - scale * width) / 2, (image.height - scale * height) / 2
    box = left, top, left + scale * width, top + scale * height
    return image.resize((width, height), image_module.Resampling.BICUBIC, box=box)


def refitted(pixels: np.ndarray, fit: Fit) -> np.ndarray:
    """Return pixels (height, width, channels as Pillow has them) uint8 brought to `fit`."""
    if fit is None or pixels.shape == fit:
        return pixels
    return pixels_of(_pillow().fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels), "the image", fit)


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise ValueError("images need the extra images: pip install 'relnet[images]'") from None
    return Image


def readable_name(name: Path | str) -> str:
    """Return a file's name to print; bytes of it that are not UTF-8 as \\xff."""
    return os.fsencode(name).decode(errors="backslashreplace")


def image_files(folder: Path) -> list[Path]:
    """Return the image files of a folder, at any depth, by name; OSError for a folder that cannot be read."""

    def refuse(error: OSError) -> None:
        raise error

    found = (Path(place) / name for place, _, names in os.walk(folder, onerror=refuse) for name in names)
    return sorted(path for path in found if path.suffix.lower() in ENDINGS and path.is_file())
