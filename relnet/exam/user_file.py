"""A function in a file of the user's, `FILE.py:FUNCTION`: found, and whatever it raises told in one line."""

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# The module of a user's file has a name that begins so.
PREFIX = "relnet_user_"
# Modules that were imported from beside a user's file: the next file may stand beside others of the same names.
_beside: set[str] = set()


def find_function(spec: str) -> Callable[..., Any]:
    """Run the file and return its function; ValueError where there is no such file or function, and for what the file raises."""
    file, path, function = split(spec)
    if not path.is_file() or not function:
        raise ValueError(f"{spec}: no such file; write --model FILE.py:FUNCTION")
    # Two files of one name are two modules.
    name = f"{PREFIX}{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None or module_spec.loader is None:
        raise ValueError(f"{file} is no Python file; write --model FILE.py:FUNCTION")
    module = importlib.util.module_from_spec(module_spec)
    # Dataclasses, for one, look their module up.
    sys.modules[name] = module
    for known in _beside:
        sys.modules.pop(known, None)
    _beside.clear()
    with users_code(spec, "the file cannot be run"):
        module_spec.loader.exec_module(module)
    found = getattr(module, function, None)
    if not callable(found):
        raise ValueError(f"{file} has no function {function!r}")
    return found


def split(spec: str) -> tuple[str, Path, str]:
    """The file as it was written, its whole path, and the function of `FILE.py:FUNCTION`."""
    file, _, function = spec.rpartition(":")
    return file, Path(file).resolve(), function


@contextmanager
def users_code(spec: str, failure: str) -> Generator[None]:
    """Run code of the user's, which may import what stands beside its file; ValueError in one line for whatever it raises."""
    _, path, _ = split(spec)
    before = set(sys.modules)
    sys.path.insert(0, str(path.parent))
    try:
        yield
    # A file may also exit, as a script without a guard does.
    except (Exception, SystemExit) as error:
        raise ValueError(f"{spec}: {failure}: {_in_one_line(error, path)}") from error
    finally:
        with suppress(ValueError):
            sys.path.remove(str(path.parent))
        new = {name: module for name, module in sys.modules.items() if name.partition(".")[0] not in before}
        tops = {name for name, module in new.items() if _stands_in(path.parent, name, module)}
        _beside.update(name for name in new if name.partition(".")[0] in tops)


def _stands_in(folder: Path, name: str, module: Any) -> bool:
    file = getattr(module, "__file__", None)
    places = [file] if file else getattr(module, "__path__", [])
    there = (folder / f"{name}.py", folder / name / "__init__.py", folder / name)
    return any(Path(place).resolve() in there for place in places)


def _in_one_line(error: BaseException, path: Path) -> str:
    text = next(iter(str(error).strip().splitlines()), "")
    numbers = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    if isinstance(error, ValueError) and not numbers:
        return text
    told = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{told} (line {numbers[-1]})" if numbers else told
