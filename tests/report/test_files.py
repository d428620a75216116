"""Files that reports write: whole or not at all, named where that fails, and never over one that is there."""

import errno
import os

import pytest

from relnet.report import files
from relnet.report.files import replace, write_new, write_once
from relnet.report.page import page_file, write_page
from relnet.report.page.writing import MARK

PAGE = f"<!DOCTYPE html>\n{MARK}\n"


@pytest.fixture
def full(monkeypatch):
    """A disk without room: content does not get to it."""

    def no_room(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", no_room)


@pytest.mark.parametrize("write", [write_once, write_new, replace])
def test_a_full_disk_is_told_with_the_file_and_nothing_half_written_stays(tmp_path, full, write):
    with pytest.raises(OSError, match=r"No space left on device; make room") as told:
        write(tmp_path / "a.png", b"whole")
    assert (told.value.errno, told.value.filename) == (errno.ENOSPC, str(tmp_path / "a.png"))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_an_earlier_page_as_it_was(tmp_path, full):
    path = tmp_path / "page.html"
    path.write_text(PAGE)
    with pytest.raises(OSError, match="make room"):
        write_page(PAGE + "new", path)
    assert path.read_text() == PAGE
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("write", [write_once, replace])
def test_a_folder_that_cannot_be_written_in_is_told_by_the_files_name(tmp_path, write, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), "another name")

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(PermissionError) as told:
        write(tmp_path / "a", b"")
    assert told.value.filename == str(tmp_path / "a")


def test_a_file_that_comes_meanwhile_is_not_written_over(tmp_path, monkeypatch):
    path = tmp_path / "kept.jsonl"
    monkeypatch.setattr(os, "fsync", lambda _: path.write_text("mine"))
    with pytest.raises(FileExistsError) as told:
        write_once(path, b"whole")
    assert told.value.filename == str(path)
    assert [(file, file.read_text()) for file in tmp_path.iterdir()] == [(path, "mine")]


def test_a_link_that_leads_nowhere_is_a_name_that_is_taken(tmp_path):
    path = tmp_path / "a.png"
    path.symlink_to("gone.png")
    with pytest.raises(FileExistsError):
        write_once(path, b"whole")
    assert write_new(path, b"whole") == tmp_path / "a-2.png"
    assert not (tmp_path / "gone.png").exists()


def test_a_rename_that_fails_leaves_nothing(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.EIO, "gone")

    monkeypatch.setattr(files.os, "replace", refuse)
    with pytest.raises(OSError, match="gone"):
        write_once(tmp_path / "a", b"whole")
    assert list(tmp_path.iterdir()) == []


def test_a_page_replaces_a_page_and_nothing_else(tmp_path):
    path = tmp_path / "new" / "page.html"
    write_page(PAGE, path)
    write_page(PAGE + "again", path)
    assert path.read_text() == PAGE + "again"
    path.write_text(f"<p>mine</p>{' ' * 2000}{MARK}")
    with pytest.raises(FileExistsError):
        write_page(PAGE, path)
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_to_a_page_stays_a_link(tmp_path, there):
    link, target = tmp_path / "lp.html", tmp_path / "to" / "page.html"
    link.symlink_to("to/page.html")
    if there:
        write_page(PAGE, target)
    write_page(PAGE + "new", link)
    assert link.is_symlink()
    assert target.read_text() == PAGE + "new"
    target.write_text("mine")
    with pytest.raises(FileExistsError):
        write_page(PAGE, link)


def test_what_can_be_no_page_is_refused_by_name_and_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link").symlink_to("/dev/zero")
    for path, why in (
        ("/dev/full", "is no regular file"),
        ("/dev/zero", "is no regular file"),
        (tmp_path / "pipe", "is no regular file"),
        (tmp_path / "link", "is no regular file"),
        (tmp_path / "loop", "is a link that leads back to itself"),
        (tmp_path, "is a folder"),
    ):
        with pytest.raises(ValueError, match=f"{path} {why}"):
            page_file(tmp_path / path)


def test_of_a_file_that_is_no_page_only_the_beginning_is_read(tmp_path):
    path = tmp_path / "large"
    with path.open("wb") as file:
        # More than any memory; it takes no room on the disk.
        file.truncate(1 << 36)
    with pytest.raises(FileExistsError):
        page_file(path)
