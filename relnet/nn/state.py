"""What a model remembers between calls: values, never shared mutable things.

A State is a frozen dataclass of tensors, caches, integers and other states. Going on twice from one state, in any order, gives the same
bits. `Cache` is the growing part: it appends in place only where nobody can notice.
Source: docs/mathematics.md, section 7.
"""

import dataclasses
import hashlib
import json
import math
import os
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from relnet.ops.cpu_library import prefer_large_pages

STATE_FORMAT = 1


class _Fill:
    """How far a storage has been written, shared by all caches that look into it."""

    def __init__(self, filled: int) -> None:
        self.filled = filled


class Cache:
    """An append-only sequence of vectors, (B, length, C), as a value.

    `append` returns a new cache. It writes in place only in eager mode with gradients off, room left, and this cache ending where the
    storage's last written entry is (so no other cache can see the write); else it copies, keeping capacity and strides, so that the
    numbers do not depend on which of the two happened. Copies double the capacity: appending one by one costs O(1) copies an entry.
    """

    def __init__(self, storage: Tensor, length: int, fill: _Fill | None = None) -> None:
        self._storage = storage
        self._fill = fill or _Fill(length)
        self.length = length

    def __repr__(self) -> str:
        return f"Cache(length={self.length}, capacity={self._storage.shape[1]}, width={self._storage.shape[2]})"

    @property
    def entries(self) -> Tensor:
        """The live entries, (B, length, C)."""
        return self._storage[:, : self.length]

    @property
    def shape(self) -> tuple[int, int, int]:
        """Of the live entries, without making a view of them: a step of decoding asks for it in every block."""
        return self._storage.shape[0], self.length, self._storage.shape[2]

    @property
    def nbytes(self) -> int:
        """Bytes of the live entries."""
        return math.prod(self.shape) * self._storage.element_size()

    def append(self, new: Tensor) -> "Cache":
        """Return the cache with `new` (B, S, C) after the live entries, in the dtype of `new`."""
        length = self.length + new.shape[1]
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            # Also where nothing here requires a gradient: somebody's backward may have kept these entries.
            return Cache(torch.cat([self.entries.to(new.dtype), new], dim=1), length)
        capacity = self._storage.shape[1]
        free = (
            self._fill.filled == self.length
            and self._storage.dtype == new.dtype
            and self._storage.is_inference() == torch.is_inference_mode_enabled()
        )
        if length <= capacity and free:
            storage, fill = self._storage, self._fill
        else:
            if length > capacity:
                capacity = max(length, 2 * self.length)
            storage, fill = prefer_large_pages(new.new_empty(new.shape[0], capacity, new.shape[2])), _Fill(0)
            storage[:, : self.length] = self.entries
        storage[:, self.length : length] = new
        fill.filled = length
        return Cache(storage, length, fill)

    def map(self, function: Callable[[Tensor], Tensor]) -> "Cache":
        """Return the cache whose storage is `function(storage)`."""
        storage = function(self._storage)
        # detach() and to() the same device hand back the same memory: who writes there must be seen by both.
        shared = storage.untyped_storage().data_ptr() == self._storage.untyped_storage().data_ptr()
        return Cache(storage, self.length, self._fill if shared else None)


