"""The figures of Cui 2024 as sweeps, in two sizes: `paper`, its exact settings, made for a GPU, and `cpu`, for two cores.

Each says what differs from the paper, by comparing its runs with the paper's; that stands on the figure too.

Times are for two cores of a server CPU with AVX-512: seconds of an update as `bench/sweep_seconds.py` measured them, but for 256 letters,
which is scaled by tokens and pairs; times the updates that were needed. Another day the same machine may take 1.5 times as long.

    seconds an update, 64 strings      16     32     64    128    256 letters
    causalrn                         0.12   0.23   0.50    1.4    4.2
    linear-causalrn                  0.12   0.22   0.38   0.73    1.5
    transformer                      0.35   0.76    1.6    3.4    7.5
    linear-transformer               0.53   0.94    2.7    7.3     15
"""

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from relnet import nn
from relnet.recipes.copying import copying
from relnet.recipes.images import PAPER_STEPS as PAPER_IMAGE_STEPS
from relnet.recipes.images import ImageModelName, compare_images, paper_images
from relnet.recipes.models import LINEAR_MODELS, ModelName
from relnet.recipes.text import PAPER_RATES, PAPER_STEPS, compare_text, paper_text
from relnet.report.settings import flat
from relnet.run import RunConfig
from relnet.sweep import Plan, PlannedRun

Size = Literal["cpu", "paper"]
# Of figures 2 and 3.
LENGTH = 128
FOUR: tuple[ModelName, ...] = ("causalrn", "linear-causalrn", "transformer", "linear-transformer")
LENGTHS = (16, 32, 64, 128, 256)
STEPS = 2000
# A linear model that copies less than half by then is not waited for.
PATIENCE = 1000
# The paper's learning rate for copying.
LR = 5e-4
# What the paper says is best, for the Transformer and for CausalRN.
BEST = (5e-4, 1e-3)
# How a setting that is not the paper's is told; any other by its name.
WORDS = {
    "task.length": "strings of {} letters for {}",
    "task.data": "text {} for {}",
    "task.validation": "validated on {} for {}",
    "task.crop": "shifts by {} for {} pixels",
    "model.width": "width {} for {}",
    "model.depth": "{} blocks for {}",
    "model.mlp": "MLP {} for {}",
    "model.mixer.heads": "heads {} for {}",
    "model.mixer.hidden": "hidden {} for {}",
    "train.steps": "{} updates for {}",
    "train.batch_size": "batches of {} for {}",
    "train.lr": "learning rate {} for {}",
    "train.warmup_steps": "warm-up of {} updates for {}",
    "train.schedule": "{} schedule for {}",
    "train.final_lr": "falling to {} for {}",
    "train.precision": "{} for {}",
    "train.stay": "training ends when 99 % has stayed for {} updates",
    "train.give_up_after": "given up below 50 % after {} updates",
}
# What changes no number, is no setting of the paper's, or follows from other settings.
UNTOLD = (
    *("name", "task.stores", "task.mean", "task.std", "model.context"),
    *("train.seed", "train.accumulate", "train.validate_every", "train.checkpoint_every", "train.keep"),
)


def _train(size: Size, max_steps: int | None, steps: int = STEPS, batch_size: int | None = None) -> dict[str, Any]:
    """What a size does to a copying run. The paper's own ends after all of its updates, whatever the accuracy."""
    settings: dict[str, Any] = {"batch_size": 320, "precision": "bfloat16"} if size == "paper" else {}
    if batch_size is not None:
        settings["batch_size"] = batch_size
    return {"max_steps": steps if max_steps is None else max_steps, **settings}


def _told(config: RunConfig, **changes: Any) -> RunConfig:
    return replace(config, train=replace(config.train, **changes))


def _whole(size: Size, config: RunConfig) -> RunConfig:
    """At the paper's size steps to 99 % are counted, and training goes on to the end."""
    return _told(config, stay=config.train.steps) if size == "paper" else config


