"""The backends of this machine that compute every pair, for tests that hold for each of them."""

import os
import shutil

import pytest

from relnet.ops import cpu_library, relation_triton

CPU_MISSING = cpu_library.missing()
PAIRWISE = ["reference", "blocked"] if CPU_MISSING else ["reference", "blocked", "cpu"]
# In a process of its own, whose kernels are interpreted (test_relation_triton.py).
INTERPRETED = os.environ.get(relation_triton.INTERPRETER_VARIABLE) == "1"
if INTERPRETED:
    PAIRWISE.append("triton")
# Backends that compute in float32 only.
FUSED = ("cpu", "triton")

needs_cpu = pytest.mark.skipif(CPU_MISSING is not None, reason=f"fused CPU kernels: {CPU_MISSING}")


def test_the_kernels_are_there_where_there_is_a_compiler():
    if any(shutil.which(name) for name in (os.environ.get("CXX", "c++"), "g++", "clang++")):
        assert CPU_MISSING is None
