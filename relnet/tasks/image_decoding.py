"""Encoded images as arrays: decoded, checked, brought to one size."""

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
# More than that is refused before it is decoded.
MAX_PIXELS = 2**26
# Height, width and channels that each image is brought to; None: as it is.
Fit = tuple[int, int, int] | None


class ImageError(ValueError):
    """What is wrong with one image: file, place and remedy."""


def decode(content: bytes | Path, name: str, fit: Fit = None) -> np.ndarray:
    """Return an encoded image, or an image file, as (height, width, 1 or 3) uint8.

    fit: what it is brought to: scaled until it covers height and width, the middle taken, what is transparent on white; None: as it is.
    ImageError for what is no image, is damaged or cut short, has more than 2^26 pixels, or, without fit, is neither grey nor RGB.
    """
    image_module = _pillow()
    try:
        with warnings.catch_warnings():
            # Pillow only warns where the data behind a header are doubtful.
            warnings.simplefilter("error")
            warnings.simplefilter("ignore", image_module.DecompressionBombWarning)
            with image_module.open(content if isinstance(content, Path) else io.BytesIO(content)) as image:
                if image.width * image.height > MAX_PIXELS:
                    raise ImageError(f"{name}: {image.width} x {image.height} pixels are too many; scale it down")
                image.load()
                if fit is None and image.mode not in ("L", "RGB"):
                    raise ImageError(
                        f"{name} is {image.mode}, neither grey nor RGB; convert it, or bring all to one size"
                    )
                pixels = np.asarray(image if fit is None else _fitted(image, fit, image_module))
    except ImageError:
        raise
    except FileNotFoundError:
        raise ImageError(f"{name} does not exist") from None
    except image_module.DecompressionBombError as error:
        raise ImageError(f"{name}: too many pixels ({error}); scale it down") from None
    # Pillow's decoders raise whatever they meet: SyntaxError, struct.error, IndexError, ...
    except Exception as error:
        raise ImageError(f"{name} is no image, or a damaged one ({type(error).__name__}: {error})") from None
    return pixels[..., None] if pixels.ndim == 2 else pixels


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
    """Return pixels (height, width, 1 or 3) uint8 brought to `fit`."""
    if fit is None or pixels.shape == fit:
        return pixels
    image_module = _pillow()
    fitted = np.asarray(
        _fitted(image_module.fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels), fit, image_module)
    )
    return fitted[..., None] if fitted.ndim == 2 else fitted


def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        raise ValueError("images need the extra images: pip install 'relnet[images]'") from None
    return Image


def image_files(folder: Path) -> list[Path]:
    """Return the image files of a folder, at any depth, by name."""
    return sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
