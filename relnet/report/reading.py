"""Run folders as they lie on the disk, and the JSON lines that outlive them: read, never written, and read while a run still goes on.

    config.json   name, task, train.stop_accuracy (absent where the trainer was called by itself)
    log.jsonl     one line an update
    result.json   written when a run ends
    exam.jsonl    one line a length, seed and mode examined, or one for a text

A line that is cut short is left out, a file that is missing counts as empty.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from relnet.report.settings import HIDDEN, differences, telling

FORMAT = 1
EXAM_FIELDS = {"task", "mode", "length", "seed", "items", "letters", "letters_right", "exact", "stopped", "ties"}
TEXT_FIELDS = {
    "bits",
    "bytes",
    "tokens",
    "context",
    "stride",
    "bits_per_byte",
    "perplexity",
    "state_bytes",
    "prompt",
    "sample",
}
# What is measured at every update, and what of images held out.
CURVE = ("loss", "accuracy", "window_accuracy")
TESTED = ("test_loss", "test_accuracy")
IMAGE_FIELDS = {"task", "subject", "images", "right", "test_accuracy", "test_loss"}


@dataclass(frozen=True)
class Run:
    """What a run folder holds.

    name: from config.json, else the folder's.
    config, result: as in the files, empty where they are missing.
    updates: the log, one entry an update.
    exam: exam rows, the latest for each task, mode, length and seed.
    text: rows of a text, the latest for each way to measure and each prompt.
    command: what made the run, where its JSON line says so.
    images: rows of images held out.
    """

    folder: Path
    name: str
    config: dict[str, Any]
    result: dict[str, Any]
    updates: list[dict[str, Any]]
    exam: list[dict[str, Any]]
    text: list[dict[str, Any]]
    command: str = ""
    images: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self, command: str = "") -> str:
        """The run as one line of JSON: command, config, result, exam (counts) or text, and its curve as lists over the updates.

        A run on a text also has `validation`: a pair of step and bits per byte each; one on images a triple of step, loss and accuracy.
        """
        validation = [[update[name] for name in ("step", *self.measured)] for update in self.validated]
        curve = {name: [round(update[name], 6) for update in self.updates] for name in ("step", *CURVE)}
        exam = [{name: value for name, value in row.items() if name != "first_errors"} for row in self.exam]
        content = {
            "format": FORMAT,
            "command": command or self.command,
            "name": self.name,
            "config": self.config,
            "result": self.result,
        }
        if self.learns_text:
            return json.dumps({**content, "text": self.text, "curve": curve, "validation": validation})
        if self.learns_images:
            return json.dumps({**content, "images": self.images, "curve": curve, "validation": validation})
        return json.dumps({**content, "exam": exam, "curve": curve})

    @property
    def learns_text(self) -> bool:
        """Whether it is a run on a text, whose figures are others."""
        return (self.config.get("task") or {}).get("_type") == "Text"

    @property
    def learns_images(self) -> bool:
        """Whether it is a run on images, whose figures are others again."""
        return (self.config.get("task") or {}).get("_type") == "Images"

    @property
    def validated(self) -> list[dict[str, Any]]:
        """The updates after which the validation text, or the images held out, were measured."""
        return [update for update in self.updates if "bits_per_byte" in update or "test_accuracy" in update]

    @property
    def measured(self) -> tuple[str, ...]:
        """What is measured then."""
        return TESTED if self.learns_images else ("bits_per_byte",)

    @property
    def steps(self) -> int:
        """Updates done."""
        last = self.updates[-1]["step"] if self.updates else 0
        return self.result.get("steps", last)

    @property
    def stop_accuracy(self) -> float | None:
        """The accuracy in [0, 1] that "steps to" speaks of, None where the run names none."""
        return (self.config.get("train") or self.result.get("settings") or {}).get("stop_accuracy")

    @property
    def task(self) -> str:
        """The task in words, e.g. "Copying, length 16, layout cui2024"; empty where the run names none."""
        task = dict(self.config.get("task") or {})
        name = task.pop("_type", "")
        # Their names say which data they are; keys of prepared text are for the computer.
        texts = [Path(path).name for path in task.pop("data", [])]
        shown = {
            key: value for key, value in task.items() if value is not None and value is not False and key not in HIDDEN
        }
        return ", ".join([name, *texts, *(f"{key} {value}" for key, value in shown.items())]).strip(", ")


def read_runs(paths: Iterable[str | Path]) -> list[Run]:
    """Read run folders, each once, in the order given, and files of JSON lines that `Run.to_json` made.

    A path is a run folder, a folder that holds run folders at any depth (taken by name), or such a file (*.jsonl). ValueError
    where a path is missing, holds no run, or was written by a newer release, and where there are no paths.
    """
    places: dict[Path, Path] = {}
    for path in map(Path, paths):
        found = run_places(path)
        if not found:
            raise ValueError(f"{path} is not a run folder, nor does it hold any: no config.json or log.jsonl in it")
        for place in found:
            places.setdefault(place.resolve(), place)
    if not places:
        raise ValueError("no run folder given")
    return [run for place in places.values() for run in read_place(place)]


def run_places(path: Path) -> list[Path]:
    """The run folders under a path, by name, or the path itself, where it is a file of JSON lines; ValueError where it is neither."""
    if path.is_file() and path.suffix == ".jsonl":
        return [path]
    if not path.is_dir():
        raise ValueError(f"{path} is not a run folder: {'it is a file' if path.exists() else 'it does not exist'}")
    return sorted(_run_folders(path))


def read_place(place: Path) -> list[Run]:
    """The run of a run folder, or those of a file of JSON lines; ValueError for what is damaged."""
    return _read_kept(place) if place.is_file() else [_read_run(place)]


def labels(runs: Sequence[Run]) -> list[str]:
    """A name for each run that no other has: where names meet, the folder stands behind; for lines of files, which have none, the
    settings in which they differ, where those tell them apart."""
    names = _named_by_settings(runs)
    for behind in (lambda run: run.folder.name, lambda run: str(run.folder)):
        count = Counter(names)
        names = [
            name if count[name] == 1 else f"{run.name} ({behind(run)})" for name, run in zip(names, runs, strict=True)
        ]
    return names


def _named_by_settings(runs: Sequence[Run]) -> list[str]:
    names = [run.name for run in runs]
    for name, many in Counter(names).items():
        places = [place for place, run in enumerate(runs) if run.name == name]
        if many > 1 and all(".jsonl:" in runs[place].folder.name for place in places):
            told = differences([telling(runs[place].config) for place in places])
            if len(set(told)) == many:
                for place, behind in zip(places, told, strict=True):
                    names[place] = f"{name}, {behind}" if behind else name
    return names


def _run_folders(path: Path) -> Iterable[Path]:
    for place, folders, files in os.walk(path):
        if "log.jsonl" in files or ("config.json" in files and not _is_exported(Path(place))):
            folders.clear()
            yield Path(place)


def _is_exported(folder: Path) -> bool:
    """Whether it is a Hugging Face folder, as relnet export writes it: it has a config.json too, and nothing of a run."""
    try:
        return "model_type" in read_object(folder / "config.json")
    except ValueError:
        # Damaged, which is to be told, not passed over.
        return False


def _read_run(folder: Path) -> Run:
    config = read_object(folder / "config.json")
    exam, text, images = {}, {}, {}
    for row in read_lines(folder / "exam.jsonl"):
        check_format(folder / "exam.jsonl", row)
        try:
            if row.keys() >= EXAM_FIELDS:
                exam[row["task"], row["mode"], row["length"], row["seed"]] = row
            elif row.keys() >= TEXT_FIELDS:
                text[row["task"], row["context"], row["stride"], row["prompt"]] = row
            elif row.keys() >= IMAGE_FIELDS:
                images[row["task"]] = row
        except TypeError:
            raise ValueError(
                f"{folder / 'exam.jsonl'} is damaged: what is asked is a list or an object, a name or a number is wanted"
            ) from None
    return Run(
        folder=folder,
        name=str(config.get("name") or folder.resolve().name),
        config=config,
        result=read_object(folder / "result.json"),
        updates=[update for update in read_lines(folder / "log.jsonl") if "step" in update],
        exam=list(exam.values()),
        text=list(text.values()),
        images=list(images.values()),
    )


def _read_kept(path: Path) -> list[Run]:
    """Runs as `Run.to_json` wrote them; their curves become updates again."""
    runs = []
    for number, line in enumerate(read_lines(path), start=1):
        check_format(path, line)
        try:
            runs.append(kept(line, Path(f"{path}:{number}")))
        except (KeyError, TypeError, AttributeError, ValueError):
            raise ValueError(f"{path}, line {number} is no run that relnet report --json wrote") from None
    if not runs:
        raise ValueError(f"{path} holds no run")
    return runs


def kept(line: dict[str, Any], place: Path) -> Run:
    """The run that a JSON line keeps; place: the file with the line's number."""
    measured = {step: values for step, *values in line.get("validation", ())}
    names, columns = zip(*line["curve"].items(), strict=True)
    updates = [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
    for update in updates:
        values = measured.get(update["step"], ())
        update.update(zip(("bits_per_byte",) if len(values) == 1 else TESTED, values, strict=False))
    return Run(
        folder=place,
        name=str(line["name"]),
        config=dict(line["config"]),
        result=dict(line["result"]),
        updates=updates,
        exam=list(line.get("exam", ())),
        text=list(line.get("text", ())),
        images=list(line.get("images", ())),
        command=str(line.get("command", "")),
    )


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file, empty where there is no file; ValueError for anything else in it."""
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ValueError(f"{path} is damaged: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path} is damaged: a JSON object wanted")
    check_format(path, value)
    return value


def check_format(path: Path, value: dict[str, Any]) -> None:
    """Raise ValueError where a line or file of `path` was written in another format."""
    if value.get("format", FORMAT) != FORMAT:
        raise ValueError(f"{path} has format {value['format']}, this release of relnet reads format {FORMAT}")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the JSON objects of a file, one a line; none where it is missing."""
    try:
        return _objects(path.read_bytes())
    except FileNotFoundError:
        return []


def read_tail(path: Path, most: int = 4096) -> list[dict[str, Any]]:
    """Return the JSON objects that lie whole within the last `most` bytes of a file, one a line; none where it is missing."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - most))
            return _objects(file.read())
    except FileNotFoundError:
        return []


def _objects(content: bytes) -> list[dict[str, Any]]:
    values = []
    for line in content.splitlines():
        try:
            values.append(json.loads(line))
        except ValueError:
            # Cut short by a kill or its place, or still being written.
            continue
    return [value for value in values if isinstance(value, dict)]
