"""The exams of "Repeat After Me" (Jelassi et al. 2024, arXiv 2402.01032) as sweeps, in two sizes.

`paper`: 12 blocks, 1,024 wide, 16 heads, AdamW with weight decay 0.1, 100 updates of warm-up and a linear schedule; `cpu`: 2
blocks, 128 wide, 4 heads, the same optimiser. What else is set here stands on the figures, at either size.

Rows hold examples of every length up to the trained one. No model has learned
positions: a length that was not trained is nothing new to it. Mamba, which is no mixer of ours, sits the same exam by `relnet exam
--hf-config mamba`. Times were measured on one core of a server CPU with other work on the next one.
"""

from typing import Literal

from relnet import nn, tasks
from relnet.run import RunConfig
from relnet.sweep import Plan, PlannedRun
from relnet.train import TrainConfig

ExamModel = Literal[
    "transformer-nope",
    "transformer-rope",
    "transformer-alibi",
    "transformer-hard-alibi",
    "causalrn",
    "linear-causalrn",
    "lstm",
]
TRANSFORMERS: tuple[ExamModel, ...] = (
    "transformer-nope",
    "transformer-rope",
    "transformer-alibi",
    "transformer-hard-alibi",
)
OTHERS: tuple[ExamModel, ...] = ("causalrn", "linear-causalrn", "lstm")
SHAPES = {"cpu": (128, 2, 4), "paper": (1024, 12, 16)}
# Samples are few on two cores: smaller batches, more updates, and strings that are learned within them.
STEPS = {"cpu": 3000, "paper": 15_000}
BATCHES = {"cpu": 32, "paper": 64}


def _mixer(name: ExamModel, heads: int) -> nn.CausalMixerConfig:
    mixers: dict[str, nn.CausalMixerConfig] = {
        "transformer-nope": nn.AttentionConfig(heads=heads),
        "transformer-rope": nn.AttentionConfig(heads=heads, positions="rope"),
        "transformer-alibi": nn.AttentionConfig(heads=heads, positions="alibi"),
        "transformer-hard-alibi": nn.AttentionConfig(heads=heads, positions="hard_alibi"),
        "causalrn": nn.CausalRNConfig(),
        "linear-causalrn": nn.LinearCausalRNConfig(),
        "lstm": nn.LSTMConfig(),
    }
    return mixers[name]


def _plan(
    name: str,
    size: Literal["cpu", "paper"],
    posed: dict[tasks.AnyTask, tuple[int, ...]],
    mixers: tuple[ExamModel, ...],
    seeds: int,
    lr: float,
    max_steps: int | None,
) -> Plan:
    """Each model on each task, examined at the task's lengths."""
    width, depth, heads = SHAPES[size]
    runs = []
    for task, lengths in posed.items():
        for mixer in mixers:
            for seed in range(seeds):
                mlp = 4 * width if mixer in TRANSFORMERS else None
                model = nn.ModelConfig(task.vocab_size, width, depth, None, _mixer(mixer, heads), mlp, positions="none")
                train = TrainConfig(
                    steps=STEPS[size] if max_steps is None else max_steps,
                    batch_size=BATCHES[size],
                    lr=lr,
                    weight_decay=0.1,
                    schedule="linear",
                    warmup_steps=100,
                    precision="bfloat16" if size == "paper" else "float32",
                    seed=seed,
                )
                runs.append(PlannedRun(RunConfig(mixer, task, model, train), lengths, gpus=int(size == "paper")))
    if not runs:
        raise ValueError(f"{name}: no runs; name at least one mixer, one length and one seed")
    train = runs[0].config.train
    shape = f"{depth} blocks for 12, {width} wide for 1,024, {heads} heads for 16; " if size == "cpu" else ""
    changes = (
        f"{shape}batches of {train.batch_size} rows, {train.precision}, at most {train.steps:,} updates, learning rate {lr:g}, "
        f"an end once 99 % has stayed for {train.stay} updates"
    )
    return Plan(f"{name}-{size}", tuple(runs), changes, figure="exam")