def _settings(config: RunConfig) -> dict[str, str]:
    """What can differ from the paper, by name."""
    # As JSON has it, which makes lists of tuples.
    found = dict(flat(json.loads(json.dumps(asdict(config)))))
    train = config.train
    untold = [*UNTOLD]
    untold += ["train.final_lr"] if train.schedule == "constant" else []
    untold += ["train.stay", "train.stop_accuracy"] if train.stop_accuracy is None or train.stay >= train.steps else []
    return {re.sub(r" \d+", "", name): value for name, value in found.items() if name not in untold}


def _shown(value: str | None) -> str:
    """A setting in words."""
    try:
        read = json.loads(value or "null")
    except ValueError:
        return str(value)
    if isinstance(read, list):
        return ", ".join(Path(str(one)).name for one in read)
    return "none" if read is None else f"{read:,}" if isinstance(read, int) else f"{read:g}"


def _changes(configs: Sequence[RunConfig], papers: Sequence[RunConfig]) -> list[str]:
    """In what the runs differ from the paper's, one by one; where only some do, with their names."""
    found: dict[str, dict[str, None]] = {}
    for config, paper in zip(configs, papers, strict=True):
        mine, its = _settings(config), _settings(paper)
        different = [name for name in {**mine, **its} if mine.get(name) != its.get(name)]
        # Another text has a validation of its own, and a rate that falls ends somewhere else than one that does not.
        follows = {
            "task.data": "task.validation",
            "train.schedule": "train.final_lr",
            "train.stay": "train.stop_accuracy",
        }
        follow = [follows[name] for name in different if name in follows]
        for name in different:
            if name not in follow:
                words = WORDS.get(name, f"{name.rpartition('.')[2]} {{}} for {{}}")
                found.setdefault(words.format(_shown(mine.get(name)), _shown(its.get(name))), {})[config.name] = None
    names = {config.name for config in configs}
    return [words if names == set(few) else f"{words} ({', '.join(few)})" for words, few in found.items()]


def _plan(
    name: str,
    size: Size,
    configs: Sequence[RunConfig],
    papers: Sequence[RunConfig],
    others: Sequence[str] = (),
    **options: Any,
) -> Plan:
    """The plan of these runs; papers: for each the run with the paper's settings; others: what else is not as in the paper."""
    if not configs:
        raise ValueError(f"{name}: no runs; name at least one mixer, one length and one seed")
    runs = tuple(PlannedRun(config, gpus=int(size == "paper")) for config in configs)
    return Plan(f"{name}-{size}", runs, "; ".join([*_changes(configs, papers), *others]), **options)


def figure2(
    size: Size = "cpu",
    length: int = 128,
    seeds: int = 1,
    lr: float = 5e-4,
    max_steps: int | None = None,
) -> Plan:
    """What each part of a CausalRN does for copying: the sum norm, the pair norm, the activation (Cui 2024, figure 2).

    relnet sweep figure2: six runs, of which five take all of their 800 updates; 3.6 hours, measured on one core a run with other work on
    the other one: 0.2 for the plain CausalRN, 0.4 to 0.7 each for the other norms, 0.8 for ReLU, 1.1 for ELU.

    Args:
        size: Cpu: 800 updates of 64 strings; paper: 2,000 of 320 under bfloat16 autocast.
        length: Letters in a string.
        seeds: Number of seeds, from 0.
        lr: Learning rate after the warm-up.
        max_steps: Most updates of a run; default: the size's.
    """
    variants: dict[str, dict[str, Any]] = {
        "causalrn": {},
        "causalrn-no-sum-norm": {"sum_norm": False},
        "causalrn-approximate": {"pair_norm": "approximate"},
        "causalrn-no-pair-norm": {"pair_norm": "none"},
        "causalrn-relu": {"activation": "relu"},
        "causalrn-elu": {"activation": "elu"},
    }

    def made(size: Size, length: int, lr: float, max_steps: int | None) -> list[RunConfig]:
        configs = []
        for name, changes in variants.items():
            for seed in range(seeds):
                told = _train(size, max_steps, 800 if size == "cpu" else STEPS)
                config = _whole(size, copying(length, lr=lr, seed=seed, **told))
                assert isinstance(config.model, nn.ModelConfig)
                model = replace(config.model, mixer=nn.CausalRNConfig(**changes))
                configs.append(replace(config, name=name, model=model))
        return configs

    return _plan("figure2", size, made(size, length, lr, max_steps), made("paper", LENGTH, LR, None))


