"""Results that are known already: a file of rows, each under a key made of all that decides it.

The key is a hash of the model's content, the task, the length, seed, mode and number of items, and of the code that computes them:
relnet's own and the versions of PyTorch and transformers. A model's content is its configuration, every weight, the plain attributes of its
modules and the source of their classes (`model_content`), so that no model gets another one's results; an exam that was
interrupted goes on where it was.
"""

import functools
import hashlib
import json
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

import relnet
from relnet.exam.lines import appending

# Their code is told by a version, or hashed as a whole.
KNOWN = ("torch", "transformers", "relnet", "builtins")
INSTALLED = {Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")}


def model_content(model: nn.Module) -> str:
    """A hash of a model: its classes and their code, its settings and plain attributes, every parameter and buffer bit by bit."""
    found = hashlib.sha256(f"{type(model).__qualname__}\n{getattr(model, 'config', None)!r}\n{model!r}".encode())
    found.update(own_code(model).encode())
    for name, part in model.named_modules():
        for key, value in sorted(vars(part).items()):
            if not key.startswith("_") and key != "training":
                found.update(f"\n{name}.{key} {_told(value)}".encode())
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name, tensor in sorted(tensors.items()):
        found.update(f"\n{name} ".encode() + _bits(tensor))
    return found.hexdigest()


def own_code(model: nn.Module) -> str:
    """A hash of the code of a model's classes, but for PyTorch's, transformers' and relnet's; "" where there is no other.

    The files of the classes count whole, and with each of them all that is loaded from its package or, of a single file, from its folder.
    """
    classes = {kind for part in model.modules() for kind in type(part).__mro__}
    others = sorted(
        {kind for kind in classes if kind.__module__.partition(".")[0] not in KNOWN}, key=lambda k: k.__qualname__
    )
    if not others:
        return ""
    found = hashlib.sha256()
    for kind in others:
        files = _files(sys.modules.get(kind.__module__))
        for path in files:
            found.update(path.read_bytes())
        if not files:
            # Typed into a console: what there is to compare is the compiled code.
            for name, value in sorted(vars(kind).items()):
                if isinstance(value, FunctionType):
                    found.update(f"{name} {value.__code__.co_names}".encode() + value.__code__.co_code)
    return found.hexdigest()


def _files(module: ModuleType | None) -> list[Path]:
    file = getattr(module, "__file__", None)
    if module is None or file is None or not Path(file).exists():
        return []
    package = module.__name__.partition(".")[0]
    loaded = {name: one.__file__ for name, one in list(sys.modules.items()) if getattr(one, "__file__", None)}
    if hasattr(sys.modules.get(package), "__path__"):
        near = [path for name, path in loaded.items() if name == package or name.startswith(f"{package}.")]
    else:
        folder = Path(file).parent
        near = [path for path in loaded.values() if Path(path).parent == folder] if folder not in INSTALLED else []
    return sorted({Path(path) for path in (file, *near) if path.endswith(".py") and Path(path).exists()})


def _told(value: Any) -> str:
    """A value in words that do not change from process to process; of an object that has none, its class."""
    if isinstance(value, Tensor):
        return hashlib.sha256(_bits(value)).hexdigest()
    if isinstance(value, Mapping):
        return str(sorted((str(key), _told(one)) for key, one in value.items()))
    if isinstance(value, list | tuple | set | frozenset):
        parts = [_told(one) for one in value]
        return str(parts if isinstance(value, list | tuple) else sorted(parts))
    if value is None or isinstance(value, str | int | float | complex | bool | torch.dtype | torch.device):
        return repr(value)
    return getattr(value, "__qualname__", type(value).__qualname__)


def _bits(tensor: Tensor) -> bytes:
    # As bytes, since NumPy has no bfloat16.
    content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return f"{tensor.dtype} {tuple(tensor.shape)}\n".encode() + content


@functools.cache
def _code_of_relnet() -> str:
    """A hash of relnet's source: one version is many of them in a checkout."""
    found = hashlib.sha256()
    for path in sorted(Path(relnet.__file__).parent.rglob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()


class ResultCache:
    """Rows on disk by key; one line is written a row, and a line that a kill cut short is as if it were not there.

    path: the file, made when the first row is put. OSError where it cannot be read.
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
        versions = [getattr(sys.modules.get(name), "__version__", None) for name in ("torch", "transformers")]
        told = json.dumps([relnet.__version__, _code_of_relnet(), versions, content, sorted(question.items())])
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
