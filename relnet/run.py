"""Runs: the one place where tasks, models, training, exam and report meet.

A run is a folder: config.json (what was asked), log.jsonl (one line an update), checkpoints/ (the newest), model.safetensors, result.json,
exam.jsonl (one line a result). It is new or it is resumed, never reused in silence, never deleted.

Several processes train together where `accelerate launch --multi_gpu --num_processes 2 -m relnet train copying --out FOLDER` (or a
script) starts them; the first of them alone writes and examines.
"""

import contextlib
import dataclasses
import json
import os
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import cattrs
import torch
from cattrs.strategies import configure_tagged_union

from relnet import exam, nn, report, tasks
from relnet import train as training
from relnet.train import ClassValidation, CurvaturePenalty, StepRecord, TrainConfig, TrainResult, Validation

CONFIG_FORMAT = 1
# Where run folders go unless a folder is named: set it to a place outside of a work tree.
RUNS_VARIABLE = "RELNET_RUNS"
# Tasks that are measured on data of their own, prepared beforehand, in place of being examined by items.
MEASURED = tasks.Text | tasks.Images
# What a model of a text is asked to go on from, as in Cui 2024, and how many tokens it says.
PROMPT = "Three years later,"
SAMPLE_TOKENS = 200
# Strings a length that a run is asked in its own exam.
ITEMS = 320


# What a run's config can hold, and what is trained.
AnyModelConfig = nn.ModelConfig | nn.ImageModelConfig
AnyModel = nn.SequenceModel | nn.ImageModel


@dataclass(frozen=True)
class RunConfig:
    """All that decides a run's numbers: a name for tables, task, model's shape, training settings (seed included), penalty (or none)."""

    name: str
    task: tasks.AnyTask
    model: AnyModelConfig
    train: TrainConfig
    penalty: CurvaturePenalty | None = None


@dataclass(frozen=True)
class Run:
    """A finished run: where it lies, what was asked, how training went, the trained model in evaluation mode.

    measured: of a run on a text or on images that has just been trained, its last validation.
    """

    folder: Path
    config: RunConfig
    result: TrainResult
    model: AnyModel
    measured: exam.TextRow | exam.ImageRow | None = None


def _converter() -> cattrs.Converter:
    converter = nn.converter()
    configure_tagged_union(tasks.AnyTask, converter, tag_name="_type")

    def structure(value: Any, _: Any) -> Any:
        return converter.structure(value, nn.ImageModelConfig if "num_classes" in value else nn.ModelConfig)

    converter.register_structure_hook(AnyModelConfig, structure)
    return converter


def config_to_json(config: RunConfig) -> str:
    """Return the config as JSON, each task and mixer with its type."""
    for mixer in config.model.mixers:
        if not isinstance(mixer, nn.CausalMixerConfig | nn.BidirectionalMixerConfig):
            raise ValueError(
                f"{type(mixer).__name__} is no mixer that a run folder can hold; add it to CausalMixerConfig in relnet/nn/model.py, "
                "or train the model by relnet.train.train"
            )
    content = _converter().unstructure(config)
    return json.dumps({"format": CONFIG_FORMAT, **content}, indent=2) + "\n"


def config_from_json(text: str, origin: str = "config") -> RunConfig:
    """Read a config back to the same types; ValueError naming what does not fit."""
    try:
        content = json.loads(text)
        if "model_type" in content:
            raise ValueError(f"{origin} is a Hugging Face folder's; give the folder that relnet train made")
        found = content.pop("format")
        if found != CONFIG_FORMAT:
            raise ValueError(f"{origin} has format {found}; this version of relnet reads {CONFIG_FORMAT}")
        kind, known = content["task"]["_type"], [task.__name__ for task in get_args(tasks.AnyTask)]
        if kind not in known:
            raise ValueError(f"{origin} has task {kind!r}; known ones are {', '.join(known)}")
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


class RunInterruptedError(KeyboardInterrupt):
    """Ctrl-C while a run has this folder."""

    def __init__(self, folder: Path, *words: object) -> None:
        super().__init__(*words)
        self.folder = folder


@contextlib.contextmanager
def run_folder(folder: str | Path | None, name: str) -> Generator[Path]:
    """Give the folder of a run: the one that is named, or for None a new one under `runs_root()`, of this name and the time.

    A new one is made at once, so that no other run gets it, and is gone at the end if nothing was put into it. Ctrl-C is raised as
    RunInterruptedError. ValueError for None with several processes, which would not agree on one.
    """
    if folder is None and training.num_processes() > 1:
        raise ValueError("several processes train together: name the run folder, the same for all (--out FOLDER)")
    path = _make_new(runs_root() / f"{name}-{time.strftime('%Y%m%d-%H%M%S')}") if folder is None else Path(folder)
    try:
        yield path
    except KeyboardInterrupt as error:
        raise RunInterruptedError(path, *error.args) from None
    finally:
        if folder is None:
            with contextlib.suppress(OSError):
                path.rmdir()