def figure3(
    size: Size = "cpu",
    length: int = 128,
    mixers: tuple[ModelName, ...] = ("causalrn", "transformer"),
    seeds: int = 1,
    lr: float = 5e-4,
    max_steps: int | None = None,
) -> Plan:
    """How a CausalRN and a Transformer learn to copy: a plateau, then a fall (Cui 2024, figure 3).

    relnet sweep figure3 (make figure3-cpu): 57 minutes, measured with other work beside it: 511 updates of CausalRN,
    543 of the Transformer.

    Args:
        size: Cpu: batches of 64, to 99 % and 300 updates on; paper: 2,000 updates of 320 strings under bfloat16 autocast.
        length: Letters in a string.
        mixers: Models, with the paper's blocks.
        seeds: Number of seeds, from 0.
        lr: Learning rate after the warm-up.
        max_steps: Most updates of a run; default: 2,000.
    """

    def made(size: Size, length: int, lr: float, max_steps: int | None) -> list[RunConfig]:
        configs = []
        for mixer, seed in itertools.product(mixers, range(seeds)):
            config = copying(length, mixer, lr=lr, seed=seed, **_train(size, max_steps))
            configs.append(_told(config, stay=300) if size == "cpu" else _whole(size, config))
        return configs

    return _plan("figure3", size, made(size, length, lr, max_steps), made("paper", LENGTH, LR, None))


def figure4(
    size: Size = "cpu",
    lengths: tuple[int, ...] = LENGTHS,
    mixers: tuple[ModelName, ...] = FOUR,
    seeds: int | None = None,
    lr: float = 5e-4,
    batch_size: int | None = None,
    max_steps: int | None = None,
) -> Plan:
    """Updates that four models need to copy strings of each length at 99 % (Cui 2024, figure 4).

    relnet sweep figure4 --lengths 16 --seeds 1: 3 to 6 minutes; 32: 8 to 21, by what else the machine does. 64, a core each: CausalRN 5
    minutes, Transformer 9, Linear Transformer 17, Linear CausalRN 25 to 43 (1,300 to 1,900 updates). 128: Linear CausalRN 70 minutes on
    a core, all of its 2,000 updates; the Linear Transformer 2 hours, and 256 5, estimated with 1,000 updates of a linear model.

    Args:
        size: Cpu: batches of 64, linear models given up where they copy less than half after 1,000; paper: 2,000 updates of 320
            strings under bfloat16 autocast.
        lengths: Letters in the strings; shorter ones come first, and of a length the quadratic models, seed by seed.
        mixers: Models, with the paper's blocks.
        seeds: Number of seeds, from 0; default: 3 on a CPU, 1 at the paper's size.
        lr: Learning rate after the warm-up; the paper has 5e-4, and says that 1e-3 is CausalRN's best.
        batch_size: Strings an update; default: 64 on a CPU, 320 at the paper's size.
        max_steps: Most updates of a run; default: 2,000.
    """
    seeds = {"cpu": 3, "paper": 1}[size] if seeds is None else seeds
    # The short and the quick ones first: what is done of a sweep that is stopped can be compared.
    order = sorted(
        itertools.product(lengths, range(seeds), mixers),
        key=lambda one: (one[0], one[2] in LINEAR_MODELS, one[1]),
    )

    def made(size: Size, lr: float, max_steps: int | None, batch_size: int | None) -> list[RunConfig]:
        configs = []
        for length, seed, mixer in order:
            settings = _train(size, max_steps, batch_size=batch_size)
            config = copying(length, mixer, lr=lr, seed=seed, **settings)
            patience = PATIENCE if size == "cpu" and mixer in LINEAR_MODELS else None
            configs.append(_whole(size, _told(config, give_up_after=patience)))
        return configs

    papers = made("paper", LR, None, None)
    return _plan("figure4", size, made(size, lr, max_steps, batch_size), papers, figure="length")


