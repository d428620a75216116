"""relnet exam: what it refuses before anything is trained."""

import pytest

from relnet import cli


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mixers", "causalrn", "--num", "0"], "--num 0: at least 1 wanted"),
        (["--mixers", "causalrn", "--batch-size", "0"], "--batch-size 0: at least 1 wanted"),
        (["--mixers", "causalrn", "--hf", "nowhere"], "nowhere"),
        (["RUN", "--lrs", "0.1"], "a run sits the exam of its own task"),
        (["RUN", "--tasks", "copying-4"], "a run sits the exam of its own task"),
    ],
)
def test_a_mistake_is_told_before_anything_is_trained(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    out = tmp_path / "out"
    named = [*arguments, "--out", str(out)] if arguments[0] != "RUN" else [str(tmp_path), *arguments[1:]]
    assert cli.main(["exam", *named]) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
    assert not list(out.rglob("log.jsonl"))
