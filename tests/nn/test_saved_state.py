"""A state on disk: it goes on with the same bits, and what is no such file is refused."""

import dataclasses
import json
import os

import pytest
import safetensors.torch
import torch

from relnet import nn
from tests.assertions import assert_same_bits
from tests.nn.cases import (
    CAUSAL,
    MODES,
    STATEFUL,
    STATES,
    WIDTH,
    growing_state,
    live,
    make_mixer,
    make_model,
    random_ids,
    random_values,
)


@pytest.mark.parametrize(("mode", "masked"), STATES)
@pytest.mark.parametrize("name", STATEFUL)
def test_a_saved_state_goes_on_with_the_same_bits(name, mode, masked, tmp_path):
    model = make_model(name)
    with MODES[mode]():
        state = growing_state(model, mode, masked)
        state.save(tmp_path / "state.safetensors")
        loaded = nn.ModelState.load(tmp_path / "state.safetensors")
        assert loaded.nbytes == state.nbytes
        for leaf, value in zip(live(loaded), live(state), strict=True):
            assert_same_bits(leaf, value)
            assert leaf.dtype == value.dtype
        for seed in range(3):
            tokens = random_ids(2, 2, seed=seed)
            logits, state = model(tokens, state)
            loaded_logits, loaded = model(tokens, loaded)
            assert_same_bits(loaded_logits, logits)


@pytest.mark.parametrize("name", CAUSAL)
def test_the_state_of_a_mixer_is_saved_and_loaded(name, tmp_path):
    mixer = make_mixer(CAUSAL[name])
    _, state = mixer(random_values(2, 4, WIDTH), None, torch.tensor([[True] * 4, [False] * 2 + [True] * 2]))
    state.save(tmp_path / "state")
    loaded = nn.State.load(tmp_path / "state")
    assert type(loaded) is type(state)
    x = random_values(2, 2, WIDTH, seed=1)
    assert_same_bits(mixer(x, loaded)[0], mixer(x, state)[0])


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "state.safetensors"
    growing_state(make_model("causalrn"), "no_grad", False).save(path)
    return path


def rewrite(path, metadata: dict[str, str] | None) -> None:
    safetensors.torch.save_file(safetensors.torch.load_file(path), path, metadata=metadata)


def test_a_saved_state_is_not_overwritten(saved):
    content = saved.read_bytes()
    with pytest.raises(ValueError, match=r"state\.safetensors exists"):
        growing_state(make_model("lstm"), "no_grad", False).save(saved)
    assert saved.read_bytes() == content


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(ValueError, match="absent is not a folder; make it first"):
        growing_state(make_model("lstm"), "no_grad", False).save(tmp_path / "absent" / "state")


def test_saving_leaves_the_state_file_and_nothing_else(saved):
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_a_save_that_fails_leaves_no_file(tmp_path, monkeypatch):
    """The disk has all of it before it takes its name."""
    seen = []

    def full_disk(_):
        seen.extend(path.name for path in tmp_path.iterdir())
        raise OSError("No space left on device")

    state = growing_state(make_model("causalrn"), "no_grad", False)
    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space"):
        state.save(tmp_path / "state.safetensors")
    assert len(seen) == 1
    assert "state.safetensors" not in seen
    assert list(tmp_path.iterdir()) == []


def test_saving_touches_no_other_file(tmp_path):
    others = ("state.partial", "state.tmp", ".state.tmp", ".state.partial")
    for name in others:
        (tmp_path / name).write_text("mine")
    growing_state(make_model("lstm"), "no_grad", False).save(tmp_path / "state")
    assert [(tmp_path / name).read_text() for name in others] == ["mine"] * len(others)


def test_a_model_saves_no_state_that_it_could_not_go_on_from(tmp_path):
    model = make_model("causalrn")
    others = [make_model("lstm"), nn.SequenceModel(nn.ModelConfig(29, WIDTH, 1, 40, nn.CausalRNConfig(hidden=8)))]
    for state in (None, *(other(random_ids(2, 5))[1] for other in others)):
        with pytest.raises(ValueError, match=r"state (is|is not) "):
            model.save_state(state, tmp_path / "state")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_saved_state(tmp_path):
    with pytest.raises(ValueError, match="is not a saved state"):
        make_model("causalrn").load_state(tmp_path)


