"""The prepared store of images: the same bytes after a kill, by several processes and for several data sets, or refused."""

import os
import signal
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from relnet.tasks import Images
from relnet.tasks.image_archives import NpzSource
from relnet.tasks.image_store import CHUNK, ImageStore
from tests.tasks.test_image_sources import PowerCut, npz, stored
from tests.tasks.test_images import data_folder, pixels_of

__all__ = ["data_folder"]


@pytest.mark.parametrize("left", ["chunk", "torn record", "torn images", "zeroed images"])
def test_what_a_kill_left_is_gone_on_with_to_the_same_bytes(tmp_path, data_folder, left, monkeypatch):
    sources = [NpzSource(npz(tmp_path / "a.npz")), NpzSource(npz(tmp_path / "b.npz", start=600))]
    names = ("images.bin", "index.bin", "store.json")
    expected = [(stored(sources) / name).read_bytes() for name in names]
    monkeypatch.setenv("RELNET_DATA", str(data_folder / "second"))
    calls = []

    def cut(*said):
        calls.append(said)
        if len(calls) == 4:
            raise PowerCut

    with pytest.raises(PowerCut):
        stored(sources, on_progress=cut)
    (folder,) = (data_folder / "second").iterdir()
    assert not (folder / "store.json").exists()
    if left == "torn record":
        os.truncate(folder / "index.bin", (folder / "index.bin").stat().st_size - 3)
    if left == "torn images":
        with open(folder / "images.bin", "ab") as file:
            file.write(b"x" * 100)
    if left == "zeroed images":
        with open(folder / "images.bin", "r+b") as file:
            file.seek(-200, os.SEEK_END)
            file.write(bytes(150))
    done = []
    assert [
        (stored(sources, on_progress=lambda *said: done.append(said[1])) / name).read_bytes() for name in names
    ] == expected
    assert done[0] > calls[1 if left in ("torn record", "zeroed images") else 2][1], "what was done is not done again"


PREPARE = """
import os, signal, sys
from relnet.tasks.image_opening import open_images
from relnet.tasks.image_store import prepare, shape_of
def say(what, done, total):
    if sys.argv[2] == "killed" and done > total / 2:
        os.kill(os.getpid(), signal.SIGKILL)
sources = open_images([sys.argv[1]])
prepare(sources, None, shape_of(sources, False), False, say)
"""


@pytest.mark.slow
def test_a_killed_process_and_two_at_once_make_the_store_of_one(tmp_path, data_folder, monkeypatch):
    path = npz(tmp_path / "a.npz", num=2000)
    expected = (stored([NpzSource(path)]) / "images.bin").read_bytes()
    monkeypatch.setenv("RELNET_DATA", str(data_folder / "second"))

    def start(how):
        return subprocess.Popen([sys.executable, "-c", PREPARE, str(path), how])

    assert start("killed").wait() == -signal.SIGKILL
    (folder,) = (data_folder / "second").iterdir()
    assert not (folder / "store.json").exists()
    assert 0 < (folder / "images.bin").stat().st_size < len(expected)
    both = [start("whole") for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    ImageStore(folder)
    assert (folder / "images.bin").read_bytes() == expected


def test_a_store_that_was_changed_is_refused(tmp_path):
    folder = stored([NpzSource(npz(tmp_path / "a.npz", num=10))])
    ImageStore(folder)
    with open(folder / "images.bin", "r+b") as file:
        file.seek(40)
        file.write(b"\x01\x02\x03")
    with pytest.raises(ValueError, match="damaged"):
        ImageStore(folder)


def test_images_left_out_for_one_data_set_are_there_for_another(tmp_path):
    two, five = npz(tmp_path / "two.npz", 40, classes=2), npz(tmp_path / "five.npz", 40, 100, classes=5)
    task = Images((str(two),), str(five), patch=2, skip=True).prepared()
    assert task.num_held_out == 16, "those of its two classes"
    task = Images((str(five),), patch=2, skip=True).prepared()
    assert task.num_training + task.num_held_out == 40
    with pytest.raises(ValueError, match="label 2, and there are 2 classes"):
        Images((str(two),), str(five), patch=2).prepared()


def test_images_of_another_size_are_left_out_for_one_data_set_only(tmp_path):
    small, large = npz(tmp_path / "small.npz", 20), npz(tmp_path / "large.npz", 20, 100, side=6)
    with pytest.raises(ValueError, match="not one image"):
        Images((str(small),), str(large), patch=2, skip=True).prepared()
    task = Images((str(large),), patch=2, skip=True).prepared()
    assert task.seen.pixels == (6, 6, 3)
    assert task.num_training + task.num_held_out == 20


def test_a_store_of_other_classes_is_not_that_of_a_run(tmp_path):
    two, five = npz(tmp_path / "two.npz", 40, classes=2), npz(tmp_path / "five.npz", 40, 100, classes=5)
    with_two, alone = Images((str(two),), str(five), patch=2, skip=True).prepared(), Images((str(five),)).prepared()
    assert with_two.stores[1] != alone.stores[0]


def test_the_sixth_part_of_cifar_5m_is_held_out(tmp_path):
    for part in range(6):
        npz(tmp_path / f"cifar5m_part{part}.npz", num=20, start=100 * part)
    task = Images((str(tmp_path),), patch=2, mean=(0.0,) * 3, std=(1 / 255,) * 3).prepared()
    assert (task.num_training, task.num_held_out) == (100, 20)
    assert np.array_equal(task.held_out_image(7)[0], pixels_of(507, (4, 4, 3)))


def test_preparing_holds_no_part_in_memory(tmp_path, monkeypatch):
    source = NpzSource(npz(tmp_path / "a.npz", num=3 * CHUNK))
    largest = []
    read = zipfile.ZipExtFile.read
    monkeypatch.setattr(zipfile.ZipExtFile, "read", lambda self, n=-1: (largest.append(n), read(self, n))[1])
    stored([source])
    assert 0 < max(largest) <= CHUNK * 4 * 4 * 3
    assert min(largest) >= 0, "never all at once"
