"""Weights and checkpoints as safetensors files that are whole or not there: written beside, synced, renamed.

A checkpoint is one file, checkpoints/step-00000050.safetensors: tensors "model.NAME", "optimiser.NAME.KEY",
"rng.KIND", and in the header the format and its version, `facts` (JSON) and a SHA-256 of all of it, so that a file
that was cut short or has rotted is noticed and the one before it is used. Pickle files are refused: loading one runs
whatever code it holds.
"""

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from relnet.train.config import check_settings
from relnet.train.folder import write_atomically
from relnet.train.log import read_log

FORMAT = "relnet-checkpoint"
VERSION = "1"
WEIGHTS_VERSION = "1"
PICKLE_SUFFIXES = (".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt")
_CHECKPOINT = re.compile(r"step-(\d{8,})\.safetensors")

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """All that a run needs to go on: tensors by their full names, and facts that JSON can hold ("step" among them)."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Tensors whose names start with `prefix` and a dot, by the rest of their names."""
        start = len(prefix) + 1
        return {name[start:]: tensor for name, tensor in self.tensors.items() if name.startswith(prefix + ".")}


def save_checkpoint(folder: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write `checkpoint` into `folder`, then remove our own older ones beyond the newest `keep`, and return its path.

    OSError as in `write_atomically`; the checkpoints already there are then left as they are.
    """
    step = checkpoint.facts["step"]
    path = folder / f"step-{step:08d}.safetensors"
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in checkpoint.tensors.items()}
    facts = json.dumps(checkpoint.facts, sort_keys=True)
    metadata = {"format": FORMAT, "version": VERSION, "facts": facts, "digest": _digest(tensors, facts)}
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(path, _file(tensors, metadata))
    # Only those up to this step are counted: a later one that could not be read must not push good ones out.
    for old in [other for number, other in _checkpoints(folder) if number <= step][:-keep]:
        old.unlink(missing_ok=True)
    return path


def load_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; ValueError if it is a pickle, cut short, damaged, not a checkpoint or of another version."""
    metadata, tensors = _read(path)
    if metadata.get("format") != FORMAT:
        raise ValueError(f"{path} is not a training checkpoint: resume from a file that train wrote")
    if metadata.get("version") != VERSION:
        raise ValueError(
            f"{path} is a checkpoint of format version {metadata.get('version')}, this relnet reads version {VERSION}: "
            "resume it with the relnet that wrote it"
        )
    if metadata.get("digest") != _digest(tensors, metadata.get("facts", "")):
        raise ValueError(f"{path} is damaged: its content is not what was written")
    return Checkpoint(tensors, json.loads(metadata["facts"]))


def load_newest(folder: Path, model: nn.Module) -> Checkpoint | None:
    """Newest checkpoint in `folder` that is whole and fits `model`, None where there is none at all.

    Each newer one that cannot be used is named in a log message. ValueError if none can be used, or if there are only
    pickle files.
    """
    found = _checkpoints(folder)
    reasons = []
    for _, path in reversed(found):
        try:
            checkpoint = load_checkpoint(path)
            _check_fit(path, _weights(model), checkpoint.part("model"), same_dtype=True)
        except (ValueError, OSError) as error:
            logger.warning("checkpoint not used: %s", error)
            reasons.append(str(error))
        else:
            return checkpoint
    pickles = [path for path in _files(folder) if path.suffix in PICKLE_SUFFIXES]
    if not found and pickles:
        raise _pickle_refused(pickles[0])
    if found:
        raise ValueError(
            f"no usable checkpoint in {folder}: {'; '.join(reasons)}. Put a good one back, or start again in another folder"
        )
    return None


def to_resume(
    folder: Path, model: nn.Module, settings: Mapping[str, Any], surroundings: Mapping[str, Any]
) -> Checkpoint | None:
    """Checkpoint from which the run in `folder` goes on, None where it has done nothing yet.

    ValueError where there is none for the updates in the log, none that can be used, or one of other `settings`. What
    is now another of the `surroundings` is told in a log message.
    """
    checkpoint = load_newest(folder / "checkpoints", model)
    if checkpoint is None:
        # A run's first checkpoint is saved before its first line.
        if num_lines := len(read_log(folder / "log.jsonl")):
            raise ValueError(
                f"{folder} has {num_lines} updates in its log, but no checkpoint to go on from: put checkpoints/ back, "
                "or use another folder"
            )
        return None
    check_settings(folder, checkpoint.facts["settings"], settings)
    for name, now in surroundings.items():
        before = checkpoint.facts["surroundings"][name]
        if before != now:
            logger.warning(
                "%s was %s and is now %s: the weights may differ in their last bits from an uninterrupted run's",
                name,
                before,
                now,
            )
    return checkpoint


def save_weights(model: nn.Module, path: str | Path) -> None:
    """Write the weights of `model` as safetensors, atomically; a parameter used in several places is written once.

    OSError as in `write_atomically`.

    >>> import tempfile
    >>> model, other = nn.Linear(3, 2), nn.Linear(3, 2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_weights(model, Path(folder) / "model.safetensors")
    ...     load_weights(other, Path(folder) / "model.safetensors")
    >>> torch.equal(other.weight, model.weight)
    True
    """
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in _weights(model).items()}
    write_atomically(Path(path), _file(tensors, {"format": "pt", "relnet_weights": WEIGHTS_VERSION}))


