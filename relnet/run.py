"""Runs: the one place where tasks, models, training, exam and report meet.

A run is a folder that only ever grows: config.json (what was asked), log.jsonl (one line an update), checkpoints/, model.safetensors,
result.json, exam.jsonl (one line a result). It is new or it is resumed, never reused in silence, never deleted.
"""

import dataclasses
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cattrs
import torch
from cattrs.strategies import configure_tagged_union

from relnet import exam, nn, tasks
from relnet import train as training
from relnet.train import StepRecord, TrainConfig, TrainResult
from relnet.train.checkpoint import write_atomically

CONFIG_FORMAT = 1
# Where run folders go unless a folder is named: set it to a place outside of a work tree.
RUNS_VARIABLE = "RELNET_RUNS"
# The registry of tasks by the name in config.json.
TASKS = {"Copying": tasks.Copying}


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run's numbers: a name for tables, the task, the model's shape, the training settings (seed included)."""

    name: str
    task: tasks.Copying
    model: nn.ModelConfig
    train: TrainConfig


@dataclass(frozen=True)
class Run:
    """A finished run: where it lies, what was asked, how training went, the trained model."""

    folder: Path
    config: RunConfig
    result: TrainResult
    model: nn.SequenceModel


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    configure_tagged_union(nn.CausalMixerConfig, converter, tag_name="_type")
    one_or_many = nn.CausalMixerConfig | tuple[nn.CausalMixerConfig, ...]
    many = tuple[nn.CausalMixerConfig, ...]

    def structure(value: Any, _: Any) -> Any:
        return converter.structure(value, many if isinstance(value, list) else nn.CausalMixerConfig)

    def unstructure(value: Any) -> Any:
        return converter.unstructure(value, many if isinstance(value, tuple) else nn.CausalMixerConfig)

    converter.register_structure_hook(one_or_many, structure)
    converter.register_unstructure_hook(one_or_many, unstructure)
    return converter


def config_to_json(config: RunConfig) -> str:
    """Return the config as JSON, each task and mixer with its type."""
    content = _converter().unstructure(config)
    content["task"] = {"_type": type(config.task).__name__, **content["task"]}
    return json.dumps({"format": CONFIG_FORMAT, **content}, indent=2) + "\n"


def config_from_json(text: str, origin: str = "config") -> RunConfig:
    """Read a config back to the same types; ValueError naming what does not fit."""
    try:
        content = json.loads(text)
        found = content.pop("format")
        if found != CONFIG_FORMAT:
            raise ValueError(f"{origin} has format {found}; this version of relnet reads {CONFIG_FORMAT}")
        kind = content["task"].pop("_type")
        if kind not in TASKS:
            raise ValueError(f"{origin} has task {kind!r}; known ones are {', '.join(TASKS)}")
        return _converter().structure(content, RunConfig)
    except cattrs.BaseValidationError as error:
        faults = cattrs.transform_error(error, format_exception=_fault)
        raise ValueError(f"{origin} does not fit: {'; '.join(faults)}") from None
    except (json.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{origin} is not a run's config ({type(error).__name__}: {error})") from None


def _fault(error: BaseException, kind: type | None) -> str:
    """What is wrong in a config: our own messages as they are, the rest in cattrs' words."""
    return str(error) if type(error) is ValueError else cattrs.v.format_exception(error, kind)


def runs_root() -> Path:
    """Return the folder that run folders go to: $RELNET_RUNS, or runs/ in the current folder."""
    return Path(os.environ.get(RUNS_VARIABLE) or "runs")


def new_folder(name: str) -> Path:
    """Return a path for a new run folder under `runs_root()`: the name and the time; nothing is created."""
    stem = runs_root() / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}"
    path, number = stem, 2
    while path.exists():
        path, number = stem.with_name(f"{stem.name}-{number}"), number + 1
    return path


def build_model(config: RunConfig) -> nn.SequenceModel:
    """Return the untrained model; the same config gives the same weights, and torch's generators stay as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.train.seed)
        return nn.SequenceModel(config.model)


def read_config(folder: str | Path) -> RunConfig:
    """Return the config of a run folder; ValueError if it has none."""
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise ValueError(f"{folder} is no run folder: it has no config.json; give a folder that relnet train made")
    return config_from_json(path.read_text(), str(path))


def _write_config(config: RunConfig, folder: Path) -> None:
    """Write config.json into a new folder, or check that the folder's own is the same."""
    path = folder / "config.json"
    if not path.exists():
        write_atomically(path, config_to_json(config).encode())
        return
    found = read_config(folder)
    if found != config:
        different = [f.name for f in dataclasses.fields(found) if getattr(found, f.name) != getattr(config, f.name)]
        raise ValueError(f"{folder} holds another config (different: {', '.join(different)}); give another folder")


