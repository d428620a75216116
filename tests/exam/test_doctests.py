import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["soundness", "user_model"])
def test_the_examples_in_the_documentation_run(name):
    result = doctest.testmod(importlib.import_module(f"relnet.exam.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
