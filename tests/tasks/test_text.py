import dataclasses
import os

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers

from relnet.tasks import Text
from relnet.tasks import text_sources as sources
from tests.assertions import assert_same_bits

# Any 8 bytes say where they stand.
NUMBERED = "".join(f"{number:04d}\n" for number in range(400)).encode()


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RELNET_DATA", str(tmp_path / "data"))


@pytest.fixture
def numbered(tmp_path):
    path = tmp_path / "numbered.txt"
    path.write_bytes(NUMBERED)
    return str(path)


def as_bytes(row):
    return bytes(row.tolist())


def test_an_item_is_the_same_in_any_batch_and_order_and_predicts_the_next_byte(numbered):
    task = Text((numbered,), context=32)
    whole = task.sample(6, seed=3, index=70)
    for row in (4, 0, 5):
        again = Text((numbered,), context=32).sample(1, seed=3, index=70 + row)
        assert_same_bits(again.inputs[0], whole.inputs[row])
        assert_same_bits(again.targets[0], whole.targets[row])
    assert torch.equal(whole.inputs[:, 1:], whole.targets[:, :-1])
    for inputs, targets in zip(whole.inputs, whole.targets, strict=True):
        assert as_bytes(inputs) + as_bytes(targets[-1:]) in NUMBERED
    assert not torch.equal(whole.inputs, task.sample(6, seed=4, index=70).inputs)


@pytest.mark.parametrize("context", [8, 38, 900])
def test_an_epoch_has_every_window_once_and_the_next_one_is_cut_and_ordered_anew(numbered, context):
    task = Text((numbered,), context=context)
    epochs = []
    for epoch in range(2):
        rows = task.sample(task.num_windows, seed=0, index=epoch * task.num_windows).inputs
        epochs.append([NUMBERED.index(as_bytes(row)) for row in rows])
    for starts in epochs:
        assert len({start % context for start in starts}) == 1
        assert sorted(starts) == list(range(min(starts), max(starts) + 1, context))
        assert len(starts) >= len(task.training.tokens) // context - 1
    assert epochs[0] != epochs[1]


def test_the_shortest_text_is_one_window(numbered):
    task = Text((numbered,), context=len(NUMBERED) - 101, validation_share=100 / len(NUMBERED))
    assert task.num_windows == 1
    batch = task.sample(2, seed=0, index=0)
    assert as_bytes(batch.inputs[1]) + as_bytes(batch.targets[1, -1:]) == NUMBERED[:-100]
    with pytest.raises(ValueError, match=r"too short for a context of 1900"):
        Text((numbered,), context=len(NUMBERED) - 100, validation_share=100 / len(NUMBERED)).prepared()


def test_no_validation_text_is_trained_on_and_none_is_lost(numbered, tmp_path):
    task = Text((numbered,), validation_share=0.25)
    parts = bytes(task.training.tokens), bytes(task.validating.tokens)
    assert b"".join(parts) == NUMBERED
    assert (task.training.num_bytes, task.validating.num_bytes) == (1500, 500)
    other = tmp_path / "other.txt"
    other.write_text("something else")
    task = Text((numbered,), validation=str(other))
    assert bytes(task.training.tokens) == NUMBERED
    assert bytes(task.validating.tokens) == b"something else"


def test_texts_follow_each_other_as_given_and_files_of_a_folder_by_name(tmp_path):
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    for name, content in (("b.txt", "B" * 9), ("a.txt", "A" * 9), ("deep/c.txt", "C" * 9), ("image.png", "\0")):
        (folder / name).write_text(content)
    for data, expected in (
        ((folder,), "A" * 9 + "B" * 9 + "C" * 9),
        ((folder / "b.txt", folder / "a.txt"), "B" * 9 + "A" * 9),
    ):
        task = Text(tuple(map(str, data)), context=4, validation_share=0.1)
        assert bytes(task.training.tokens) + bytes(task.validating.tokens) == expected.encode()


BEYOND_A_BLOCK = b"x" * (sources.BLOCK - 1)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"abc\0def" * 99, r"binary file \(byte 3 is 0\)"),
        (b"abc\xffdef" * 99, r"not UTF-8 \(byte 3: invalid start byte"),
        ("naïve".encode("latin-1") * 99, r"not UTF-8 \(byte 2:"),
        (BEYOND_A_BLOCK + b"\xc3(", rf"not UTF-8 \(byte {sources.BLOCK - 1:,}:"),
        (b"x" * 999 + b"\xe2\x82", "cut short"),
        (b"x" * 200, "too short for a context of 256"),
        (b"x", "too short to cut 0.05 off"),
    ],
)
def test_a_text_that_cannot_be_learnt_is_refused_by_name(tmp_path, content, message):
    path = tmp_path / "mine.txt"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        Text((str(path),)).prepared()
    assert path.read_bytes() == content


