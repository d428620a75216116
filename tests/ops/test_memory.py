"""The blocked path holds no (B, S, T, D) tensor, forward and backward: measured from outside, as peak resident memory."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource
from pathlib import Path
import torch
from relnet import ops

def peak():
    # In bytes. Not what getrusage says on Linux, which begins with the peak of the process that started this one.
    status = Path("/proc/self/status")
    if status.exists():
        return next(1024 * int(line.split()[1]) for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

def added(backend, T):
    before = peak()
    source, target = (torch.randn(4, T, 192, requires_grad=True) for _ in range(2))
    ops.relation_mean(source, target, backend=backend).sum().backward()
    return peak() - before

added("blocked", 8)
print(*[added(backend, {T}) for backend in {backends}])
"""


def added_memory(T: int, backends: list[str]) -> list[int]:
    """Bytes that forward + backward at B = 4, D = 192 add, one backend after the other, to a process that has run the op before."""
    program = PROGRAM.format(T=T, backends=backends)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    return [int(added) for added in done.stdout.split()]


def test_the_blocked_path_adds_a_small_part_of_what_the_definition_adds():
    blocked, definition = added_memory(160, ["blocked", "reference"])
    # A (B, S, T, D) tensor is 79 MB there, and the measurement sees more than one.
    assert definition > 150e6
    assert blocked < 40e6


@pytest.mark.slow
def test_a_thousand_tokens_fit_in_a_gigabyte():
    """B = 4, T = 1,024, D = 192, forward and backward; one (B, S, T, D) tensor would be 3.2 GB."""
    assert added_memory(1024, ["blocked"])[0] < 1e9
