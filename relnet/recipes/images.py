"""Classifying images with bidirectional models. Paper: Cui 2024, appendix C (CIFAR-5m) and figure 7."""

from collections.abc import Sequence
from typing import Literal, get_args

from relnet import nn, tasks
from relnet.run import RunConfig
from relnet.train import TrainConfig

ImageModelName = Literal["birn", "linear-birn", "transformer", "linear-transformer"]
IMAGE_MODELS: tuple[ImageModelName, ...] = get_args(ImageModelName)
# What the paper says, and what its published configuration does: peak, end and shape of the learning rate.
PAPER_RATES: dict[str, tuple[float, float, Literal["constant", "cosine"]]] = {
    "constant": (5e-4, 0.0, "constant"),
    "cosine": (1e-4, 1e-5, "cosine"),
}
PAPER_MEAN, PAPER_STD = (0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)
# Five parts of CIFAR-5m's six, about a million images each, in batches of 320.
PAPER_STEPS = 5_000_000 // 320


def image_model(
    name: ImageModelName, task: tasks.Images, width: int, depth: int, heads: int = 1, hidden: int | None = None
) -> nn.ImageModelConfig:
    """Return a model for a task by name.

    birn, linear-birn: no MLP, `hidden` wide (None: 4 x width, as many weights a block as a Transformer's); transformer,
    linear-transformer: attention without causality, MLP of 4 x width. ValueError for an unknown name.
    """
    hidden = 4 * width if hidden is None else hidden
    mixers: dict[str, nn.BidirectionalMixerConfig] = {
        "birn": nn.BiRNConfig(hidden, heads),
        "linear-birn": nn.LinearBiRNConfig(hidden, heads),
        "transformer": nn.AttentionConfig(heads, causal=False),
        "linear-transformer": nn.LinearAttentionConfig(heads, causal=False),
    }
    if name not in mixers:
        raise ValueError(f"unknown mixer {name!r}; known ones are {', '.join(mixers)}")
    mlp = 4 * width if name in ("transformer", "linear-transformer") else None
    return nn.ImageModelConfig(task.vocab_size, task.num_patches, task.patch_width, width, depth, mixers[name], mlp)


def images(
    data: tuple[str, ...] = ("digits",),
    test: str | None = None,
    mixer: ImageModelName = "linear-birn",
    test_share: float = 0.2,
    size: int | None = None,
    patch: int = 2,
    flip: bool = False,
    crop: int = 1,
    skip: bool = False,
    width: int = 64,
    depth: int = 4,
    hidden: int | None = None,
    heads: int = 4,
    batch_size: int = 64,
    lr: float = 2e-3,
    final_lr: float = 2e-5,
    schedule: Literal["constant", "linear", "cosine"] = "cosine",
    warmup_steps: int = 50,
    max_steps: int = 900,
    validate_every: int | None = 200,
    accumulate: int = 1,
    precision: Literal["float32", "bfloat16"] = "float32",
    checkpoint_every: int = 100,
    seed: int = 0,
) -> RunConfig:
    """Learn to tell classes of images apart. Ends with accuracy and loss on all images held out.

    relnet train images: scikit-learn's digits, under a minute on 1 core. CIFAR-10: --data TRAIN.parquet --test TEST.parquet --patch 4
    --crop 4 --flip --width 96.

    Args:
        data: Digits, cifar10, parquet or npz files, a folder of them or of a folder of images a class, hub:OWNER/NAME:CONFIG:SPLIT.
        test: Images held out, likewise; default: the data's own test/ folder or last npz part, else a share of the data.
        mixer: Model, with the paper's blocks.
        test_share: Share of the data held out, where no others are given.
        size: Bring every image to RGB of so many pixels a side; default: all must be alike.
        patch: Side of a patch, in pixels; divides the images'.
        flip: Turn half of the training images left to right.
        crop: Shift training images by up to so many pixels.
        skip: Leave faulty images out and count them, in place of refusing the first.
        width: Of the residual stream.
        depth: Number of blocks.
        hidden: Of relation models; default: 4 x width, as in the paper.
        heads: Of each mixer; divides the width.
        batch_size: Images an update.
        lr: Learning rate after the warm-up.
        final_lr: What the linear and the cosine schedule end with.
        schedule: Of the learning rate after the warm-up.
        warmup_steps: Updates over which the learning rate rises from 0.
        max_steps: Updates to do.
        validate_every: Updates between tests on the images held out; None: after the last only.
        accumulate: Micro-batches an update: more need less memory.
        precision: Float32, or bfloat16 autocast.
        checkpoint_every: Updates between checkpoints.
        seed: Of weights, order, flips and shifts.
    """
    task = tasks.Images(data, test, test_share, patch, size, flip, crop, skip)
    train = TrainConfig(
        steps=max_steps,
        batch_size=batch_size,
        accumulate=accumulate,
        lr=lr,
        warmup_steps=warmup_steps,
        schedule=schedule,
        final_lr=final_lr,
        precision=precision,
        seed=seed,
        stop_accuracy=None,
        validate_every=validate_every,
        checkpoint_every=checkpoint_every,
    )
    return RunConfig(mixer, task, image_model(mixer, task, width, depth, heads, hidden), train)


