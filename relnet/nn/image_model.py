"""ImageModel: patches and a <CLS> behind them, residual blocks of any bidirectional mixers, a head at <CLS>.

    x = [ W patch + b + position ; cls ]        x <- x + mixer(norm(x))        x <- x + mlp(norm(x)) (Transformers)
    logits = head(norm(x_cls))

Plain norms (no affine part, eps 0), head without bias. <CLS> is a learned row and needs no position beside it. The weights of the patch
embedding are drawn with variance 1 / patch width, so that a patch of unit variance enters as large as the position beside it.
Source: CausalRN, appendix C.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from relnet import ops
from relnet.nn.attention import AttentionConfig, explicit_attention
from relnet.nn.linear_attention import LinearAttentionConfig
from relnet.nn.mixer import MixerConfig, check_size, initialise
from relnet.nn.model import MLP
from relnet.nn.relation import BiRNConfig, LinearBiRNConfig
from relnet.ops.checks import check_choice, check_floating, check_mask

# The registry of bidirectional mixers; those of attention with causal=False.
BidirectionalMixerConfig = BiRNConfig | LinearBiRNConfig | AttentionConfig | LinearAttentionConfig


@dataclass(frozen=True)
class ImageModelConfig:
    """An ImageModel's shape.

    num_classes: of the head; num_patches, patch_width: of an image, and numbers a patch; width: of the residual stream; depth: number of
    blocks; mixer: one bidirectional configuration, or one a block; mlp: hidden width of an MLP after every mixer (None: no MLP);
    positions: "learned" = an embedding a patch, "none"; checkpointing: recompute blocks in the backward pass.
    ValueError for numbers that do not fit together and for causal mixers.
    """

    num_classes: int
    num_patches: int
    patch_width: int
    width: int
    depth: int
    mixer: BidirectionalMixerConfig | tuple[BidirectionalMixerConfig, ...]
    mlp: int | None = None
    positions: str = "learned"
    checkpointing: bool = False

    @property
    def mixers(self) -> tuple[MixerConfig, ...]:
        """One mixer configuration a block."""
        return self.mixer if isinstance(self.mixer, tuple) else (self.mixer,) * self.depth

    def __post_init__(self) -> None:
        for name in ("num_classes", "num_patches", "patch_width", "width", "depth", "mlp"):
            value = getattr(self, name)
            if value is not None or name != "mlp":
                check_size(name, value)
        check_choice("positions", self.positions, ("learned", "none"))
        if len(self.mixers) != self.depth:
            raise ValueError(
                f"{len(self.mixers)} mixers for depth={self.depth}; give one for all blocks, or one a block"
            )
        for mixer in self.mixers:
            if not isinstance(mixer, MixerConfig):
                raise ValueError(f"mixer is {mixer!r:.60}; give a configuration such as nn.BiRNConfig()")
            if getattr(mixer, "causal", mixer.mixer.causal):
                raise ValueError(
                    f"{type(mixer).__name__} is causal; an ImageModel needs bidirectional mixers (causal=False)"
                )


class BidirectionalBlock(nn.Module):
    """x + mixer(norm(x)), then, with an MLP, x + mlp(norm(x))."""

    def __init__(self, mixer: MixerConfig, width: int, mlp: int | None) -> None:
        super().__init__()
        self.mixer = mixer.build(width)
        self.mlp = None if mlp is None else MLP(width, mlp)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        x = x + self.mixer(ops.plain_norm(x), mask)
        return x if self.mlp is None else x + self.mlp(ops.plain_norm(x))


class ImageModel(nn.Module):
    """A classifier of images, given as patches.

    logits (B, num_classes) = model(patches (B, N, patch_width), mask=None). mask (B, N) bool, True = real patch; at a pad any number may
    stand, NaN too, and no bit of a logit or gradient depends on it. N is the configuration's num_patches, with positions="none" any.
    Weights are drawn from torch's global generator. ValueError for what does not fit.

    >>> model = ImageModel(ImageModelConfig(10, num_patches=16, patch_width=12, width=8, depth=2, mixer=LinearBiRNConfig()))
    >>> model(torch.randn(3, 16, 12)).shape
    torch.Size([3, 10])
    """

    def __init__(self, config: ImageModelConfig) -> None:
        super().__init__()
        self.config = config
        self.patch = nn.Linear(config.patch_width, config.width)
        self.position = nn.Embedding(config.num_patches, config.width) if config.positions == "learned" else None
        self.cls = nn.Embedding(1, config.width)
        self.blocks = nn.ModuleList(BidirectionalBlock(mixer, config.width, config.mlp) for mixer in config.mixers)
        self.head = nn.Linear(config.width, config.num_classes, bias=False)
        self.checkpoint: Callable[..., Any] | None = (
            partial(checkpoint, use_reentrant=False) if config.checkpointing else None
        )
        initialise(self, num_additions=config.depth * (1 if config.mlp is None else 2))
        nn.init.normal_(self.patch.weight, std=1 / math.sqrt(config.patch_width))

    @property
    def num_parameters(self) -> int:
        """Number of weights without the positions' and <CLS>'s, which are looked up, not multiplied."""
        embeddings = {id(p) for m in self.modules() if isinstance(m, nn.Embedding) for p in m.parameters()}
        return sum(p.numel() for p in self.parameters() if id(p) not in embeddings)

    def forward(self, patches: Tensor, mask: Tensor | None = None) -> Tensor:
        x, mask = self.embed(patches, mask)
        recompute = self.checkpoint if self.training and torch.is_grad_enabled() else None
        for block in self.blocks:
            x = recompute(block, x, mask) if recompute else block(x, mask)
        return self.head(ops.plain_norm(x[:, -1]))

    def embedded(self, patches: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return where derivatives by the input are taken, the patches themselves, and the function from there to the logits.

        It has derivatives of every order: attention writes its softmax out there (`nn.explicit_attention`).
        """

        def function(patches: Tensor) -> Tensor:
            with explicit_attention():
                return self(patches)

        return patches, function

    def embed(self, patches: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return what enters the first block, (B, N + 1, width), and the mask with <CLS> in it."""
        check_floating("patches", patches, 3, "(batch, patches, numbers a patch)")
        rows, num, width = patches.shape
        if width != self.config.patch_width:
            raise ValueError(f"patches have {width} numbers; this model was built for {self.config.patch_width}")
        if self.position is not None and num != self.config.num_patches:
            raise ValueError(
                f"{num} patches, and the model takes {self.config.num_patches}; bring images to its size, or build with positions='none'"
            )
        check_mask("mask", mask, rows, num, patches.device)
        if mask is not None:
            patches = patches.masked_fill(~mask[..., None], 0.0)
            mask = torch.cat([mask, mask.new_ones(rows, 1)], 1)
        x = self.patch(patches)
        if self.position is not None:
            x = x + self.position.weight
        return torch.cat([x, self.cls.weight.to(x.dtype).expand(rows, 1, -1)], 1), mask