def heads_lr(
    size: Size = "cpu",
    length: int = 16,
    mixers: tuple[ModelName, ...] = ("causalrn", "transformer"),
    heads: tuple[int, ...] = (1, 2, 4, 8),
    lrs: tuple[float, ...] = (1e-5, 5e-5, 1e-4, 5e-4, 1e-3),
    seeds: int = 1,
    max_steps: int | None = None,
) -> Plan:
    """Updates to 99 % by learning rate and number of heads (Cui 2024, appendix D: one head; 5e-4 for the Transformer, 1e-3 for CausalRN).

    relnet sweep heads-lr: each learning rate with one head, each number of heads at 5e-4 and 1e-3 (at all where neither is named); 22
    runs, 38 minutes, measured with light work beside it: 12 of CausalRNs, 26 of Transformers, of which the one at 1e-5 takes 12.

    Args:
        size: Cpu: batches of 64, a run given up where it copies less than half after 1,000; paper: 2,000 updates of 320 strings under
            bfloat16 autocast.
        length: Letters in a string.
        mixers: Models, with the paper's blocks.
        heads: Numbers of heads; each divides 192.
        lrs: Learning rates after the warm-up.
        seeds: Number of seeds, from 0.
        max_steps: Most updates of a run; default: 2,000.
    """
    best = [lr for lr in lrs if lr in BEST] or lrs
    pairs = [(number, lr) for number in heads for lr in (lrs if number == min(heads) else best)]

    def made(size: Size, max_steps: int | None) -> list[RunConfig]:
        configs = []
        for mixer, (number, lr), seed in itertools.product(mixers, pairs, range(seeds)):
            config = copying(length, mixer, heads=number, lr=lr, seed=seed, **_train(size, max_steps))
            patience = PATIENCE if size == "cpu" else None
            name = mixer if number == 1 else f"{mixer}-{number}-heads"
            configs.append(replace(_whole(size, _told(config, give_up_after=patience)), name=name))
        return configs

    others = [f"strings of {length}"] if size == "cpu" else []
    return _plan("heads-lr", size, made(size, max_steps), made("paper", None), others, figure="lr")


def figure6(
    data: tuple[str, ...] = ("wikitext-103",),
    validation: str | None = "wikitext-103/validation",
    size: Size = "cpu",
    mixers: tuple[ModelName, ...] = ("linear-causalrn", "transformer", "linear-transformer"),
    rate: Literal["constant", "cosine"] = "constant",
    seeds: int = 1,
    lr: float | None = None,
    max_steps: int | None = None,
) -> Plan:
    """How Linear CausalRN, Transformer and Linear Transformer learn the characters of WikiText-103 (Cui 2024, figure 6).

    relnet sweep figure6 --data FILE --validation FILE: 5 to 10 minutes a model on one core, where 1 MB of text is validated on.

    Args:
        data: Training text: files, folders of *.txt files, or wikitext-103 from the Hugging Face hub.
        validation: Text to validate on; None: the end of the data.
        size: Cpu: width 128, 4 blocks, 600 updates of 8 windows; paper: width 768, 12 blocks, one epoch in batches of 320.
        mixers: Models, with the paper's blocks.
        rate: The paper's size: constant 1e-4 is what the paper says, cosine from 5e-4 to 5e-5 what its published configuration does.
        seeds: Number of seeds, from 0.
        lr: Learning rate after the warm-up; default: 1e-3 on a CPU, what --rate says at the paper's size.
        max_steps: Updates of a run; default: 600 on a CPU, one epoch at the paper's size.
    """

    def made(
        size: Size, data: tuple[str, ...], validation: str | None, lr: float | None, max_steps: int | None
    ) -> list[RunConfig]:
        configs: list[RunConfig] = []
        steps = {"cpu": 600, "paper": PAPER_STEPS}[size] if max_steps is None else max_steps
        for seed in range(seeds):
            if size == "cpu":
                peak = 1e-3 if lr is None else lr
                configs += compare_text(
                    data, validation, mixers, lr=peak, max_steps=steps, validate_every=100, seed=seed
                )
            else:
                peak, final, _ = PAPER_RATES[rate]
                peak, final = (peak, final) if lr is None else (lr, lr * final / peak)
                made = [paper_text(mixer, rate, data, validation, steps, seed) for mixer in mixers]
                configs += [_told(config, lr=peak, final_lr=final) for config in made]
        return configs

    papers = made("paper", ("wikitext-103",), "wikitext-103/validation", None, None)
    return _plan("figure6", size, made(size, data, validation, lr, max_steps), papers)