def _make_new(stem: Path) -> Path:
    """Make the folder, with a number behind its name where that is taken."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    path, number = stem, 1
    while True:
        try:
            path.mkdir()
            return path
        except FileExistsError:
            number += 1
            path = stem.with_name(f"{stem.name}-{number}")


def build_model(config: RunConfig) -> AnyModel:
    """Return the untrained model; the same config gives the same weights, and torch's generators stay as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.train.seed)
        shape = config.model
        return nn.ImageModel(shape) if isinstance(shape, nn.ImageModelConfig) else nn.SequenceModel(shape)


def read_config(folder: str | Path) -> RunConfig:
    """Return the config of a run folder; ValueError if it has none."""
    path = Path(folder) / "config.json"
    if not path.is_file():
        raise ValueError(f"{folder} is no run folder: it has no config.json; give a folder that relnet train made")
    return config_from_json(path.read_text(), str(path))


def _check_config(config: RunConfig, folder: Path, resume: bool) -> None:
    """Raise ValueError where the folder holds the config of another run, or a run to resume without its config."""
    if not (folder / "config.json").exists():
        log = folder / "log.jsonl"
        if resume and ((folder / "result.json").exists() or (log.exists() and log.stat().st_size)):
            raise ValueError(f"{folder} holds a run, but not its config.json: put that back, or use another folder")
        return
    found = read_config(folder)
    saving = {name: getattr(config.train, name) for name in training.SAVING}
    found = dataclasses.replace(found, train=dataclasses.replace(found.train, **saving))
    if different := list(_differences(json.loads(config_to_json(found)), json.loads(config_to_json(config)))):
        raise ValueError(
            f"{folder} holds another config ({', '.join(different)}); give its settings to go on, or another folder"
        )


def _differences(there: Any, here: Any, name: str = "") -> Generator[str]:
    """Yield each setting that two configs, as JSON, do not share, with both values."""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in {**there, **here}:
            yield from _differences(there.get(key), here.get(key), f"{name}.{key}" if name else key)
    elif there != here and name == "task.stores":
        yield f"{name}: the data, or how they are prepared, are no longer the same"
    elif there != here:
        yield f"{name} {there!r} there, {here!r} here"


def train(
    config: RunConfig,
    folder: str | Path | None = None,
    *,
    device: str = "auto",
    resume: bool = False,
    on_start: Callable[[RunConfig, AnyModel], None] | None = None,
    on_step: Callable[[StepRecord], None] | None = None,
    trackers: Sequence[Any] = (),
) -> Run:
    """Train a model and return the run.

    folder: new, or None for one under `runs_root()`; with resume=True one that the same config left unfinished or finished
    (train.checkpoint_every and train.keep may be others).
    device: "auto", "cpu", "cuda", "mps" or one GPU such as "cuda:1". trackers: accelerate's.
    on_start: called with the config and the untrained model once nothing more is refused, unless the run is finished; on_step: called
    after each update; both on the main process.
    Raises ValueError for a folder that holds a run (without resume) or another config, and what `relnet.train.train` raises; a
    start that is refused writes nothing but prepared text.

    >>> import tempfile
    >>> from relnet import recipes
    >>> config = recipes.copying(length=3, width=16, depth=1, max_steps=2)
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     run = train(config, f"{parent}/run", device="cpu")
    >>> run.result.steps
    2
    """
    (config,) = prepared([config])
    with run_folder(folder, config.name) as place:
        _check_config(config, place, resume)
        settings = config_to_json(config)
        model = build_model(config)
        if config.penalty:
            few = config.task.sample(2, config.train.seed, 0)
            config.penalty.check(model, few.inputs, few.targets)
        validation = _Validation(config, model) if isinstance(config.task, MEASURED) else None

        def begin() -> None:
            if not (place / "config.json").exists():
                training.write_atomically(place / "config.json", settings.encode())
            if on_start:
                on_start(config, model)

        result = training.train(
            model,
            config.task,
            config.train,
            place,
            device=device,
            on_start=begin,
            on_step=on_step,
            validate=validation,
            penalty=config.penalty,
            trackers=trackers,
            resume=resume,
        )
        return Run(place, config, result, model.eval(), validation.row if validation else None)


