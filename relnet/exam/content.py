"""What a model is, as a hash: no two models that may answer differently have the same, and one model has it in every process.

A model is told by the classes of its modules and their code, every parameter and buffer bit by bit, and all other attributes that its
modules have, whatever they begin with. Objects are told by what pickling would keep of them, functions by their code and what it refers
to. Of PyTorch, transformers, NumPy, the standard library and relnet only names are told: their versions are a matter of the cache's key.
"""

import copyreg
import dis
import hashlib
import sys
import sysconfig
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from types import (
    CellType,
    CodeType,
    EllipsisType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
    NoneType,
    NotImplementedType,
)
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from relnet.exam.user_file import PREFIX

# Their code is told by a version, or hashed as a whole.
KNOWN = {"torch", "transformers", "numpy", "relnet", *sys.stdlib_module_names}
INSTALLED = {Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")}

PLAIN = (NoneType, bool, int, float, complex, str, EllipsisType, NotImplementedType)
# What every module has; parameters, buffers and modules in it are told by name, and the hooks that change what it computes.
OF_EVERY_MODULE = set(vars(nn.Module()))
# Of a class: what decides nothing, or what only this process can use.
OF_EVERY_CLASS = {
    "__dict__",
    "__weakref__",
    "__module__",
    "__doc__",
    "__annotations__",
    "__abstractmethods__",
    "__firstlineno__",
    "_abc_impl",
}


def model_content(model: nn.Module) -> str | None:
    """A hash of a model: its classes and their code, every attribute, every parameter and buffer bit by bit.

    None where the model holds what cannot be told from another one, such as an open file or an object without content.
    """
    telling = _Telling()
    try:
        content = telling.tell(model)
    # Objects that hold one another in a long row.
    except RecursionError:
        return None
    return content if telling.understood else None


def own_code(model: nn.Module) -> str:
    """A hash of the code of a model's classes, but for PyTorch's, transformers' and relnet's; "" where there is no other.

    The files of the classes count whole, and with each of them all that is loaded from its package or, of a single file, from its folder
    (but not the files of other candidates). Classes without a file, as those of a notebook, are told by their attributes.
    """
    telling = _Telling()
    classes = {kind for part in model.modules() for kind in type(part).__mro__ if not _known(kind.__module__)}
    return _hash(sorted({telling.tell(kind) for kind in classes})) if classes else ""


class _Telling:
    """Tells the values of one model, each once; `understood` is False as soon as one of them was not."""

    def __init__(self) -> None:
        self.understood = True
        # The values are kept, so that no other one gets the number of one that is gone.
        self._told: dict[int, tuple[Any, str]] = {}
        self._open: list[int] = []
        self._files: dict[str, str] = {}

    def tell(self, value: Any) -> str:
        """A value in a short line that does not change from process to process."""
        kind = type(value)
        if kind in PLAIN:
            return f"{kind.__name__} {value!r}"
        number = id(value)
        if number in self._told:
            return self._told[number][1]
        if number in self._open:
            return f"up {len(self._open) - self._open.index(number)}"
        self._open.append(number)
        told = _hash([kind.__qualname__, *self._parts(value)])
        self._open.pop()
        self._told[number] = value, told
        return told

    def _parts(self, value: Any) -> list[str]:
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, nn.Module):
            return self._all(_of_module(value))
        if isinstance(value, type):
            return self._class(value)
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, ModuleType):
            files = self._module_files(value.__name__, vars(value))
            return [value.__name__] if _known(value.__name__) else [files] if files else self._unknown()
        if type(value) in (set, frozenset):
            return sorted(map(self.tell, value))
        if type(value) is np.ndarray and not value.dtype.hasobject:
            return [str(value.dtype), str(value.shape), hashlib.sha256(value.tobytes()).hexdigest()]
        parts = CONTENTS.get(type(value))
        return self._object(value) if parts is None else self._all(parts(value))

    def _all(self, values: Iterable[Any]) -> list[str]:
        return [self.tell(value) for value in values]

    def _unknown(self) -> list[str]:
        self.understood = False
        return ["unknown"]

    def _tensor(self, value: Tensor) -> list[str]:
        strided = value.layout == torch.strided and not value.is_meta and not value.is_quantized
        if type(value) not in (Tensor, nn.Parameter) or not strided:
            return self._unknown()
        # As bytes, since NumPy has no bfloat16.
        content = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data
        return [str(value.dtype), str(tuple(value.shape)), hashlib.sha256(content).hexdigest()]

    def _object(self, value: Any) -> list[str]:
        """An object by its class, by what pickling keeps of it, and by its attributes."""
        # One that is nothing but an object is meant to be told from others by where it is.
        if type(value) is object:
            return self._unknown()
        # How transformers chooses among tokens, which no logits depend on, with a number of this process in it.
        if type(value).__module__ == "transformers.generation.configuration_utils":
            return []
        # First, for some have none until they are asked for it.
        attributes = getattr(value, "__dict__", None)
        reduce = copyreg.dispatch_table.get(type(value))
        try:
            kept = value.__reduce_ex__(4) if reduce is None else reduce(value)
        # Whatever a class raises that cannot be pickled.
        except Exception:
            return self._unknown()
        if isinstance(kept, str):
            told = [getattr(value, "__module__", None), kept]
        else:
            held: tuple[Any, ...] = kept[3:5]
            told = [*kept[:3], *(list(part or ()) for part in held)]
        return self._all([type(value), *told, attributes])

    def _class(self, kind: type) -> list[str]:
        # Of some classes of Cython it is no text.
        module = f"{kind.__module__}"
        if _known(module):
            return [module, kind.__qualname__]
        functions = [one.__globals__ for one in vars(kind).values() if isinstance(one, FunctionType)]
        home = next((names for names in functions if names.get("__name__") == module), None)
        files = self._module_files(module, home)
        # Without a file, what there is to compare is what the class is made of.
        own = [] if files else sorted((name, value) for name, value in vars(kind).items() if name not in OF_EVERY_CLASS)
        return [kind.__qualname__, files, *self._all([type(kind), kind.__bases__, own])]

    def _function(self, function: FunctionType) -> list[str]:
        # Not `__module__` and `__qualname__`, which a decorator takes over from another function.
        module, name = str(function.__globals__.get("__name__")), function.__code__.co_qualname
        if _known(module) and "<" not in name:
            return [module, name]
        content: list[Any] = [
            function.__code__,
            function.__defaults__,
            function.__kwdefaults__,
            function.__closure__,
            function.__dict__,
        ]
        files = self._module_files(module, function.__globals__)
        if not files and not _known(module):
            content.append(_named(function.__code__, function.__globals__))
        return [name, files, *self._all(content)]

    def _module_files(self, name: str, home: dict[str, Any] | None) -> str:
        """A hash of a module's file and of those near it; "" for a known module, and where no file of it is there.

        home: the names of the module that is meant: by its name another one may be loaded since.
        """
        module = sys.modules.get(name)
        if module is None or _known(name) or (home is not None and vars(module) is not home):
            return ""
        if name not in self._files:
            files = _files(module)
            self._files[name] = (
                _hash([hashlib.sha256(path.read_bytes()).hexdigest() for path in files]) if files else ""
            )
        return self._files[name]


