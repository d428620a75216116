import doctest
import importlib

import pytest

MODULES = ("checkpoint", "config", "engine", "interrupt", "log", "loop", "meter", "optim")


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_hold(name):
    assert doctest.testmod(importlib.import_module(f"relnet.train.{name}")).failed == 0
