import doctest
import importlib

import pytest

MODULES = [
    "attacks",
    "check_model",
    "eigenvalues",
    "golub_kahan",
    "lanczos",
    "norms",
    "operators",
    "penalties",
    "regularisers",
    "schedule",
    "targets",
    "warm_start",
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_documentation_run(name):
    result = doctest.testmod(importlib.import_module(f"relnet.curvature.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