def _of_module(module: nn.Module) -> list[Any]:
    own = sorted((name, value) for name, value in vars(module).items() if name not in OF_EVERY_MODULE)
    held = [list(part.items()) for part in (module._parameters, module._buffers, module._modules)]
    hooks = [list(part.values()) for part in (module._forward_pre_hooks, module._forward_hooks)]
    return [type(module), own, held, hooks]


def _of_code(code: CodeType) -> list[Any]:
    # Not `marshal`, whose bytes hold the file's place and depend on who else holds the parts.
    told = ("code", "consts", "names", "varnames", "freevars", "cellvars", "flags", "argcount", "posonlyargcount")
    return [getattr(code, f"co_{name}") for name in (*told, "kwonlyargcount", "exceptiontable")]


def _of_cell(cell: CellType) -> list[Any]:
    try:
        return [cell.cell_contents]
    except ValueError:
        return []


# What makes up the values of which pickling keeps too little, or nothing.
CONTENTS: dict[type, Callable[[Any], Iterable[Any]]] = {
    list: list,
    tuple: list,
    dict: lambda value: value.items(),
    MappingProxyType: lambda value: value.items(),
    bytes: lambda value: [hashlib.sha256(value).hexdigest()],
    property: lambda value: [value.fget, value.fset, value.fdel],
    staticmethod: lambda value: [value.__func__],
    classmethod: lambda value: [value.__func__],
    MethodType: lambda value: [value.__self__, value.__func__],
    weakref.ref: lambda value: [value()],
    CodeType: _of_code,
    CellType: _of_cell,
}


def _named(code: CodeType, names: dict[str, Any]) -> list[tuple[str, Any]]:
    """The names of a module that code refers to, with their values."""
    used = {one.argval for one in dis.get_instructions(code) if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    inner = [pair for part in code.co_consts if isinstance(part, CodeType) for pair in _named(part, names)]
    return sorted([(name, names[name]) for name in used if name in names] + inner, key=lambda pair: pair[0])


def _known(module: str) -> bool:
    return module.partition(".")[0] in KNOWN


def _hash(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _files(module: ModuleType) -> list[Path]:
    """The file of a module, and those that are loaded from its package or its folder; none where it has no file."""
    file = getattr(module, "__file__", None)
    if file is None or not Path(file).exists():
        return []
    package = module.__name__.partition(".")[0]
    loaded = {name: one.__file__ for name, one in list(sys.modules.items()) if getattr(one, "__file__", None)}
    if hasattr(sys.modules.get(package), "__path__"):
        near = [path for name, path in loaded.items() if name == package or name.startswith(f"{package}.")]
    else:
        folder = Path(file).parent
        others = [path for name, path in loaded.items() if not name.startswith(PREFIX)]
        near = [path for path in others if Path(path).parent == folder] if folder not in INSTALLED else []
    beside = {Path(path) for path in near if path.endswith(".py") and Path(path).exists()}
    return [Path(file), *sorted(beside - {Path(file)})]