def exam_copying(
    size: Literal["cpu", "paper"] = "cpu",
    lengths: tuple[int, ...] | None = None,
    mixers: tuple[ExamModel, ...] = (*TRANSFORMERS, *OTHERS),
    seeds: int = 1,
    lr: float = 1e-3,
    max_steps: int | None = None,
) -> Plan:
    """How many samples a model needs to copy, by length (Jelassi et al. 2024, section 3).

    relnet sweep exam-copying: 7 models at 3 lengths; 35 minutes: 7 for strings of 5 letters, 14 each for 10 and 15.

    Args:
        size: Cpu: 2 blocks, 128 wide, 3,000 updates of 32 rows; paper: 12 blocks, 1,024 wide, 15,000 of 64 under bfloat16 autocast.
        lengths: Longest strings to train on; default: 5, 10 and 15 on a CPU, 20, 100 and 300 at the paper's size.
        mixers: Models; none has learned positions.
        seeds: Number of seeds, from 0.
        lr: Learning rate after the warm-up.
        max_steps: Most updates of a run; default: the size's.
    """
    trained = {"cpu": (5, 10, 15), "paper": (20, 100, 300)}[size] if lengths is None else lengths
    posed: dict[tasks.AnyTask, tuple[int, ...]] = {
        tasks.Copying(length, "jelassi2024"): (length,) for length in sorted(trained)
    }
    return _plan("exam-copying", size, posed, mixers, seeds, lr, max_steps)


def exam_lengths(
    size: Literal["cpu", "paper"] = "cpu",
    length: int | None = None,
    mixers: tuple[ExamModel, ...] = (*TRANSFORMERS, *OTHERS),
    seeds: int = 1,
    lr: float = 1e-3,
    max_steps: int | None = None,
) -> Plan:
    """How far a model copies beyond the strings that it was trained on (Jelassi et al. 2024, section 3).

    relnet sweep exam-lengths: 7 models; 15 minutes, or one after exam-copying in the same folder, whose runs of 10 letters are these.

    Args:
        size: Cpu: 2 blocks, 128 wide, 3,000 updates of 32 rows; paper: 12 blocks, 1,024 wide, 15,000 of 64 under bfloat16 autocast.
        length: Longest string to train on; default: 10 on a CPU, 50 at the paper's size. Twenty times that is asked at most.
        mixers: Models; none has learned positions.
        seeds: Number of seeds, from 0.
        lr: Learning rate after the warm-up.
        max_steps: Most updates of a run; default: the size's.
    """
    trained = {"cpu": 10, "paper": 50}[size] if length is None else length
    asked = tuple(times * trained for times in (1, 2, 3, 5, 10, 20))
    return _plan("exam-lengths", size, {tasks.Copying(trained, "jelassi2024"): asked}, mixers, seeds, lr, max_steps)


def exam_lookup(
    size: Literal["cpu", "paper"] = "cpu",
    length: int | None = None,
    mixers: tuple[ExamModel, ...] = (*TRANSFORMERS, *OTHERS),
    seeds: int = 1,
    lr: float = 1e-3,
    max_steps: int | None = None,
) -> Plan:
    """Whether a model finds an n-gram that is named before the string, or after it (Jelassi et al. 2024, section 3).

    relnet sweep exam-lookup: 7 models, prefix and suffix lookup; 32 minutes.

    Args:
        size: Cpu: 2 blocks, 128 wide, 3,000 updates of 32 rows; paper: 12 blocks, 1,024 wide, 15,000 of 64 under bfloat16 autocast.
        length: Longest string to train on; default: 10 on a CPU, 50 at the paper's size. Five times that is asked at most.
        mixers: Models; none has learned positions.
        seeds: Number of seeds, from 0.
        lr: Learning rate after the warm-up.
        max_steps: Most updates of a run; default: the size's.
    """
    trained = {"cpu": 10, "paper": 50}[size] if length is None else length
    asked = tuple(times * trained for times in (1, 2, 3, 5))
    posed = (tasks.PrefixLookup(trained, "jelassi2024"), tasks.SuffixLookup(trained, "jelassi2024"))
    return _plan("exam-lookup", size, dict.fromkeys(posed, asked), mixers, seeds, lr, max_steps)
