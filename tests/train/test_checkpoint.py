import errno
import json
import logging
import os
import pickle
import re

import pytest
import torch
from safetensors.torch import load_file, save_file

from relnet.train import load_weights
from relnet.train.checkpoint import (
    Checkpoint,
    checkpoint_tensors,
    load_checkpoint,
    load_newest,
    save_checkpoint,
    save_weights,
)
from tests.assertions import assert_same_bits
from tests.train.fakes import TinyModel, tiny_model


def save_at(folder, step, keep=10, model=None):
    return save_checkpoint(folder, Checkpoint(checkpoint_tensors(model or tiny_model()), {"step": step}), keep)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_comes_back_with_every_bit_and_fact(tmp_path):
    parts = {
        "rng": {"cpu": torch.get_rng_state()[None]},
        "optimiser": {"a.step": torch.tensor(3.0), "a.exp_avg": torch.tensor([1e-45, float("-0.0")])},
        "other": {"half": torch.ones(3, dtype=torch.bfloat16), "none": torch.zeros(0, 4), "turned": torch.rand(3, 4).T},
    }
    facts = {"step": 7, "mean": 0.1 + 0.2, "text": "größer", "none": None}
    path = save_checkpoint(tmp_path, Checkpoint(checkpoint_tensors(tiny_model(), **parts), facts), keep=1)
    assert path.name == "step-00000007.safetensors"
    loaded = load_checkpoint(path)
    assert loaded.facts == facts
    for prefix, part in parts.items():
        assert loaded.part(prefix).keys() == part.keys()
        for name, tensor in part.items():
            assert loaded.part(prefix)[name].dtype == tensor.dtype
            assert_same_bits(loaded.part(prefix)[name], tensor, name)


def test_the_newest_are_kept_and_nothing_of_others_is_removed(tmp_path):
    foreign = ["notes.txt", "step-1.safetensors", "step-00000001.safetensors.bak", "my-step-00000001.safetensors"]
    for name in [*foreign, ".model.safetensors.tmp"]:
        (tmp_path / name).write_text("mine")
    for step in (10, 20, 30, 40):
        save_at(tmp_path, step, keep=2)
    ours = ["step-00000030.safetensors", "step-00000040.safetensors"]
    assert names(tmp_path) == sorted([*foreign, ".model.safetensors.tmp", *ours])


def test_a_later_checkpoint_that_is_damaged_does_not_push_out_the_one_just_saved(tmp_path):
    save_at(tmp_path, 10)
    (tmp_path / "step-00000099.safetensors").write_bytes(b"rot")
    save_at(tmp_path, 20, keep=1)
    assert names(tmp_path) == ["step-00000020.safetensors", "step-00000099.safetensors"]
    newest = load_newest(tmp_path, tiny_model())
    assert newest is not None
    assert newest.facts["step"] == 20


def test_leftovers_of_a_killed_save_are_ignored(tmp_path):
    save_at(tmp_path, 10)
    (tmp_path / f".step-00000020.safetensors.{'0' * 32}.tmp").write_bytes(b"half")
    newest = load_newest(tmp_path, tiny_model())
    assert newest is not None
    assert newest.facts["step"] == 10


def test_there_is_no_newest_in_a_folder_without_checkpoints(tmp_path):
    assert load_newest(tmp_path / "missing", tiny_model()) is None
    assert load_newest(tmp_path, tiny_model()) is None


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def empty(path):
    path.write_bytes(b"")


def flip_a_bit_of_a_weight(path):
    content = bytearray(path.read_bytes())
    content[-50] ^= 1
    path.write_bytes(bytes(content))


def change_a_fact(path):
    content = path.read_bytes()
    changed = content.replace(rb"{\"step\": 20}", rb"{\"step\": 21}")
    assert changed != content
    path.write_bytes(changed)


def other_file(path):
    path.write_text("not a checkpoint at all")


def plain_weights(path):
    save_file({"a": torch.ones(2)}, path)


def other_version(path):
    content = path.read_bytes()
    changed = content.replace(b'"version":"1"', b'"version":"9"')
    assert changed != content
    path.write_bytes(changed)


def a_pickle(path):
    torch.save({"a": torch.ones(2)}, path)


def other_shape(path):
    save_at(path.parent, 20, model=TinyModel(width=9))


def other_dtype(path):
    save_at(path.parent, 20, model=tiny_model().double())


def other_names(path):
    save_at(path.parent, 20, model=tiny_model(tied=True))


def a_folder(path):
    path.unlink()
    path.mkdir()


DAMAGES = {
    truncate: "cut short",
    empty: "cut short",
    flip_a_bit_of_a_weight: "damaged",
    change_a_fact: "damaged",
    other_file: "not a safetensors file",
    plain_weights: "not a training checkpoint",
    other_version: "format version 9",
    a_pickle: "pickle",
    other_shape: r"shape \(8, 9\)",
    other_dtype: "float64",
    other_names: "missing readout.weight",
    a_folder: "directory",
}


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_bad_checkpoint_is_named_and_the_one_before_it_is_used(tmp_path, caplog, damage):
    save_at(tmp_path, 10)
    bad = save_at(tmp_path, 20)
    damage(bad)
    with caplog.at_level(logging.WARNING):
        newest = load_newest(tmp_path, tiny_model())
    assert newest is not None
    assert newest.facts["step"] == 10
    assert bad.name in caplog.text
    assert re.search(DAMAGES[damage], caplog.text, re.IGNORECASE), caplog.text


