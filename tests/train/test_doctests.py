import doctest
import importlib

import pytest

MODULES = ("checkpoint", "config", "loop", "meter", "optim", "penalty")


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name):
    result = doctest.testmod(importlib.import_module(f"relnet.train.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
