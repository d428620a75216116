import doctest
import importlib

import pytest

MODULES = (
    *("copying", "draws", "images", "lookup", "memory", "question_answering", "scores", "text", "text_questions"),
    *("text_tokens", "tokenised", "unrepeated"),
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_the_documentation_run(name, tmp_path, monkeypatch):
    monkeypatch.setenv("RELNET_DATA", str(tmp_path))
    result = doctest.testmod(importlib.import_module(f"relnet.tasks.{name}"))
    assert result.attempted > 0
    assert result.failed == 0