def test_a_state_of_another_kind_is_refused(saved):
    with pytest.raises(ValueError, match="holds a ModelState, not a LSTMState"):
        nn.LSTMState.load(saved)


@pytest.mark.parametrize("length", [0, 4, 100, -1])
def test_a_truncated_state_is_refused(saved, length):
    saved.write_bytes(saved.read_bytes()[:length])
    with pytest.raises(ValueError, match="is not a saved state"):
        nn.ModelState.load(saved)


def test_a_file_that_is_no_state_is_refused(saved):
    rewrite(saved, None)
    with pytest.raises(ValueError, match="not a saved state"):
        nn.ModelState.load(saved)
    rewrite(saved, {"relnet_state": "no json"})
    with pytest.raises(ValueError, match="not a saved state"):
        nn.ModelState.load(saved)
    for other in ("[]", "{}", "7", json.dumps({"format": 1})):
        rewrite(saved, {"relnet_state": other})
        with pytest.raises(ValueError, match="not a saved state"):
            nn.ModelState.load(saved)
    saved.write_text("a text")
    with pytest.raises(ValueError, match="not a saved state"):
        nn.ModelState.load(saved)


def test_a_missing_state_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="absent"):
        nn.ModelState.load(tmp_path / "absent")


def test_another_format_version_is_refused(saved):
    header = read_header(saved)
    rewrite(saved, {"relnet_state": json.dumps(header | {"format": 99})})
    with pytest.raises(ValueError, match="state format 99; this version of relnet reads 1"):
        nn.ModelState.load(saved)


@pytest.mark.parametrize("leaf", range(4))
def test_a_state_with_a_changed_bit_is_refused(saved, leaf):
    content = safetensors.torch.load_file(saved)
    header = read_header(saved)
    name = sorted(content)[leaf % len(content)]
    content[name].view(torch.uint8).view(-1)[leaf] ^= 1
    safetensors.torch.save_file(content, saved, metadata={"relnet_state": json.dumps(header)})
    with pytest.raises(ValueError, match=r"state\.safetensors is damaged"):
        nn.ModelState.load(saved)


def change_count(header, tensors):
    header["structure"]["fields"]["num_tokens"] = -3


def change_reference(header, tensors):
    header["structure"]["fields"]["mixers"][0]["fields"]["source"]["cache"] = "nowhere"


def change_fields(header, tensors):
    del header["structure"]["fields"]["mixers"]


def change_tensors(header, tensors):
    tensors.popitem()


def change_nothing_but_the_digest(header, tensors):
    del header["digest"]


@pytest.mark.parametrize(
    "change", [change_count, change_reference, change_fields, change_tensors, change_nothing_but_the_digest]
)
def test_a_state_edited_by_hand_is_refused(saved, change):
    header, tensors = read_header(saved), safetensors.torch.load_file(saved)
    change(header, tensors)
    safetensors.torch.save_file(tensors, saved, metadata={"relnet_state": json.dumps(header)})
    with pytest.raises(ValueError, match=r"state\.safetensors is damaged"):
        nn.ModelState.load(saved)


def test_a_kind_that_is_not_known_is_refused(tmp_path, monkeypatch):
    saved = tmp_path / "state"
    monkeypatch.setattr(nn.State, "_kinds", dict(nn.State._kinds))

    @dataclasses.dataclass(frozen=True)
    class HolographicState(nn.State):
        wave: torch.Tensor

    HolographicState(torch.zeros(1, 2)).save(saved)
    del nn.State._kinds["HolographicState"]
    with pytest.raises(ValueError, match="'HolographicState', which this version of relnet does not know"):
        nn.ModelState.load(saved)


def read_header(path) -> dict:
    with safetensors.safe_open(path, "pt") as file:
        return json.loads(file.metadata()["relnet_state"])