def prepared(
    configs: Sequence[RunConfig], on_progress: Callable[[str, int, int | None], None] | None = None
) -> list[RunConfig]:
    """Return the configs, each text or data set that they train on prepared and named by its content (`tasks.Text.prepared`).

    on_progress: called with what is done, bytes done and all bytes (None where not known). Training prepares by itself, silently.
    """
    made: dict[tasks.AnyTask, tasks.AnyTask] = {
        task: task.prepared(on_progress) for task in {c.task for c in configs} if isinstance(task, MEASURED)
    }
    return [dataclasses.replace(config, task=made.get(config.task, config.task)) for config in configs]


class _Validation:
    """What training measures of a model now and then: all of the validation text, or all images held out; `row` is the latest result."""

    def __init__(self, config: RunConfig, model: AnyModel) -> None:
        self._config, self._model = config, model
        self.row: exam.TextRow | exam.ImageRow | None = None

    def __call__(self) -> Validation | ClassValidation:
        task = self._config.task
        if isinstance(task, tasks.Images):
            self.row = exam.evaluate_images(self._model, task, name=self._config.name)
            return ClassValidation(self.row.loss, self.row.accuracy)
        assert isinstance(task, tasks.Text)
        # Not before: training has moved the model to its device.
        self.row = _measured(exam.ModelSubject(self._model, name=self._config.name), task)
        return Validation(self.row.bits_per_byte, self.row.perplexity)


def _measured(subject: exam.Reader, task: tasks.Text) -> exam.TextRow:
    return exam.evaluate_text(subject, task.validating, context=task.context, task=task.name)


def load(folder: str | Path, device: str = "cpu") -> tuple[RunConfig, nn.SequenceModel]:
    """Return a finished run's config and trained model, in evaluation mode.

    ValueError if it is not finished, and for a run on images (`load_images`).
    """
    config, model = load_any(folder, device)
    if not isinstance(model, nn.SequenceModel):
        raise ValueError(f"{folder} is a run on images; relnet predict and relnet inspect show what it does")
    return config, model


def load_images(folder: str | Path, device: str = "cpu") -> tuple[RunConfig, tasks.Images, nn.ImageModel]:
    """Return a finished run on images: config, task, model; ValueError for one that is not finished or on another task."""
    config, model = load_any(folder, device)
    if not isinstance(model, nn.ImageModel) or not isinstance(config.task, tasks.Images):
        raise ValueError(f"{folder} is a run on {config.task.name}, not on images")
    return config, config.task, model


def load_any(folder: str | Path, device: str = "cpu") -> tuple[RunConfig, AnyModel]:
    """Return a finished run's config and trained model of either kind, in evaluation mode; ValueError if it is not finished."""
    config = read_config(folder)
    weights = Path(folder) / "model.safetensors"
    if not weights.is_file():
        raise ValueError(f"{folder} has no model.safetensors yet: not finished; relnet train ... --resume goes on")
    model = build_model(config)
    training.load_weights(model, weights)
    return config, model.eval().to(training.choose_device(device))


def examine(
    run: Run | str | Path,
    *,
    lengths: Sequence[int] | None = None,
    seeds: Sequence[int] = (0,),
    num: int = ITEMS,
    batch_size: int = 64,
    device: str | None = None,
    data: str | Path | None = None,
    on_row: Callable[[exam.Row], None] | None = None,
) -> list[exam.Row]:
    """Give a run (or a finished run's folder) the exam of its own task; rows are appended to its exam.jsonl and returned.

    lengths: of the strings, None: the trained one; seeds, num: which items and how many a length and seed.
    device: where to compute, as for `train`; None: where the run's model is, the CPU for a folder.
    data: a text file of strings, one a line, to ask in place of random ones; these rows are returned, but not kept: they are another exam.
    ValueError for a run on a text, which `examine_text` examines, and for one on images.
    """
    folder, task, subject = _subject(run, device)
    if isinstance(task, MEASURED):
        raise ValueError(
            f"{folder} is a run on {task.name}, which has no items to ask; see relnet report for its figures"
        )
    if data is not None:
        # What it does not do itself it hands to its task, which no type checker sees.
        own: Any = exam.OwnItems(task, data)
        rows = []
        for length, number in own.lengths.items():
            rows += exam.evaluate(subject, own, lengths=(length,), num=number, batch_size=batch_size, on_row=on_row)
        return rows
    return exam.evaluate(
        subject,
        task,
        lengths=(task.length,) if lengths is None else lengths,
        seeds=seeds,
        num=num,
        batch_size=batch_size,
        path=folder / "exam.jsonl",
        on_row=on_row,
    )


