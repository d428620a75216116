"""RelnetForImageClassification: nn.ImageModel as a transformers model, with its configuration and its image processor."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor
from torch.nn import Module
from transformers import BaseImageProcessor, BatchFeature, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import ImageClassifierOutput

from relnet import nn, tasks
from relnet.hf.loading import StrictlyLoaded
from relnet.tasks.image_decoding import pixels_of, refitted


@strict
class RelnetImageConfig(PreTrainedConfig):
    """An ImageModel's shape, as in `nn.ImageModelConfig`, and the images it takes.

    image_height, image_width, num_channels, patch_size: of the images and their patches; id2label: the classes by number; mixer: a
    mixer's configuration as JSON, or a list of them, one a block. Raises ValueError for what does not fit together.

    >>> config = RelnetImageConfig(image_height=8, image_width=8, patch_size=4, width=8, depth=1, id2label={0: "cat", 1: "dog"})
    >>> config.model_config().num_patches, config.num_labels
    (4, 2)
    """

    model_type: ClassVar[str] = "relnet-image"
    attribute_map: ClassVar[dict[str, str]] = {"hidden_size": "width", "num_hidden_layers": "depth"}

    image_height: int = 32
    image_width: int = 32
    num_channels: int = 3
    patch_size: int = 2
    width: int = 192
    depth: int = 12
    mixer: Any = None
    mlp: int | None = None
    positions: str = "learned"

    def __post_init__(self, **kwargs: Any) -> None:
        """Raise ValueError for numbers that do not fit together."""
        if self.mixer is None:
            self.mixer = {"_type": "LinearBiRNConfig"}
        super().__post_init__(**kwargs)
        self.model_config()

    def model_config(self) -> nn.ImageModelConfig:
        """Return the model's shape as `nn.ImageModel` takes it."""
        patch = self.patch_size
        if patch < 1 or self.image_height % patch or self.image_width % patch:
            raise ValueError(f"patches of {patch} do not divide images of {self.image_width} x {self.image_height}")
        return nn.ImageModelConfig(
            self.num_labels or 0,
            self.image_height * self.image_width // patch**2,
            patch**2 * self.num_channels,
            self.width,
            self.depth,
            nn.bidirectional_from_json(self.mixer),
            self.mlp,
            positions=self.positions,
        )

    @classmethod
    def from_task(cls, task: tasks.Images, config: nn.ImageModelConfig) -> "RelnetImageConfig":
        """Return the configuration of an ImageModel that was trained on a task."""
        shape = task.seen
        return cls(
            image_height=shape.height,
            image_width=shape.width,
            num_channels=shape.channels,
            patch_size=task.patch,
            mixer=nn.mixer_to_json(config),
            id2label=dict(enumerate(shape.classes)),
            label2id={name: number for number, name in enumerate(shape.classes)},
            **{name: getattr(config, name) for name in ("width", "depth", "mlp", "positions")},
        )


class RelnetForImageClassification(StrictlyLoaded, PreTrainedModel):
    """A classifier of images of any bidirectional relnet mixer.

    model(pixel_values (B, channels, height, width), labels=None) -> ImageClassifierOutput; pixel_values normalised, as
    `RelnetImageProcessor` gives them; labels (B,) int64. Raises ValueError for images of another size, hidden states and attentions.

    >>> config = RelnetImageConfig(image_height=8, image_width=8, patch_size=4, width=8, depth=1, num_labels=3)
    >>> RelnetForImageClassification(config)(torch.randn(2, 3, 8, 8)).logits.shape
    torch.Size([2, 3])
    """

    # A RelnetImageConfig; transformers lets no subclass say so.
    config: Any
    config_class = RelnetImageConfig
    base_model_prefix = "model"
    main_input_name = "pixel_values"
    _no_split_modules = ["BidirectionalBlock"]  # noqa: RUF012 (read by transformers on the class)

    def __init__(self, config: RelnetImageConfig) -> None:
        super().__init__(config)
        self.model = nn.ImageModel(config.model_config())
        self.post_init()

    def _init_weights(self, module: Module) -> None:
        # ImageModel has drawn its weights, and what a folder lacks is refused.
        pass

    def forward(
        self, pixel_values: Tensor, labels: Tensor | None = None, return_dict: bool | None = None, **unsupported: Any
    ) -> ImageClassifierOutput | tuple:
        """Return logits (B, num_labels), and the loss where labels are given; see the class."""
        if names := [name for name, value in unsupported.items() if value is not None and value is not False]:
            raise ValueError(f"{', '.join(names)}: not supported by relnet models; leave it out")
        config = self.config
        wanted = config.num_channels, config.image_height, config.image_width
        if pixel_values.dim() != 4 or tuple(pixel_values.shape[1:]) != wanted:
            raise ValueError(
                f"pixel_values have shape {tuple(pixel_values.shape)}; give (batch, {', '.join(map(str, wanted))})"
            )
        logits = self.model(tasks.patches(pixel_values.permute(0, 2, 3, 1), config.patch_size))
        loss = None if labels is None else torch.nn.functional.cross_entropy(logits.float(), labels)
        output = ImageClassifierOutput(loss=loss, logits=logits)
        return output if return_dict is not False else output.to_tuple()


class RelnetImageProcessor(BaseImageProcessor):
    """Images (PIL images, uint8 arrays of height x width x channels) as pixel_values: brought to one size, normalised by channel.

    height, width: of the images; image_mean, image_std: of each channel, pixels in [0, 1]; a single one makes grey images. What is
    transparent lies on white, EXIF turns an image, as in `relnet predict`. ValueError for other arrays, and more than 8 bits a channel.
    """

    model_input_names = ["pixel_values"]  # noqa: RUF012 (read by transformers on the class)

    def __init__(
        self,
        height: int = 32,
        width: int = 32,
        image_mean: Sequence[float] = (0.5, 0.5, 0.5),
        image_std: Sequence[float] = (0.5, 0.5, 0.5),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.height, self.width = height, width
        self.image_mean, self.image_std = list(image_mean), list(image_std)

    def __call__(self, images: Any, return_tensors: str | None = None, **_: Any) -> BatchFeature:
        """Return pixel_values (B, channels, height, width) of one image or a list of them."""
        return self.preprocess(images, return_tensors)

    def preprocess(self, images: Any, return_tensors: str | None = None, **_: Any) -> BatchFeature:
        """Likewise."""
        fit = self.height, self.width, len(self.image_mean)
        mean, std = (np.array(values, np.float32) for values in (self.image_mean, self.image_std))
        made = []
        for number, image in enumerate(images if isinstance(images, (list, tuple)) else [images]):
            # An image of Pillow's.
            if hasattr(image, "convert"):
                pixels = pixels_of(image, f"image {number}", fit)
            else:
                pixels = refitted(_checked(np.asarray(image), number), fit)
            values = (pixels.astype(np.float32) / np.float32(255) - mean) / std
            made.append(values.transpose(2, 0, 1))
        return BatchFeature({"pixel_values": made}, tensor_type=return_tensors)


def _checked(pixels: np.ndarray, number: int) -> np.ndarray:
    """An array as (height, width, channels) uint8."""
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4):
        raise ValueError(
            f"image {number} is {pixels.shape} {pixels.dtype}; give (height, width, 1, 3 or 4) uint8, or an image of Pillow's"
        )
    return pixels
