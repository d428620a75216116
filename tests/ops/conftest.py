"""Fixtures of the fused CPU kernels: every instruction set of this machine, and any number of threads."""

import os

import pytest
import torch

from relnet.ops import cpu_library
from tests.ops import emulated
from tests.ops.backends import CPU_MISSING

# A command that runs the kernels for another processor: make neon.
EMULATOR = os.environ.get("RELNET_EMULATOR")
if EMULATOR:
    emulated.install(EMULATOR.split())


def available() -> list[str]:
    if CPU_MISSING:
        return ["none"]
    if EMULATOR:
        return [cpu_library.isa()]
    original, found = cpu_library.isa(), []
    for name in ("avx512", "avx2", "baseline"):
        try:
            cpu_library.choose_isa(name)
            found.append(name)
        except RuntimeError:
            continue
    cpu_library.choose_isa(original)
    return found


@pytest.fixture(params=available())
def isa(request):
    original = cpu_library.isa()
    cpu_library.choose_isa(request.param)
    yield request.param
    cpu_library.choose_isa(original)


@pytest.fixture
def threads():
    original = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(original)
