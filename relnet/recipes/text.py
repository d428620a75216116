"""Language modelling on bytes or a tokenizer's tokens. Paper: Cui 2024, section 4 (WikiText-103) and figure 6."""

from collections.abc import Sequence
from typing import Literal

from relnet import tasks
from relnet.recipes.models import MODEL_NAMES, ModelName, model
from relnet.run import RunConfig
from relnet.train import TrainConfig

# The published count of WikiText-103's training bytes, one epoch of which is 6,375 updates of 320 windows of 256.
PAPER_STEPS = 522_243_436 // (320 * 256)
# What the paper says, and what its published configuration does: peak, end and shape of the learning rate.
PAPER_RATES: dict[str, tuple[float, float, Literal["constant", "cosine"]]] = {
    "constant": (1e-4, 0.0, "constant"),
    "cosine": (5e-4, 5e-5, "cosine"),
}


def text(
    data: tuple[str, ...],
    validation: str | None = None,
    mixer: ModelName = "linear-causalrn",
    tokenizer: str = "bytes",
    validation_share: float = 0.05,
    context: int = 256,
    width: int = 192,
    depth: int = 6,
    hidden: int | None = None,
    heads: int = 1,
    batch_size: int = 16,
    lr: float = 1e-3,
    final_lr: float = 1e-4,
    schedule: Literal["constant", "linear", "cosine"] = "cosine",
    warmup_steps: int = 50,
    max_steps: int = 300,
    validate_every: int | None = 100,
    accumulate: int = 1,
    precision: Literal["float32", "bfloat16"] = "float32",
    checkpoint_every: int = 50,
    seed: int = 0,
) -> RunConfig:
    """Learn to say the next byte, or token, of a text. Ends with bits per byte of the whole validation text, and a sample.

    relnet train text --data FILE: sized for a CPU, a few minutes on 1 core. --mixer hybrid: linear blocks and two exact ones.

    Args:
        data: Text files (UTF-8), folders of *.txt files, or wikitext-103 from the Hugging Face hub; one after the other.
        validation: Another text to validate on; default: the end of the data.
        mixer: Model, with the paper's blocks.
        tokenizer: Bytes, or a tokenizer.json, its folder or a name on the hub.
        validation_share: Share of the data's bytes to validate on, where no other text is given.
        context: Tokens a model reads at once.
        width: Of the residual stream.
        depth: Number of blocks.
        hidden: Of relation models; default: the width. The paper's text models have 4 x width.
        heads: Of each mixer; divides the width. An LSTM has none.
        batch_size: Windows an update.
        lr: Learning rate after the warm-up.
        final_lr: What the linear and the cosine schedule end with.
        schedule: Of the learning rate after the warm-up.
        warmup_steps: Updates over which the learning rate rises from 0.
        max_steps: Updates to do.
        validate_every: Updates between validations; None: after the last only.
        accumulate: Micro-batches an update: more need less memory.
        precision: Float32, or bfloat16 autocast.
        checkpoint_every: Updates between checkpoints.
        seed: Of weights and windows.
    """
    task = tasks.Text(data, context, tokenizer, validation, validation_share)
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
    return RunConfig(mixer, task, model(mixer, task.vocab_size, context, width, depth, heads, hidden), train)


def paper_text(
    mixer: ModelName = "linear-causalrn",
    rate: Literal["constant", "cosine"] = "cosine",
    data: tuple[str, ...] = ("wikitext-103",),
    validation: str | None = "wikitext-103/validation",
    max_steps: int = PAPER_STEPS,
    seed: int = 0,
) -> RunConfig:
    """Learn WikiText-103 byte by byte with the paper's settings: width 768, hidden 3,072, 12 blocks, batch 320, one epoch
    (Cui 2024, figure 6).

    relnet train paper-text: made for a GPU; bfloat16 autocast. --mixer hybrid has two exact blocks among ten linear ones. relnet has not
    run it whole yet and has no number of its own.

    Args:
        mixer: Model, with the paper's blocks; Transformers have 12 heads, the others 1.
        rate: Of learning: constant 1e-4 is what the paper says, cosine from 5e-4 to 5e-5 what its published configuration does.
        data: Training text; the default is fetched from the Hugging Face hub as it is read.
        validation: Text to validate on.
        max_steps: Updates to do.
        seed: Of weights and windows.
    """
    lr, final_lr, schedule = PAPER_RATES[rate]
    return text(
        data,
        validation,
        mixer,
        width=768,
        depth=12,
        hidden=3072,
        heads=12 if mixer in ("transformer", "linear-transformer") else 1,
        batch_size=320,
        lr=lr,
        final_lr=final_lr,
        schedule=schedule,
        warmup_steps=2000,
        max_steps=max_steps,
        validate_every=500,
        precision="bfloat16",
        seed=seed,
    )


def compare_text(
    data: tuple[str, ...],
    validation: str | None = None,
    mixers: Sequence[ModelName] = ("linear-causalrn", "causalrn", "transformer", "linear-transformer", "hybrid"),
    tokenizer: str = "bytes",
    context: int = 256,
    width: int = 128,
    depth: int = 4,
    hidden: int | None = 512,
    heads: int = 1,
    batch_size: int = 8,
    lr: float = 1e-3,
    max_steps: int = 600,
    validate_every: int | None = None,
    seed: int = 0,
) -> tuple[RunConfig, ...]:
    """Several models learn the same text, one after the other, on the same windows.

    relnet compare text --data FILE: 5 to 10 minutes a model on 1 core, where 1 MB of text is validated on. Ends with bits per byte of
    all of it, speed, state sizes and a sample of each model.

    Args:
        data: Text files (UTF-8), folders of *.txt files, or wikitext-103 from the Hugging Face hub; one after the other.
        validation: Another text to validate on; default: the last 5 % of the data.
        mixers: Models to compare, with the paper's blocks.
        tokenizer: Bytes, or a tokenizer.json, its folder or a name on the hub.
        context: Tokens a model reads at once.
        width: Of the residual stream.
        depth: Number of blocks.
        hidden: Of relation models, None: the width. With 4 x width a block has as many weights as a Transformer's.
        heads: Of each mixer that has heads (an LSTM has none); divides the width.
        batch_size: Windows an update.
        lr: Learning rate after 50 steps of warm-up; it falls to a tenth along a cosine.
        max_steps: Updates to do.
        validate_every: Updates between validations; None: after the last only.
        seed: Of weights and windows.
    """
    if not mixers:
        raise ValueError(f"no mixers to compare; choose from {', '.join(MODEL_NAMES)}")
    return tuple(
        text(
            data,
            validation,
            mixer,
            tokenizer,
            context=context,
            width=width,
            depth=depth,
            hidden=hidden,
            heads=1 if mixer == "lstm" else heads,
            batch_size=batch_size,
            lr=lr,
            final_lr=lr / 10,
            max_steps=max_steps,
            validate_every=validate_every,
            seed=seed,
        )
        for mixer in mixers
    )