def examine_text(
    run: Run | str | Path, *, device: str | None = None, prompt: str = PROMPT, measured: exam.TextRow | None = None
) -> exam.TextRow:
    """Measure a run (or a finished run's folder) on all of its validation text; the row is appended to its exam.jsonl and returned.

    device: as for `examine`. prompt: what the model goes on from (from its end, where it is longer than the context), by up to 200 tokens
    drawn at temperature 0.8 with seed 0. measured: of this very model, where it is known. ValueError for a run on another task.
    """
    folder, task, subject = _subject(run, device)
    if not isinstance(task, tasks.Text):
        raise ValueError(f"{folder} is a run on {task.name}, not on a text")
    asked = task.encode(prompt)[-task.context :]
    sample = exam.sample_text(subject, asked, SAMPLE_TOKENS)
    row = dataclasses.replace(
        measured or _measured(subject, task),
        state_bytes=exam.state_bytes(subject, task.sample(1, seed=0, index=0).inputs),
        prompt=prompt,
        sample=task.decode(sample),
    )
    exam.append_row(row, folder / "exam.jsonl")
    return row


def _subject(run: Run | str | Path, device: str | None) -> tuple[Path, tasks.AnyTask, exam.ModelSubject]:
    """A run's folder, its task and its model, on the device; a folder's model is loaded."""
    if isinstance(run, Run):
        folder, config, model = run.folder, run.config, run.model
        if device is not None:
            model.to(training.choose_device(device))
    else:
        folder = Path(run)
        config, model = load_any(folder, device or "cpu")
    if isinstance(model, nn.ImageModel):
        raise ValueError(f"{folder} is a run on images, which has no items to ask; see relnet report for its figures")
    return folder, config.task, exam.ModelSubject(model, name=config.name)


def unasked(found: report.Run, task: tasks.AnyTask, prompt: str = PROMPT, lengths: Sequence[int] = ()) -> list[int]:
    """Return the lengths (none: the trained one) whose exam a run still lacks; 0 for that of a text or of images, which has no length.

    An exam of another number of strings is not it: what a run was asked beside its own exam changes no result of a sweep.
    """
    if isinstance(task, tasks.Images):
        return [] if found.images else [0]
    if isinstance(task, tasks.Text):
        return [] if any(row["prompt"] == prompt for row in found.text) else [0]
    rows = [row for row in found.exam if (row["task"], row["seed"]) == (task.name, 0)]
    # A note says why there are no answers.
    done = {(row["length"], row["mode"]) for row in rows if row["items"] == ITEMS or row.get("note")}
    return [length for length in lengths or (task.length,) if not done >= {(length, mode) for mode in exam.MODES}]


def examine_unless_done(run: Run, prompt: str = PROMPT, lengths: Sequence[int] = ()) -> None:
    """Give a run the exam of these lengths (none: the trained one), of its text or of its images, as far as its exam.jsonl lacks it.

    A length whose exam was interrupted is asked again. With several processes the main one examines.
    """
    if not training.is_main_process():
        return
    (found,) = report.read_runs([run.folder])
    task = run.config.task
    missing = unasked(found, task, prompt, lengths)
    if not missing:
        return
    if isinstance(task, tasks.Images):
        measured = run.measured or exam.evaluate_images(run.model, task, name=run.config.name)
        assert isinstance(measured, exam.ImageRow)
        exam.append_row(measured, run.folder / "exam.jsonl")
    elif isinstance(task, tasks.Text):
        assert not isinstance(run.measured, exam.ImageRow)
        examine_text(run, prompt=prompt, measured=run.measured)
    else:
        examine(run, lengths=missing)


def compare(
    configs: Sequence[RunConfig],
    folder: str | Path,
    *,
    device: str = "auto",
    resume: bool = False,
    prompt: str = PROMPT,
    on_start: Callable[[RunConfig, AnyModel], None] | None = None,
    on_step: Callable[[StepRecord], None] | None = None,
) -> list[Run]:
    """Train and examine one run after another, each in folder/NAME; with resume=True what is finished is not done again.

    prompt: what models of a text go on from. on_start, on_step: as for `train`. ValueError for names that stand twice, and as `train`.
    """
    names = [config.name for config in configs]
    if len(set(names)) != len(names):
        raise ValueError(f"names {', '.join(names)}: each run needs a name of its own")
    runs = []
    for config in configs:
        place = Path(folder) / config.name
        run = train(config, place, device=device, resume=resume, on_start=on_start, on_step=on_step)
        examine_unless_done(run, prompt)
        runs.append(run)
    return runs
