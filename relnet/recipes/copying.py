"""Learning to copy. Defaults are the paper's widths and depths (Cui 2024, section 4 and appendix D) with batches of 64 strings."""

from collections.abc import Sequence
from typing import Literal

from relnet import nn, tasks
from relnet.recipes.models import LINEAR_MODELS, MODEL_NAMES, ModelName, model
from relnet.run import RunConfig
from relnet.train import TrainConfig


def copying(
    length: int = 16,
    mixer: ModelName = "causalrn",
    layout: Literal["cui2024", "jelassi2024"] = "cui2024",
    width: int = 192,
    depth: int = 12,
    heads: int = 1,
    batch_size: int = 64,
    lr: float = 5e-4,
    warmup_steps: int = 50,
    max_steps: int = 300,
    stop_accuracy: float | None = 0.99,
    accumulate: int = 1,
    precision: Literal["float32", "bfloat16"] = "float32",
    checkpoint_every: int = 50,
    seed: int = 0,
) -> RunConfig:
    """Learn to say a string of random letters again.

    relnet train copying --length 16 --mixer causalrn: about 80 steps to 99 %, half a minute on 2 cores.
    The setting of Cui 2024, figures 3 and 4, with batches of 64 instead of 320.

    Args:
        length: Letters in a string (jelassi2024: in the longest one).
        mixer: Model, with the paper's blocks.
        layout: cui2024: one string of a fixed length a row; jelassi2024: strings of many lengths packed into a row.
        width: Of the residual stream.
        depth: Number of blocks.
        heads: Of each mixer; divides the width. An LSTM has none.
        batch_size: Strings an update.
        lr: Learning rate after the warm-up.
        warmup_steps: Updates over which the learning rate rises from 0.
        max_steps: Most updates to do.
        stop_accuracy: Stop when the mean accuracy (0 to 1) of the last 320 fresh strings stays there for 20 updates; None: never.
        accumulate: Micro-batches an update: more need less memory.
        precision: Float32, or bfloat16 autocast.
        checkpoint_every: Updates between checkpoints.
        seed: Of weights and strings.
    """
    task = tasks.Copying(length=length, layout=layout)
    train = TrainConfig(
        steps=max_steps,
        batch_size=batch_size,
        accumulate=accumulate,
        lr=lr,
        warmup_steps=warmup_steps,
        precision=precision,
        seed=seed,
        stop_accuracy=stop_accuracy,
        checkpoint_every=checkpoint_every,
    )
    return RunConfig(mixer, task, model(mixer, task.vocab_size, task.context, width, depth, heads), train)


def paper_copying(length: int = 128, mixer: ModelName = "causalrn", max_steps: int = 2000, seed: int = 0) -> RunConfig:
    """Learn to copy with the paper's exact settings: batch 320, 2,000 steps, bfloat16 autocast (Cui 2024, figures 3 and 4).

    relnet train paper-copying --length 128: made for a GPU; a step takes some 3 minutes on 2 cores (estimated from batches of 8).
    In the paper a run takes at most 1.5 hours on an A100, and CausalRN is at 99 % within the 2,000 steps, before the Transformer, at
    each length. relnet has not run it whole yet and has no number of its own.

    Args:
        length: Letters in a string; the paper has 16, 32, 64, 128 and 256.
        mixer: Model, with the paper's blocks.
        max_steps: Most updates to do.
        seed: Of weights and strings.
    """
    return copying(
        length, mixer, batch_size=320, max_steps=max_steps, precision="bfloat16", stop_accuracy=None, seed=seed
    )


