import errno
import fcntl
import logging
import os
import subprocess
import sys
import threading

import pytest

from relnet.train import write_atomically
from relnet.train.folder import LOCK, locked


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_that_cannot_grow_leaves_no_half_file(tmp_path):
    code = (
        "import resource, signal, sys; from pathlib import Path; from relnet.train import write_atomically;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "write_atomically(Path(sys.argv[1]), bytes(5000))"
    )
    path = tmp_path / "file"
    path.write_text("old")
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"while writing {path}" in done.stderr
    assert (names(tmp_path), path.read_text()) == (["file"], "old")


def test_a_ctrl_c_in_the_middle_of_a_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("old")

    def press(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", press)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, b"new")
    assert (names(tmp_path), path.read_text()) == (["file"], "old")


def test_two_that_write_one_path_leave_one_whole_content(tmp_path):
    path, contents = tmp_path / "config.json", [bytes([letter]) * 100_000 for letter in b"abcd"]
    errors = []

    def write(content):
        try:
            for _ in range(20):
                write_atomically(path, content)
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=[content]) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert path.read_bytes() in contents
    assert names(tmp_path) == ["config.json"]


def test_a_file_beside_the_one_written_is_left_alone(tmp_path):
    for name in (".file.tmp", "file.partial", "file.tmp"):
        (tmp_path / name).write_text("mine")
    write_atomically(tmp_path / "file", b"new")
    (tmp_path / "file").unlink()
    assert {path.read_text() for path in tmp_path.iterdir()} == {"mine"}


@pytest.mark.parametrize(("code", "has_remedy"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EIO, False)])
def test_room_is_asked_for_only_where_it_is_missing(tmp_path, monkeypatch, code, has_remedy):
    def fail(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=f"{os.strerror(code)} while writing .*file; what was saved before") as caught:
        write_atomically(tmp_path / "file", b"new")
    assert ("make room" in str(caught.value)) == has_remedy


def test_a_folder_in_use_lets_nobody_else_in_until_it_is_left(tmp_path):
    with (
        locked(tmp_path / "new" / "run"),
        pytest.raises(ValueError, match=r"new/run is in use, a run trains in it: wait"),
        locked(tmp_path / "new/run"),
    ):
        pass
    with locked(tmp_path / "new" / "run"):
        pass
    assert names(tmp_path / "new" / "run") == [LOCK]


def test_leftovers_of_a_killed_save_are_removed_and_nothing_else(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    number = 32 * "0"
    leftovers = [
        *(f".config.json.{number}.tmp", f".model.safetensors.{number}.tmp"),
        f"checkpoints/.step-00000020.safetensors.{number}.tmp",
    ]
    others = [".config.json.tmp", f".mine.{number}.tmp", f"checkpoints/step-00000020.safetensors.{number}.tmp"]
    for name in (*leftovers, *others):
        (tmp_path / name).write_bytes(b"half")
    with locked(tmp_path):
        pass
    assert [name for name in leftovers if (tmp_path / name).exists()] == []
    assert [name for name in others if not (tmp_path / name).exists()] == []


def test_a_file_system_without_locks_is_told_and_used(tmp_path, monkeypatch, caplog):
    def fail(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    with caplog.at_level(logging.WARNING), locked(tmp_path):
        assert "cannot be locked (No locks available)" in caplog.text
