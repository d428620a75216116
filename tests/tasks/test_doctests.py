import doctest

import pytest

from relnet.tasks import (
    copying,
    draws,
    images,
    lookup,
    memory,
    question_answering,
    scores,
    text,
    text_questions,
    text_tokens,
    tokenised,
    unrepeated,
)


@pytest.mark.parametrize(
    "module",
    [
        copying,
        draws,
        images,
        lookup,
        memory,
        question_answering,
        scores,
        text,
        text_questions,
        text_tokens,
        tokenised,
        unrepeated,
    ],
    ids=lambda module: module.__name__,
)
def test_the_examples_in_the_documentation_run(module, tmp_path, monkeypatch):
    monkeypatch.setenv("RELNET_DATA", str(tmp_path))
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
