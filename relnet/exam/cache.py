"""Results that are known already: a file of rows, each under a key made of all that decides it.

The key is a hash of the model's content (its class, configuration and every weight), the task, the length, seed, mode and number of
items, and relnet's version. Two models never share one, so no model gets another one's results; an exam that was interrupted goes
on where it was.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

import relnet
from relnet.exam.lines import appending


def model_content(model: nn.Module) -> str:
    """A hash of a model: its classes and settings, and every parameter and buffer bit by bit."""
    found = hashlib.sha256(f"{type(model).__qualname__}\n{getattr(model, 'config', None)!r}\n{model!r}".encode())
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, tensor in sorted(tensors.items()):
        found.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        # As bytes, since NumPy has no bfloat16.
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


class ResultCache:
    """Rows on disk by key; one line is written a row, and a line that a kill cut short is as if it were not there.

    path: the file, made when the first row is put. ValueError where it cannot be read.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._rows: dict[str, dict[str, Any]] = {}
        if self.path.exists():
            for line in self.path.read_bytes().splitlines():
                try:
                    entry = json.loads(line)
                    self._rows[entry["key"]] = entry["row"]
                except (ValueError, KeyError, TypeError):
                    continue

    @staticmethod
    def key(content: str, **question: Any) -> str:
        """The key of a question (task, length, ...) to the model of this content."""
        told = json.dumps([relnet.__version__, content, sorted(question.items())])
        return hashlib.sha256(told.encode()).hexdigest()

    def get(self, key: str) -> dict[str, Any] | None:
        """The row under a key, None where there is none."""
        return self._rows.get(key)

    def put(self, key: str, row: dict[str, Any]) -> None:
        """Keep a row under a key."""
        self._rows[key] = row
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with appending(self.path) as file:
            file.write(json.dumps({"key": key, "row": row}).encode() + b"\n")
