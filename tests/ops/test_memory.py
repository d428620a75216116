"""The blocked path holds no (B, S, T, D) tensor, forward and backward: measured from outside, as peak resident memory."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource
import torch
from relnet import ops

def peak():  # bytes; Linux counts in KiB, macOS in bytes
    import sys
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

def run(T):
    source, target = (torch.randn(4, T, 192, requires_grad=True) for _ in range(2))
    ops.relation_mean(source, target, backend="{backend}").sum().backward()

run(8)
before = peak()
run({T})
print(peak() - before)
"""


def added_memory(backend: str, T: int) -> int:
    """Bytes that forward + backward at B = 4, D = 192 add to a process that has run the op before."""
    program = PROGRAM.format(backend=backend, T=T)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    return int(done.stdout)


def test_the_blocked_path_adds_a_small_part_of_what_the_definition_adds():
    assert added_memory("blocked", 256) < 60e6
    # A (B, S, T, D) tensor is 200 MB there: the measurement sees it.
    assert added_memory("reference", 256) > 400e6


@pytest.mark.slow
def test_a_thousand_tokens_fit_in_a_gigabyte():
    """B = 4, T = 1,024, D = 192, forward and backward; one (B, S, T, D) tensor would be 3.2 GB."""
    assert added_memory("blocked", 1024) < 1e9
