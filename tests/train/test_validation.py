"""What is measured on held-out text while a model trains."""

import json

import pytest

from relnet.train import Validation
from tests.train.fakes import train_tiny


@pytest.mark.parametrize(("every", "expected"), [(4, [4, 8, 10]), (5, [5, 10]), (None, [10]), (1, list(range(1, 11)))])
def test_validation_comes_when_it_should_and_stands_in_the_log_and_the_result(tmp_path, every, expected):
    seen = []

    def validate():
        seen.append(len((tmp_path / "log.jsonl").read_text().splitlines()) + 1)
        return Validation(bits_per_byte=1 / len(seen), perplexity=float(len(seen)))

    result = train_tiny(tmp_path, steps=10, validate_every=every, validate=validate)
    assert seen == expected
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert {line["step"]: line["perplexity"] for line in lines if "perplexity" in line} == {
        step: number for number, step in enumerate(expected, start=1)
    }
    assert all(("bits_per_byte" in line) == (line["step"] in expected) for line in lines)
    assert (result.bits_per_byte, result.perplexity) == (1 / len(seen), len(seen))
    assert train_tiny(tmp_path, steps=10, validate_every=every, validate=validate, resume=True) == result


def test_without_validation_nothing_is_said_of_it(tmp_path):
    result = train_tiny(tmp_path, steps=2, validate_every=1)
    assert result.bits_per_byte is None
    assert "bits_per_byte" not in (tmp_path / "log.jsonl").read_text()


def test_a_run_of_before_there_was_validation_is_resumed(tmp_path):
    result = train_tiny(tmp_path, steps=2)
    content = json.loads((tmp_path / "result.json").read_text())
    for name in ("bits_per_byte", "perplexity"):
        del content[name]
    del content["settings"]["validate_every"]
    (tmp_path / "result.json").write_text(json.dumps(content))
    again = train_tiny(tmp_path, steps=2, resume=True)
    assert (again.steps, again.bits_per_byte) == (result.steps, None)