def figure7(
    data: tuple[str, ...] = ("digits",),
    test: str | None = None,
    size: Size = "cpu",
    mixers: tuple[ImageModelName, ...] = ("linear-birn", "transformer", "linear-transformer"),
    rate: Literal["constant", "cosine"] = "constant",
    seeds: int = 1,
    max_steps: int | None = None,
) -> Plan:
    """How Linear BiRN, Transformer and Linear Transformer learn to tell images apart (Cui 2024, figure 7).

    relnet sweep figure7: scikit-learn's digits, under 4 minutes for its three models (that of `relnet compare images` for four is under 5).

    Args:
        data: Digits, parquet or npz files, a folder of them or of a folder of images a class; at the paper's size CIFAR-5m's folder.
        test: Images held out, likewise; default: the data's own, else a fifth of the data.
        size: Cpu: width 64, 4 blocks, 600 updates of 64 images; paper: width 768, 12 blocks, one epoch in batches of 320.
        mixers: Models, with the paper's blocks.
        rate: The paper's size: constant 5e-4 is what the paper says, cosine from 1e-4 to 1e-5 what its published configuration does.
        seeds: Number of seeds, from 0.
        max_steps: Updates of a run; default: 600 on a CPU, one epoch at the paper's size.
    """
    return _images("figure7", data, test, size, mixers, rate, range(seeds), max_steps)


def _images(
    name: str,
    data: tuple[str, ...],
    test: str | None,
    size: Size,
    mixers: tuple[ImageModelName, ...],
    rate: Literal["constant", "cosine"],
    seeds: Sequence[int],
    max_steps: int | None,
    **options: Any,
) -> Plan:
    """The plan of figures 7 and 8: each model at each seed."""
    if size == "paper" and data == ("digits",):
        raise ValueError(f"{name} at the paper's size learns CIFAR-5m: name the folder of its parts, --data FOLDER")

    def made(size: Size, max_steps: int | None) -> list[RunConfig]:
        configs: list[RunConfig] = []
        steps = {"cpu": 600, "paper": PAPER_IMAGE_STEPS}[size] if max_steps is None else max_steps
        for seed in seeds:
            if size == "cpu":
                configs += compare_images(data, test, mixers, max_steps=steps, seed=seed)
            else:
                configs += [paper_images(data, test, mixer, rate, steps, seed) for mixer in mixers]
        return configs

    # The paper's own runs on the same images: which classes there are is the data's.
    others = [] if _is_cifar5m(data) else [f"images {', '.join(Path(one).name for one in data)} for CIFAR-5m"]
    return _plan(name, size, made(size, max_steps), made("paper", None), others, **options)


def _is_cifar5m(data: Sequence[str]) -> bool:
    return all("cifar5m_part" in one or any(Path(one).glob("cifar5m_part*.npz")) for one in data)


def figure8(
    data: tuple[str, ...] = ("digits",),
    test: str | None = None,
    size: Size = "cpu",
    rate: Literal["constant", "cosine"] = "constant",
    seed: int = 0,
    max_steps: int | None = None,
) -> Plan:
    """Which patches a Linear BiRN's <CLS> takes its answer from, in the block in the middle (Cui 2024, figure 8).

    relnet sweep figure8: figure 7's run of Linear BiRN, which is not trained again where it is finished, and maps of the first ten images
    held out; a minute for scikit-learn's digits.

    Args:
        data: Digits, parquet or npz files, a folder of them or of a folder of images a class; at the paper's size CIFAR-5m's folder.
        test: Images held out, likewise; default: the data's own, else a fifth of the data.
        size: As for figure 7.
        rate: As for figure 7.
        seed: Of weights and order.
        max_steps: Updates to do; default: 600 on a CPU, one epoch at the paper's size.
    """
    return _images("figure8", data, test, size, ("linear-birn",), rate, (seed,), max_steps, figure="maps")