def load_weights(model: nn.Module, path: str | Path) -> None:
    """Read into `model` what `save_weights` wrote.

    ValueError names tensors that are missing, unexpected or of another shape, and refuses pickles, damaged files and
    other format versions; the model is then unchanged.
    """
    path = Path(path)
    metadata, tensors = _read(path)
    version = metadata.get("relnet_weights", WEIGHTS_VERSION)
    if version != WEIGHTS_VERSION:
        raise ValueError(f"{path} holds weights of format version {version}, this relnet reads {WEIGHTS_VERSION}")
    if metadata.get("format") == FORMAT:
        raise ValueError(f"{path} is a training checkpoint, not weights: resume its run, or give its model.safetensors")
    _check_fit(path, _weights(model), tensors, same_dtype=False)
    copy_weights(model, tensors)


def copy_weights(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Copy `tensors`, which fit, into the parameters and buffers of `model`."""
    with torch.no_grad():
        for name, tensor in _weights(model).items():
            tensor.copy_(tensors[name])


def checkpoint_tensors(model: nn.Module, **parts: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of a checkpoint under their full names: those of `model`, then each part under its own prefix."""
    every = {"model": _weights(model), **parts}
    return {f"{prefix}.{name}": tensor for prefix, part in every.items() for name, tensor in part.items()}


def _weights(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name, a tied one under its first name only."""
    first_name: dict[int, str] = {}
    state = model.state_dict(keep_vars=True)
    for name, tensor in state.items():
        first_name.setdefault(id(tensor), name)
    return {name: state[name] for name in first_name.values()}


def _check_fit(path: Path, expected: Mapping[str, Tensor], found: Mapping[str, Tensor], same_dtype: bool) -> None:
    faults = [f"missing {name}" for name in expected if name not in found]
    faults += [f"unexpected {name}" for name in found if name not in expected]
    for name, tensor in expected.items():
        other = found.get(name, tensor)
        if other.shape != tensor.shape:
            faults.append(f"{name} has shape {tuple(other.shape)}, the model's is {tuple(tensor.shape)}")
        elif same_dtype and other.dtype != tensor.dtype:
            faults.append(f"{name} is {other.dtype}, the model's is {tensor.dtype}")
    if faults:
        more = f" and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise ValueError(
            f"{path} does not fit this model: {', '.join(faults[:5])}{more}. Build the model with the settings of its run"
        )


def _file(tensors: dict[str, Tensor], metadata: dict[str, str]) -> bytes:
    """A safetensors file that is the same, byte for byte, wherever the tensors are: the library writes metadata in any order."""
    data = save(tensors, metadata)
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    header["__metadata__"] = dict(sorted(metadata.items()))
    written = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return b"".join((data[:8], written.ljust(end - 8), memoryview(data)[end:]))


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    try:
        with open(path, "rb") as file:
            start = file.read(9)
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist") from None
    # Byte 8 of a safetensors file is the brace that opens its header; zip archives and pickles have other bytes there.
    is_pickle = start[:2] in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05") and start[8:] != b"{"
    if path.suffix in PICKLE_SUFFIXES or is_pickle:
        raise _pickle_refused(path)
    try:
        with safe_open(path, "pt") as file:
            return file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"{path} is cut short or not a safetensors file ({error})") from error


def _pickle_refused(path: Path) -> ValueError:
    return ValueError(
        f"{path} is a pickle file, refused because loading one can run any code: convert it to safetensors where you "
        "trust it"
    )


def _digest(tensors: Mapping[str, Tensor], facts: str) -> str:
    digest = hashlib.sha256(facts.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _files(folder: Path) -> Iterable[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Our own checkpoints in `folder`, oldest first."""
    matches = [(_CHECKPOINT.fullmatch(path.name), path) for path in _files(folder)]
    return sorted((int(match[1]), path) for match, path in matches if match)
