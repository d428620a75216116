import doctest
import importlib

import pytest


@pytest.mark.parametrize("name", ["config", "images", "model", "tokenizers"])
def test_examples_in_docstrings_hold(name):
    result = doctest.testmod(importlib.import_module(f"relnet.hf.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
