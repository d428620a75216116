"""The CPU kernels in a process of another processor, emulated: `make neon` runs their tests on this (see emulated_kernels.cpp)."""

import atexit
import ctypes
import struct
import subprocess
import threading

from torch import Tensor

from relnet.ops import cpu_library

KERNELS = tuple(
    f"relnet_{op}_{direction}" for op in ("relation", "linear", "norm") for direction in ("forward", "backward")
)


class Emulated:
    """Stands in for `cpu_library.call` and `cpu_library.pointer`; sends what every pointer points to, and takes it back after."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.one_call = threading.Lock()
        self.thread = threading.local()

    @property
    def seen(self) -> dict[int, Tensor]:
        """The tensors of this thread's next call."""
        return self.thread.__dict__.setdefault("seen", {})

    def pointer(self, x: Tensor | None) -> int | None:
        if x is None or not x.numel():
            return None
        self.seen[x.data_ptr()] = x
        return x.data_ptr()

    def call(self, name: str, arguments: ctypes.Structure, *buffers: Tensor | None) -> None:
        more = [self.pointer(buffer) or 0 for buffer in buffers]
        to, back = self.process.stdin, self.process.stdout
        assert to is not None
        assert back is not None
        packed = bytes(arguments)
        packed += bytes(-len(packed) % 8)
        # To the end of a tensor's memory: rows may lie apart.
        blocks = {
            address: x.untyped_storage().nbytes() - x.storage_offset() * x.element_size()
            for address, x in self.seen.items()
        }
        self.seen.clear()
        with self.one_call:
            to.write(struct.pack("<qq", KERNELS.index(name), len(packed)) + packed + struct.pack("<q", len(blocks)))
            for address, size in blocks.items():
                to.write(struct.pack("<QQ", address, size) + ctypes.string_at(address, size))
            to.write(struct.pack(f"<q{len(more)}Q", len(more), *more))
            to.flush()
            (failed,) = struct.unpack("<q", back.read(8))
            for address, size in blocks.items():
                ctypes.memmove(address, back.read(size), size)
        if failed:
            raise MemoryError(name)


def install(command: list[str]) -> None:
    """Send every call of a CPU kernel to the command from now on."""
    emulated = Emulated(command)
    atexit.register(emulated.process.communicate)
    cpu_library.call, cpu_library.pointer = emulated.call, emulated.pointer
