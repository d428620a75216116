"""Results that are known already: a file of rows, each under a key made of all that decides it.

The key is a hash of the model's content (`relnet.exam.content`), the task, the length, seed, mode and number of items, and of the code
that computes them: relnet's own with its kernels, and the versions of PyTorch, transformers, NumPy and Python. So no model gets another
one's results, and an exam that was interrupted goes on where it was.
"""

import functools
import hashlib
import json
import platform
import sys
from pathlib import Path
from typing import Any

import relnet
from relnet.exam.lines import appending
from relnet.ops import cpu_library


@functools.cache
def _code_of_relnet() -> str:
    """A hash of relnet's source and of the kernels that were built of it: one version is many of them in a checkout."""
    folder = Path(relnet.__file__).parent
    files = sorted(path for ending in ("py", "cpp", "h") for path in folder.rglob(f"*.{ending}"))
    if cpu_library.missing() is None:
        files.append(Path(cpu_library.library()._name))
    return hashlib.sha256(b"".join(hashlib.sha256(path.read_bytes()).digest() for path in files)).hexdigest()


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
        versions = [getattr(sys.modules.get(name), "__version__", None) for name in ("torch", "transformers", "numpy")]
        versions.append(platform.python_version())
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