def paper_images(
    data: tuple[str, ...],
    test: str | None = None,
    mixer: ImageModelName = "linear-birn",
    rate: Literal["constant", "cosine"] = "cosine",
    max_steps: int = PAPER_STEPS,
    seed: int = 0,
) -> RunConfig:
    """Learn CIFAR-5m with the paper's settings: patches of 2, width 768, hidden 3,072, 12 blocks, batch 320, one epoch
    (Cui 2024, figure 7).

    relnet train paper-images --data FOLDER: made for a GPU; bfloat16 autocast. FOLDER holds the published cifar5m_part0.npz to
    part5.npz, the last of which is held out. relnet has not run it whole yet and has no number of its own.

    Args:
        data: CIFAR-5m's folder, or other images of 32 x 32 pixels.
        test: Images held out; default: the last part.
        mixer: Model, with the paper's blocks; Transformers have 12 heads, the others 1.
        rate: Of learning: constant 5e-4 is what the paper says, cosine from 1e-4 to 1e-5 what its published configuration does.
        max_steps: Updates to do.
        seed: Of weights and order.
    """
    lr, final_lr, schedule = PAPER_RATES[rate]
    task = tasks.Images(data, test, mean=PAPER_MEAN, std=PAPER_STD)
    heads = 12 if mixer in ("transformer", "linear-transformer") else 1
    train = TrainConfig(
        steps=max_steps,
        batch_size=320,
        lr=lr,
        final_lr=final_lr,
        schedule=schedule,
        warmup_steps=2000,
        precision="bfloat16",
        stop_accuracy=None,
        validate_every=2000,
        checkpoint_every=500,
        seed=seed,
    )
    return RunConfig(mixer, task, image_model(mixer, task, 768, 12, heads), train)


def compare_images(
    data: tuple[str, ...] = ("digits",),
    test: str | None = None,
    mixers: Sequence[ImageModelName] = IMAGE_MODELS,
    size: int | None = None,
    patch: int = 2,
    flip: bool = False,
    crop: int = 1,
    skip: bool = False,
    width: int = 64,
    depth: int = 4,
    hidden: int | None = None,
    heads: int = 4,
    batch_size: int = 64,
    lr: float = 2e-3,
    max_steps: int = 900,
    validate_every: int | None = 100,
    seed: int = 0,
) -> tuple[RunConfig, ...]:
    """Several models learn the same images, one after the other, in the same order, flipped and shifted alike.

    relnet compare images: scikit-learn's digits, four models of equal width, depth and weights, under 5 minutes on 2 cores.

    Args:
        data: Digits, cifar10, parquet or npz files, a folder of them or of a folder of images a class, hub:OWNER/NAME:CONFIG:SPLIT.
        test: Images held out, likewise; default: the data's own test/ folder or last npz part, else a fifth of the data.
        mixers: Models to compare, with the paper's blocks.
        size: Bring every image to RGB of so many pixels a side; default: all must be alike.
        patch: Side of a patch, in pixels; divides the images'.
        flip: Turn half of the training images left to right.
        crop: Shift training images by up to so many pixels.
        skip: Leave faulty images out and count them, in place of refusing the first.
        width: Of the residual stream.
        depth: Number of blocks.
        hidden: Of relation models; default: 4 x width, with which a block has as many weights as a Transformer's.
        heads: Of each mixer; divides the width.
        batch_size: Images an update.
        lr: Learning rate after 50 steps of warm-up; it falls to a hundredth along a cosine.
        max_steps: Updates to do.
        validate_every: Updates between tests on the images held out; None: after the last only.
        seed: Of weights, order, flips and shifts.
    """
    if not mixers:
        raise ValueError(f"no mixers to compare; choose from {', '.join(IMAGE_MODELS)}")
    return tuple(
        images(
            data,
            test,
            mixer,
            size=size,
            patch=patch,
            flip=flip,
            crop=crop,
            skip=skip,
            width=width,
            depth=depth,
            hidden=hidden,
            heads=heads,
            batch_size=batch_size,
            lr=lr,
            final_lr=lr / 100,
            max_steps=max_steps,
            validate_every=validate_every,
            seed=seed,
        )
        for mixer in mixers
    )