@pytest.mark.parametrize("damage", [truncate, other_shape])
def test_no_good_checkpoint_is_an_error_that_names_file_and_remedy(tmp_path, damage):
    damage(save_at(tmp_path, 20))
    with pytest.raises(ValueError, match=r"step-00000020.*another folder"):
        load_newest(tmp_path, tiny_model())


def test_a_folder_with_pickle_checkpoints_only_is_refused(tmp_path):
    a_pickle(tmp_path / "step-00000050.pt")
    with pytest.raises(ValueError, match=r"step-00000050\.pt is a pickle"):
        load_newest(tmp_path, tiny_model())


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_last_checkpoint_and_no_half_file(tmp_path, monkeypatch, call):
    save_at(tmp_path, 10)
    monkeypatch.setattr(os, call, full_disk)
    with pytest.raises(OSError, match=r"No space left on device while writing .*step-00000020.*resume") as caught:
        save_at(tmp_path, 20, keep=1)
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.undo()
    assert names(tmp_path) == ["step-00000010.safetensors"]
    assert load_checkpoint(tmp_path / "step-00000010.safetensors").facts == {"step": 10}


@pytest.mark.parametrize("tied", [False, True])
def test_weights_come_back_with_every_bit(tmp_path, tied):
    model, other = tiny_model(tied=tied), TinyModel(tied=tied)
    path = tmp_path / "model.safetensors"
    save_weights(model, path)
    load_weights(other, path)
    for name, tensor in model.state_dict().items():
        assert_same_bits(other.state_dict()[name], tensor, name)
    assert ("readout.weight" in load_file(path)) == (not tied)
    assert (other.readout.weight is other.embedding.weight) == tied


def test_the_same_weights_and_checkpoints_are_the_same_bytes(tmp_path):
    facts = {"step": 1, "text": 'größer\n"\x7f\x1f\\', "e": 1e-300}
    files = set()
    for again in range(8):
        path = save_checkpoint(tmp_path / str(again), Checkpoint(checkpoint_tensors(tiny_model()), facts), keep=1)
        save_weights(tiny_model(), tmp_path / "model.safetensors")
        files.add((path.read_bytes(), (tmp_path / "model.safetensors").read_bytes()))
        assert load_checkpoint(path).facts == facts
    assert len(files) == 1


def test_weights_can_be_read_at_another_precision(tmp_path):
    save_weights(tiny_model(), tmp_path / "model.safetensors")
    double = TinyModel().double()
    load_weights(double, tmp_path / "model.safetensors")
    assert_same_bits(double.hidden.weight, tiny_model().hidden.weight.double())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"readout.weight": None}, r"missing readout\.weight"),
        ({"extra": torch.ones(1)}, "unexpected extra"),
        ({"hidden.weight": torch.ones(8, 9)}, r"hidden\.weight has shape \(8, 9\), the model's is \(8, 8\)"),
    ],
)
def test_weights_that_do_not_fit_are_refused_and_change_nothing(tmp_path, content, message):
    path = tmp_path / "model.safetensors"
    state = {name: torch.zeros_like(tensor) for name, tensor in tiny_model().state_dict().items()}
    save_file({name: tensor for name, tensor in {**state, **content}.items() if tensor is not None}, path)
    model = tiny_model()
    with pytest.raises(ValueError, match=rf"model\.safetensors does not fit this model: {message}"):
        load_weights(model, path)
    for name, tensor in tiny_model().state_dict().items():
        assert_same_bits(model.state_dict()[name], tensor, name)


@pytest.mark.parametrize("suffix", [".pt", ".bin", ".pkl", ".safetensors"])
@pytest.mark.parametrize("protocol", ["zip", 2, 4])
def test_pickles_are_refused_under_any_name(tmp_path, suffix, protocol):
    path = tmp_path / f"weights{suffix}"
    if protocol == "zip":
        torch.save(tiny_model().state_dict(), path)
    else:
        path.write_bytes(pickle.dumps({"a": [1.0]}, protocol=protocol))
    with pytest.raises(ValueError, match=rf"weights{suffix} is a pickle file, refused"):
        load_weights(tiny_model(), path)


@pytest.mark.parametrize(("length", "start"), [(0x4B50, b"PK"), (0x0280, b"\x80\x02")])
def test_a_safetensors_file_that_starts_like_a_pickle_is_read(tmp_path, length, start):
    """A safetensors file starts with the length of its header, which can be any multiple of 8."""
    path = tmp_path / "model.safetensors"
    save_file(tiny_model().state_dict(), path, {"note": ""})
    shortest = int.from_bytes(path.read_bytes()[:8], "little")
    save_file(tiny_model().state_dict(), path, {"note": " " * (length - shortest)})
    assert path.read_bytes().startswith(start)
    load_weights(TinyModel(), path)


def test_other_weight_files_are_refused_with_their_name(tmp_path):
    with pytest.raises(ValueError, match=r"nothing-here\.safetensors does not exist"):
        load_weights(tiny_model(), tmp_path / "nothing-here.safetensors")
    checkpoint = save_at(tmp_path, 5)
    with pytest.raises(ValueError, match="is a training checkpoint, not weights"):
        load_weights(tiny_model(), checkpoint)
    save_file(tiny_model().state_dict(), tmp_path / "future.safetensors", {"relnet_weights": "2"})
    with pytest.raises(ValueError, match="format version 2"):
        load_weights(tiny_model(), tmp_path / "future.safetensors")


def test_facts_are_readable_without_relnet(tmp_path):
    content = save_at(tmp_path, 5).read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert json.loads(header["__metadata__"]["facts"]) == {"step": 5}