def test_what_is_no_text_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    for name, message in (("empty", r"no \*\.txt files"), ("none.txt", "is no file of text")):
        with pytest.raises(ValueError, match=message):
            Text((str(tmp_path / name),)).prepared()
    for changes, message in (
        ({"data": ()}, "no text given"),
        ({"data": "mine.txt"}, r"give a tuple of texts, \('mine.txt',\)"),
        ({"context": 0}, "context 0"),
        ({"validation_share": 0.0}, "validation_share 0.0"),
        ({"validation_share": 0.6}, "validation_share 0.6"),
        ({"tokenizer": str(tmp_path / "empty")}, r"empty cannot be had .* tokenizer\.json"),
    ):
        with pytest.raises(ValueError, match=message):
            Text(**{"data": ("x",), **changes}).vocab_size  # noqa: B018


def test_a_prepared_task_says_what_text_it_was_and_refuses_another(numbered, tmp_path):
    task = Text((numbered,), context=8).prepared()
    assert task == Text((numbered,), context=8, stores=task.stores)
    kept = task.sample(3, seed=0, index=0).inputs
    with open(numbered, "a") as file:
        file.write("more")
    assert_same_bits(Text((numbered,), context=8, stores=task.stores).sample(3, seed=0, index=0).inputs, kept)
    assert Text((numbered,), context=8).prepared().stores != task.stores
    for path in (tmp_path / "data").rglob("store.json"):
        path.unlink()
    with pytest.raises(ValueError, match=r"numbered\.txt: no longer the text"):
        dataclasses.replace(task).prepared()


def test_a_text_is_not_validated_on_itself(numbered, tmp_path):
    copy = tmp_path / "copy.txt"
    copy.write_bytes(NUMBERED)
    other = tmp_path / "other.txt"
    other.write_text("something else")
    for validation in (numbered, str(copy)):
        with pytest.raises(ValueError, match="trained on too says nothing"):
            Text((str(other), numbered), context=8, validation=validation).prepared()


def test_every_file_of_a_folder_is_read_or_refused(tmp_path, monkeypatch):
    folder = tmp_path / "texts"
    (folder / "locked").mkdir(parents=True)
    (folder / "a.txt").write_text("text " * 99)
    scandir = os.scandir

    def guarded(place):
        if str(place).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(place))
        return scandir(place)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", guarded)
        with pytest.raises(PermissionError, match="locked"):
            Text((str(folder),), context=8).prepared()
    (folder / "b.txt").symlink_to(tmp_path / "gone.txt")
    with pytest.raises(ValueError, match=r"b\.txt is no file of text"):
        Text((str(folder),), context=8).prepared()


def test_encode_and_decode_are_inverse_and_show_what_is_no_text():
    task = Text(("any",))
    assert task.decode(task.encode("naïve €\n")) == "naïve €\n"
    assert task.decode(torch.tensor([104, 0xC3, -1])) == "h\N{REPLACEMENT CHARACTER}"
    with pytest.raises(ValueError, match="empty text"):
        task.encode("")


def write_tokenizer(folder, words):
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token=words[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.enable_truncation(4)
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    return str(folder)


def test_a_tokenizers_tokens_are_those_of_the_whole_text_in_16_bits(tmp_path):
    words = ["?", *(f"w{number}" for number in range(1, 600))]
    folder = write_tokenizer(tmp_path / "words", words)
    said = np.random.default_rng(0).integers(1, 600, 20_000)
    path = tmp_path / "said.txt"
    spaces = ["\n" if place % 9 == 0 else " " for place in range(len(said))]
    path.write_text("".join(words[number] + space for number, space in zip(said, spaces, strict=True)))
    task = Text((str(path),), context=16, tokenizer=folder, validation_share=0.3)
    assert task.vocab_size == 600
    assert task.training.tokens.dtype == np.uint16
    assert np.array_equal(np.concatenate([task.training.tokens, task.validating.tokens]), said)
    # The cut is between tokens, near the share, and the bytes are those of the tokens.
    behind = task.validating.num_bytes
    assert abs(behind / path.stat().st_size - 0.3) < 0.2
    assert len(path.read_bytes()[-behind:].split()) == len(task.validating.tokens)
    assert task.decode(task.encode("w3 w5 nowhere")) == "w3 w5 ?"


def test_a_vocabulary_beyond_16_bits_is_refused(tmp_path):
    folder = write_tokenizer(tmp_path / "large", ["?", *(f"w{number}" for number in range(2**16))])
    with pytest.raises(ValueError, match=r"has 65,537 tokens; prepared text has room for 65,536"):
        Text(("any",), tokenizer=folder).vocab_size  # noqa: B018
