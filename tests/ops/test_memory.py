"""No path but the definition holds a (B, S, T, D) tensor, no number of threads many copies of one: peak resident memory, from outside."""

import subprocess
import sys

import pytest

from tests.ops.backends import needs_cpu

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

def added(backend, *shape, **arguments):
    before = peak()
    source, target = (torch.randn(*shape, requires_grad=True) for _ in range(2))
    ops.relation_mean(source, target, backend=backend, **arguments).sum().backward()
    return peak() - before

torch.set_num_threads({threads})
for backend in {backends}:
    added(backend, 1, 8, 16)
print(*[added(backend, *{shape}, **{arguments}) for backend in {backends}])
"""


def added_memory(shape: tuple[int, ...], backends: list[str], threads: int = 2, **arguments: object) -> list[int]:
    """Bytes that forward + backward of (B, T, D) add, one backend after the other, to a process that has run the op before."""
    program = PROGRAM.format(shape=shape, backends=backends, threads=threads, arguments=arguments)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300)
    return [int(added) for added in done.stdout.split()]


def test_the_blocked_path_adds_a_small_part_of_what_the_definition_adds():
    blocked, definition = added_memory((4, 160, 192), ["blocked", "reference"])
    # A (B, S, T, D) tensor is 79 MB there, and the measurement sees more than one.
    assert definition > 150e6
    assert blocked < 40e6


@pytest.mark.slow
def test_a_thousand_tokens_fit_in_a_gigabyte():
    """B = 4, T = 1,024, D = 192, forward and backward; one (B, S, T, D) tensor would be 3.2 GB."""
    assert added_memory((4, 1024, 192), ["blocked"])[0] < 1e9


@needs_cpu
def test_many_threads_do_not_take_many_times_the_memory_of_the_tensors():
    """Target gradients of its own for each of 64 threads' pieces would be 1.3 GB; a tensor has 5 MB."""
    assert added_memory((1, 20000, 64), ["cpu"], threads=64, windows=[64])[0] < 400e6