@dataclasses.dataclass(frozen=True)
class State:
    """Base of all states; a subclass adds fields: Tensor (batch first), Cache, int, None, State or tuples of these."""

    _kinds: ClassVar[dict[str, type["State"]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        State._kinds[cls.__name__] = cls

    def _map(self, function: Callable[[Tensor], Tensor]) -> Self:
        changed = {field.name: _map(getattr(self, field.name), function) for field in dataclasses.fields(self)}
        return dataclasses.replace(self, **changed)

    def detach(self) -> Self:
        """Return the state cut off from the graph."""
        return self._map(lambda tensor: tensor.detach())

    def to(self, device: torch.device | str) -> Self:
        """Return the state on another device."""
        return self._map(lambda tensor: tensor.to(device))

    def select(self, rows: Tensor) -> Self:
        """Return the state of these batch rows, (N,) int64; a row may come several times (beam search). Else ValueError."""
        if not isinstance(rows, Tensor) or rows.dim() != 1 or rows.dtype not in (torch.int64, torch.int32):
            raise ValueError(f"rows={rows!r}; give an int64 tensor of row numbers, such as torch.tensor([0, 0, 1])")
        # On a GPU looking would wait for it; there indexing itself fails.
        looking = rows.device.type == "cpu" and not torch.compiler.is_compiling()
        if looking and len(rows) and (leaves := _leaves(self)):
            num = leaves[0].shape[0]
            if rows.min() < 0 or rows.max() >= num:
                raise ValueError(f"rows={rows.tolist()}; the state has rows 0 to {num - 1}")
        return self._map(lambda tensor: tensor.index_select(0, rows.to(tensor.device)))

    @property
    def nbytes(self) -> int:
        """Bytes that the state needs: live entries only."""
        return sum(leaf.nbytes for leaf in _leaves(self))

    @property
    def nbytes_allocated(self) -> int:
        """Bytes of memory that the state keeps alive, room for growth included; memory that two parts share counts once."""
        tensors = [leaf._storage if isinstance(leaf, Cache) else leaf for leaf in _leaves(self)]
        storages = [tensor.untyped_storage() for tensor in tensors]
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())

    def save(self, path: str | Path, owner: str = "") -> None:
        """Write the state to a safetensors file, whole or not at all; an existing file or missing folder is refused (ValueError).

        owner: what alone can go on from it, such as a model's fingerprint.
        """
        path = Path(path)
        if not path.parent.is_dir():
            raise ValueError(f"{path.parent} is not a folder; make it first, or give another path")
        if path.exists():
            raise ValueError(f"{path} exists; give a new name, a saved state is never overwritten")
        tensors: dict[str, Tensor] = {}
        structure = _describe(self, "state", tensors)
        digest = digest_of(json.dumps(structure), tensors)
        header = {"format": STATE_FORMAT, "owner": owner, "digest": digest, "structure": structure}
        metadata = {"relnet_state": json.dumps(header)}
        # A name that no other file has, until all of it is on the disk.
        partial = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        try:
            with open(partial, "xb") as file:
                file.write(safetensors.torch.save(tensors, metadata))
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path, device: torch.device | str = "cpu", owner: str | None = None) -> Self:
        """Read a saved state; ValueError if the file is no saved state, damaged, of another format version, kind or owner.

        owner: as given to `save`; None: whoever it is.
        """
        if Path(path).is_dir():
            raise ValueError(f"{path} is not a saved state but a folder; save one with state.save(path)")
        try:
            with safetensors.safe_open(str(path), framework="pt", device=str(device)) as file:
                header = json.loads((file.metadata() or {}).get("relnet_state", "null"))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (safetensors.SafetensorError, json.JSONDecodeError) as error:
            raise ValueError(f"{path} is not a saved state ({error}); save one with state.save(path)") from None
        if not isinstance(header, dict) or not {"format", "structure"} <= header.keys():
            raise ValueError(f"{path} is a safetensors file, but not a saved state; save one with state.save(path)")
        if header["format"] != STATE_FORMAT:
            raise ValueError(f"{path} has state format {header['format']}; this version of relnet reads {STATE_FORMAT}")
        if owner is not None and header.get("owner", "") != owner:
            raise ValueError(f"{path} is the state of another model, or of other weights; read its prompt again")
        if header.get("digest") != digest_of(json.dumps(header["structure"]), tensors):
            raise ValueError(f"{path} is damaged: its content is not what was saved; read its prompt again")
        state = _restore(header["structure"], tensors)
        if not isinstance(state, cls):
            raise ValueError(f"{path} holds a {type(state).__name__}, not a {cls.__name__}")
        return state


def digest_of(structure: str, tensors: Mapping[str, Tensor]) -> str:
    """Return a hash of named tensors, of their kinds and bits, and of what says how they belong together: 32 hexadecimal digits."""
    digest = hashlib.blake2b(structure.encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def trackable(tensor: Tensor) -> Tensor:
    """Return the tensor, or a copy of one made in inference mode that autograd can keep for a backward pass."""
    if torch.compiler.is_compiling() or torch.is_inference_mode_enabled():
        return tensor
    return tensor.clone() if tensor.is_inference() else tensor


def _map(value: Any, function: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, Cache):
        return value.map(function)
    if isinstance(value, State):
        return value._map(function)
    if isinstance(value, tuple):
        return tuple(_map(part, function) for part in value)
    return value


def _leaves(value: Any) -> list[Tensor | Cache]:
    if isinstance(value, Tensor | Cache):
        return [value]
    if isinstance(value, State):
        return [leaf for field in dataclasses.fields(value) for leaf in _leaves(getattr(value, field.name))]
    if isinstance(value, tuple):
        return [leaf for part in value for leaf in _leaves(part)]
    return []


def _describe(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Return the structure of a state as JSON and collect its tensors under their paths."""
    if isinstance(value, Tensor | Cache):
        # A clone of the live entries: safetensors refuses tensors that share memory.
        tensors[name] = (value.entries if isinstance(value, Cache) else value).detach().clone().contiguous()
        return {"cache" if isinstance(value, Cache) else "tensor": name}
    if isinstance(value, State):
        fields = {
            f.name: _describe(getattr(value, f.name), f"{name}.{f.name}", tensors) for f in dataclasses.fields(value)
        }
        return {"kind": type(value).__name__, "fields": fields}
    if isinstance(value, tuple):
        return [_describe(part, f"{name}.{index}", tensors) for index, part in enumerate(value)]
    return value


def _restore(structure: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(structure, list):
        return tuple(_restore(part, tensors) for part in structure)
    if not isinstance(structure, dict):
        return structure
    if "tensor" in structure:
        return tensors[structure["tensor"]]
    if "cache" in structure:
        entries = tensors[structure["cache"]]
        return Cache(entries, entries.shape[1])
    if structure["kind"] not in State._kinds:
        raise ValueError(
            f"the saved state is of kind {structure['kind']!r}, which this version of relnet does not know"
        )
    fields = {name: _restore(part, tensors) for name, part in structure["fields"].items()}
    return State._kinds[structure["kind"]](**fields)