def train(
    config: RunConfig,
    folder: str | Path | None = None,
    *,
    device: str = "auto",
    resume: bool = False,
    on_step: Callable[[StepRecord], None] | None = None,
    trackers: Sequence[Any] = (),
) -> Run:
    """Train a model and return the run.

    folder: new, or None for one under `runs_root()`; with resume=True one that the same config left unfinished or finished.
    device: "auto", "cpu", "cuda", "mps" or one GPU such as "cuda:1". on_step: called after each update. trackers: accelerate's.
    Raises ValueError for a folder that holds a run (without resume) or another config, and what `relnet.train.train` raises.

    >>> import tempfile
    >>> from relnet import recipes
    >>> config = recipes.copying(length=3, width=16, depth=1, max_steps=2)
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     run = train(config, f"{parent}/run", device="cpu")
    >>> run.result.steps
    2
    """
    folder = Path(folder) if folder is not None else new_folder(config.name)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; give a folder for the run")
    model = build_model(config)
    folder.mkdir(parents=True, exist_ok=True)
    _write_config(config, folder)
    result = training.train(
        model, config.task, config.train, folder, device=device, on_step=on_step, trackers=trackers, resume=resume
    )
    return Run(folder, config, result, model)


def load(folder: str | Path, device: str = "cpu") -> tuple[RunConfig, nn.SequenceModel]:
    """Return a finished run's config and trained model, in evaluation mode; ValueError if it is not finished."""
    config = read_config(folder)
    weights = Path(folder) / "model.safetensors"
    if not weights.is_file():
        raise ValueError(f"{folder} has no model.safetensors yet: its training was not finished; go on with --resume")
    model = build_model(config)
    training.load_weights(model, weights)
    return config, model.eval().to(training.choose_device(device))


def examine(
    run: Run | str | Path,
    *,
    lengths: Sequence[int] | None = None,
    seeds: Sequence[int] = (0,),
    num: int = 320,
    batch_size: int = 64,
    device: str = "cpu",
    on_row: Callable[[exam.Row], None] | None = None,
) -> list[exam.Row]:
    """Give a run (or a finished run's folder) the exam of its own task; rows are appended to its exam.jsonl and returned.

    lengths: of the strings, default the trained one; seeds, num: which items and how many a length and seed.
    """
    if isinstance(run, Run):
        folder, config, model = run.folder, run.config, run.model
    else:
        folder = Path(run)
        config, model = load(folder, device)
    subject = exam.ModelSubject(model, name=config.name)
    return exam.evaluate(
        subject,
        config.task,
        lengths=tuple(lengths or (config.task.length,)),
        seeds=seeds,
        num=num,
        batch_size=batch_size,
        path=folder / "exam.jsonl",
        on_row=on_row,
    )


def compare(
    configs: Sequence[RunConfig],
    folder: str | Path,
    *,
    device: str = "auto",
    resume: bool = False,
    on_start: Callable[[RunConfig], None] | None = None,
    on_step: Callable[[StepRecord], None] | None = None,
) -> list[Run]:
    """Train and examine one run after another, each in folder/NAME; with resume=True what is finished is not done again.

    Raises ValueError for names that stand twice, and as `train`.
    """
    names = [config.name for config in configs]
    if len(set(names)) != len(names):
        raise ValueError(f"names {', '.join(names)}: each run needs a name of its own")
    runs = []
    for config in configs:
        if on_start:
            on_start(config)
        run = train(config, Path(folder) / config.name, device=device, resume=resume, on_step=on_step)
        if not (run.folder / "exam.jsonl").exists():
            examine(run)
        runs.append(run)
    return runs


def seconds_per_step(config: RunConfig, device: str = "auto") -> float:
    """Estimate the seconds of one update by doing one without updating: forward and backward, after one to warm up."""
    place = training.choose_device(device)
    model = build_model(config).to(place)
    batch = config.task.sample(config.train.batch_size, config.train.seed, 0).to(place)
    seconds = 0.0
    for _ in range(2):
        began = time.perf_counter()
        for inputs, targets in zip(
            batch.inputs.chunk(config.train.accumulate), batch.targets.chunk(config.train.accumulate), strict=True
        ):
            logits, _ = model(inputs)
            torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), targets.flatten(), ignore_index=tasks.IGNORE
            ).backward()
        # Reading a number waits for the device.
        sum(float(p.grad.sum()) for p in model.parameters() if p.grad is not None)
        seconds = time.perf_counter() - began
    return seconds
