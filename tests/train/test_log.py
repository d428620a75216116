import json
import logging
import shutil
import subprocess
from pathlib import Path

import pytest

from relnet.train import StepRecord, log
from relnet.train.log import StepLog, commit, read_log, read_result

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def record(step):
    return StepRecord(step, 1.0, 0.5, 0.5, 1e-3, 0.1, 0.01, 8 * step)


def fill(path, steps):
    with StepLog(path, 0) as step_log:
        for step in range(1, steps + 1):
            step_log.write(record(step))


def steps(path):
    return [line["step"] for line in read_log(path)]


def test_a_line_is_in_the_file_when_write_returns(tmp_path):
    with StepLog(tmp_path / "log.jsonl", 0) as step_log:
        for step in (1, 2):
            step_log.write(record(step))
            assert steps(tmp_path / "log.jsonl") == list(range(1, step + 1))
    fields = ["step", "loss", "accuracy", "window_accuracy", "lr", "grad_norm", "seconds", "samples"]
    assert list(read_log(tmp_path / "log.jsonl")[0]) == fields


def test_resumption_drops_the_lines_after_the_checkpoint_and_keeps_the_others_as_they_are(tmp_path):
    path = tmp_path / "log.jsonl"
    fill(path, 7)
    before = path.read_bytes().splitlines(keepends=True)
    with StepLog(path, 5) as step_log:
        assert path.read_bytes() == b"".join(before[:5])
        step_log.write(record(6))
    assert steps(path) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("torn", [b'{"step": 8, "lo', b'{"step": 8}', b'{"step"', b"\x00\x00\x00"])
def test_a_last_line_that_was_cut_short_is_dropped(tmp_path, torn):
    path = tmp_path / "log.jsonl"
    fill(path, 7)
    with open(path, "ab") as file:
        file.write(torn)
    assert steps(path) == [1, 2, 3, 4, 5, 6, 7]
    with StepLog(path, 7) as step_log:
        step_log.write(record(8))
    assert steps(path) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_broken_line_elsewhere_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "log.jsonl"
    fill(path, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"oops\n" + lines[2])
    with pytest.raises(ValueError, match=r"log\.jsonl, line 2"):
        StepLog(path, 3)


def test_lines_missing_before_the_checkpoint_are_told(tmp_path, caplog):
    fill(tmp_path / "log.jsonl", 3)
    with caplog.at_level(logging.WARNING), StepLog(tmp_path / "log.jsonl", 5):
        assert "3 of the 5 updates" in caplog.text


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's full device")
def test_a_log_without_room_says_so_by_name(tmp_path):
    with StepLog(tmp_path / "log.jsonl", 0) as step_log:
        step_log._file.close()
        step_log._file = open("/dev/full", "ab", buffering=0)  # noqa: SIM115
        with pytest.raises(OSError, match=r"No space left on device while writing .*log\.jsonl"):
            step_log.write(record(1))


@pytest.mark.parametrize("content", ["", "[]", '{"format": 2}', json.dumps({"format": 1, "steps": 3})])
def test_a_result_of_another_making_is_refused(tmp_path, content):
    (tmp_path / "result.json").write_text(content)
    with pytest.raises(ValueError, match=r"result\.json is not a result that this relnet can read"):
        read_result(tmp_path)


def git(*arguments, folder):
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@needs_git
def test_the_commit_is_the_source_trees_and_says_when_files_differ(tmp_path, monkeypatch):
    source = tmp_path / "relnet" / "train" / "log.py"
    source.parent.mkdir(parents=True)
    source.write_text("pass")
    monkeypatch.setattr(log, "__file__", str(source))
    assert commit() is None
    git("init", folder=tmp_path)
    assert commit() is None
    git("add", ".", folder=tmp_path)
    git("commit", "-m", "first", folder=tmp_path)
    clean = commit()
    assert clean is not None
    assert len(clean) == 40
    source.write_text("changed")
    assert commit() == clean + "-dirty"


@needs_git
def test_a_package_inside_someone_elses_checkout_has_no_commit(tmp_path, monkeypatch):
    git("init", folder=tmp_path)
    git("commit", "--allow-empty", "-m", "theirs", folder=tmp_path)
    monkeypatch.setattr(log, "__file__", str(tmp_path / "lib" / "site-packages" / "relnet" / "train" / "log.py"))
    assert commit() is None


def test_without_git_there_is_no_commit_and_no_error(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert commit() is None


def test_a_line_without_what_train_writes_is_named(tmp_path):
    good = '{"step": 1, "seconds": 0.5}\n'
    for bad in ('{"step": "x", "seconds": 0.5}\n', '{"step": 2}\n', "[]\n"):
        (tmp_path / "log.jsonl").write_text(good + bad + good)
        with pytest.raises(ValueError, match="line 2 is not a line that train wrote"):
            read_log(tmp_path / "log.jsonl")


def test_a_result_without_settings_is_refused(tmp_path):
    (tmp_path / "result.json").write_text('{"format": 1, "settings": null}')
    with pytest.raises(ValueError, match="settings are missing"):
        read_result(tmp_path)