def long_copying(
    length: int = 20,
    width: int = 128,
    windows: Sequence[int] = (1, 2, 3, 4, 5),
    window_width: int = 32,
    heads: int = 2,
    head_width: int = 384,
    openings: float = 0.1,
    before: int = 120,
    batch_size: int = 32,
    lr: float = 1e-3,
    warmup_steps: int = 50,
    max_steps: int = 5000,
    checkpoint_every: int = 500,
    seed: int = 0,
) -> RunConfig:
    """Learn on strings of 5 to 20 letters to copy strings ten times as long, those that repeat no 4-gram.

    relnet train long-copying: 20 to 45 minutes on one core; then relnet exam RUN --lengths 20 50 100 200. Of 256 strings of 100 letters
    it copies 249 to 254, of 200 letters 237 to 251, of 320 letters 197 to 222 (three seeds, results/exam.md). No training string is
    longer than `length`, but a row has up to `before` letters before it, so that it is looked up among more tokens than it has.

    Two CausalRN blocks without positions: heads with windows, which gather the last letters, then heads that see everything and look
    those letters up, as in docs/theory.md; wide ones, since a head of width d lifts the right source by e^sqrt(d - 1) over the others.

    Args:
        length: Letters in the longest training string; the shortest has 5.
        width: Of the residual stream.
        windows: Of the first block's heads: how many letters back each one sees.
        window_width: Of each head of the first block.
        heads: Of the second block.
        head_width: Of each head of the second block.
        openings: Share of training rows that ask for the first letter only.
        before: Most letters before a training row's string that belong to nothing.
        batch_size: Strings an update.
        lr: Learning rate after the warm-up; it falls to 0 by a cosine.
        warmup_steps: Updates over which the learning rate rises from 0.
        max_steps: Updates to do.
        checkpoint_every: Updates between checkpoints.
        seed: Of weights and strings.
    """
    task = tasks.UnrepeatedCopying(length, "jelassi2024", min_length=min(5, length), openings=openings, before=before)
    gather = nn.CausalRNConfig(hidden=window_width * len(windows), heads=len(windows), windows=tuple(windows))
    look_up = nn.CausalRNConfig(hidden=head_width * heads, heads=heads)
    shape = nn.ModelConfig(task.vocab_size, width, 2, None, (gather, look_up), positions="none")
    train = TrainConfig(
        steps=max_steps,
        batch_size=batch_size,
        lr=lr,
        warmup_steps=warmup_steps,
        schedule="cosine",
        seed=seed,
        stop_accuracy=None,
        checkpoint_every=checkpoint_every,
    )
    return RunConfig("windowed-causalrn", task, shape, train)


def compare_copying(
    length: int = 16,
    mixers: Sequence[ModelName] = ("causalrn", "linear-causalrn", "transformer", "linear-transformer"),
    width: int = 192,
    depth: int = 12,
    heads: int = 1,
    batch_size: int = 64,
    lr: float = 5e-4,
    max_steps: int = 300,
    stop_accuracy: float = 0.99,
    seed: int = 0,
) -> tuple[RunConfig, ...]:
    """Several models learn the same copying task, one after the other, on the same strings.

    relnet compare copying --length 16: under 6 minutes on 2 cores; CausalRN needs about 80 steps to 99 %, a Transformer about 60.

    Args:
        length: Letters in a string.
        mixers: Models to compare, with the paper's blocks.
        width: Of the residual stream.
        depth: Number of blocks.
        heads: Of each mixer that has heads (an LSTM has none); divides the width.
        batch_size: Strings an update.
        lr: Learning rate after 50 steps of warm-up.
        max_steps: Most updates to do; half of it for the linear models.
        stop_accuracy: Stop a model when the mean accuracy (0 to 1) of its last 320 fresh strings stays there for 20 updates.
        seed: Of weights and strings.
    """

    if not mixers:
        raise ValueError(f"no mixers to compare; choose from {', '.join(MODEL_NAMES)}")
    return tuple(
        copying(
            length,
            mixer,
            width=width,
            depth=depth,
            heads=1 if mixer == "lstm" else heads,
            batch_size=batch_size,
            lr=lr,
            max_steps=max(1, max_steps // 2) if mixer in LINEAR_MODELS else max_steps,
            stop_accuracy=stop_accuracy,
            seed=seed,
        )
        for mixer in mixers
    )
