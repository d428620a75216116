"""What Ctrl-C says of a run in a folder that nobody named."""

import os

import pytest

from relnet import cli, run


@pytest.fixture
def runs(monkeypatch, tmp_path):
    monkeypatch.setenv("RELNET_RUNS", str(tmp_path))
    older = tmp_path / "older"
    older.mkdir()
    (older / "config.json").write_text("{}")
    return tmp_path


def interrupted(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize("stage", ["train", "examine_unless_done"])
def test_the_folder_of_this_run_is_named_though_another_one_changed_since(capsys, monkeypatch, runs, stage):
    def stop(*_, **__):
        (runs / "older" / "result.json").write_text("{}")
        os.utime(runs / "older")
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.run, stage, stop)
    arguments = [
        "train",
        "copying",
        "--length",
        "3",
        "--width",
        "8",
        "--depth",
        "1",
        "--max-steps",
        "1",
        "--batch-size",
        "2",
    ]
    assert cli.main(arguments) == 130
    told = capsys.readouterr().err
    (going_on,) = [line for line in told.splitlines() if "to go on" in line]
    assert f"--out {runs / 'causalrn-copying-cui2024-3'}" in going_on
    assert going_on.endswith("--resume")


def test_no_folder_is_named_before_there_is_one(capsys, monkeypatch, runs):
    monkeypatch.setattr(run, "prepared", interrupted)
    assert cli.main(["train", "copying", "--length", "3"]) == 130
    assert "to go on" not in capsys.readouterr().err
