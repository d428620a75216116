"""What a run writes about itself: log.jsonl, one line an update, and result.json.

A line is handed to the operating system in one write, so killing the process loses none that was written; it is
synced to the disk before each checkpoint. After a resumption the lines past the checkpoint are gone, and each update
stands once.
"""

import dataclasses
import json
import logging
import os
import platform
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from relnet import __version__
from relnet.train.config import TrainResult
from relnet.train.folder import not_written, write_atomically

RESULT_FORMAT = 1

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Validation:
    """What validation measures, as `StepRecord` has it."""

    bits_per_byte: float
    perplexity: float


@dataclass(frozen=True)
class ClassValidation:
    """What it measures where classes are told apart."""

    test_loss: float
    test_accuracy: float


@dataclass(frozen=True)
class StepRecord:
    """One line of log.jsonl: one update."""

    step: int
    """Number of the update, from 1."""
    loss: float
    """Mean cross-entropy in nats over the targets of the batch, before the update."""
    accuracy: float
    """Mean over the strings of the batch, before the update; of a text the share of next tokens that are right."""
    window_accuracy: float
    """Mean over the last 320 strings, each before its own update; over fewer at the start."""
    lr: float
    grad_norm: float
    """Global norm of the gradient before it is clipped."""
    seconds: float
    """Wall time of the update, data included."""
    samples: int
    """Strings (of a text: windows) trained on so far, this batch included."""
    penalty: float | None = None
    """What a penalty added to the loss, its mean over the strings, before the update; None, and left out, without one."""
    bits_per_byte: float | None = None
    """Of the validation text after the update; None, and left out of the line, where it was not measured."""
    perplexity: float | None = None
    """Likewise: a token's, exp of the mean cross-entropy in nats."""
    test_loss: float | None = None
    """Likewise, of images held out: mean cross-entropy in nats."""
    test_accuracy: float | None = None
    """Likewise: the share whose class is right."""

    def values(self) -> dict[str, float]:
        """The figures by name, without those that were not measured."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value is not None}


class StepLog:
    """log.jsonl, opened to go on after update number `steps`: later lines are dropped, earlier ones kept as they are."""

    def __init__(self, path: Path, steps: int):
        self._path = path
        lines = [line for number, line in _lines(path) if number <= steps]
        if len(lines) != steps:
            logger.warning("%s holds %d of the %d updates before the checkpoint", path, len(lines), steps)
        write_atomically(path, b"".join(lines))
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115

    def write(self, record: StepRecord) -> None:
        """Append one line; OSError names the file where there is no room for it."""
        line = json.dumps(record.values()).encode() + b"\n"
        try:
            complete = self._file.write(line) == len(line)
        except OSError as error:
            raise not_written(self._path, error) from error
        if not complete:
            raise OSError(f"no room for a whole line in {self._path}; make room, then resume")

    def sync(self) -> None:
        """Return once the lines are on the disk."""
        os.fsync(self._file.fileno())

    def __enter__(self) -> "StepLog":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def read_log(path: Path) -> list[dict[str, Any]]:
    """Lines of a log; one that a kill cut short at the end is left out. ValueError for a broken one elsewhere."""
    return [json.loads(line) for _, line in _lines(path)]


def _lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Update number and text of each whole line."""
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    for place, line in enumerate(lines, start=1):
        try:
            content = json.loads(line)
            number = content["step"]
            if not isinstance(number, int) or not isinstance(content["seconds"], int | float):
                raise TypeError
        except (ValueError, KeyError, TypeError):
            if place == len(lines):
                return
            raise ValueError(f"{path}, line {place} is not a line that train wrote: mend or move the file") from None
        if line.endswith(b"\n"):
            yield number, line


def write_result(folder: Path, result: TrainResult) -> None:
    """Write result.json atomically: from then on the run counts as finished."""
    write_atomically(folder / "result.json", json.dumps(dataclasses.asdict(result), indent=2).encode() + b"\n")


def read_result(folder: Path) -> TrainResult | None:
    """The result of a finished run, None where it is not finished. ValueError for a file that train did not write."""
    path = folder / "result.json"
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_bytes())
        if content["format"] != RESULT_FORMAT:
            raise ValueError(f"format {content['format']}, this relnet reads {RESULT_FORMAT}")
        if not isinstance(content["settings"], dict):
            raise TypeError("settings are missing")
        return TrainResult(**content)
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a result that this relnet can read ({error}): use another folder") from error


def machine(device: torch.device) -> str:
    """Operating system, processor, number of CPUs and GPU, for people to read."""
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        name = models[0] if models else name
    parts = [f"{platform.system()} {platform.machine()}", name, f"{os.cpu_count()} CPUs"]
    if device.type == "cuda":
        parts.append(torch.cuda.get_device_name(device))
    return ", ".join(parts)


def versions() -> dict[str, str]:
    """Versions of relnet and of what its numbers depend on."""
    return {
        "relnet": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": version("numpy"),
        "accelerate": version("accelerate"),
    }


def commit() -> str | None:
    """Commit of the git checkout that relnet runs from, "-dirty" appended where files differ from it, else None."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip() or None
