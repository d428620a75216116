import os

import numpy as np
import pytest
import torch
from PIL import Image

from relnet.tasks import Images, patches
from relnet.tasks.image_store import ImageStore, store_folder
from tests.assertions import assert_same_bits


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RELNET_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def pixels_of(number, size=(8, 8, 3)):
    """Pixels that no other image has."""
    return np.random.default_rng(number).integers(0, 256, size, dtype=np.uint8)


@pytest.fixture
def folder(tmp_path):
    """Two classes of ten PNGs of 8 x 8."""
    root = tmp_path / "pictures"
    for label, name in enumerate(("cat", "dog")):
        (root / name).mkdir(parents=True)
        for number in range(10):
            Image.fromarray(pixels_of(10 * label + number)).save(root / name / f"{number}.png")
    return root


def task_of(folder, **options):
    return Images((str(folder),), **{"patch": 4, "mean": (0.0,) * 3, "std": (1 / 255,) * 3, **options}).prepared()


def whole(batch):
    """The images of a batch as uint8, from patches of 4 in images of 8 x 8."""
    rows = batch.inputs.round().to(torch.uint8).view(-1, 2, 2, 4, 4, 3)
    return rows.permute(0, 1, 3, 2, 4, 5).reshape(-1, 8, 8, 3).numpy()


def test_every_image_is_trained_on_once_an_epoch_or_held_out(folder):
    task = task_of(folder)
    assert (task.num_training, task.num_held_out) == (16, 4)
    drawn = whole(task.sample(16, seed=1, index=16))
    held = whole(task.held_out(0, 10))
    assert len(held) == 4
    found = {image.tobytes() for image in (*drawn, *held)}
    assert found == {pixels_of(number).tobytes() for number in range(20)}
    again = whole(task.sample(16, seed=1, index=32))
    assert {image.tobytes() for image in again} == {image.tobytes() for image in drawn}
    assert not np.array_equal(again, drawn), "each epoch has an order of its own"


def test_labels_stay_with_their_images(folder):
    task = task_of(folder)
    batch = task.sample(16, seed=0, index=0)
    labels = {pixels_of(number).tobytes(): number // 10 for number in range(20)}
    assert batch.targets.tolist() == [labels[image.tobytes()] for image in whole(batch)]
    assert task.classes == ("cat", "dog")


@pytest.mark.parametrize("options", [{}, {"flip": True, "crop": 2}])
def test_an_item_is_the_same_in_any_batch_and_process(folder, options):
    task = task_of(folder, **options)
    both, last = task.sample(5, seed=3, index=30), task_of(folder, **options).sample(1, seed=3, index=34)
    assert_same_bits(both.inputs[4:], last.inputs)
    assert not torch.equal(both.inputs, task.sample(5, seed=4, index=30).inputs)


def test_flips_and_shifts_move_images_and_nothing_else(folder):
    plain, moved = task_of(folder), task_of(folder, flip=True, crop=2)
    before, after = whole(plain.sample(64, seed=0, index=0)), whole(moved.sample(64, seed=0, index=0))
    kinds = set()
    for image, shifted in zip(before, after, strict=True):
        places = [
            (turned, down, right)
            for turned in (False, True)
            for down in range(5)
            for right in range(5)
            if np.array_equal(
                np.pad(image[:, ::-1] if turned else image, ((2, 2), (2, 2), (0, 0)))[
                    down : down + 8, right : right + 8
                ],
                shifted,
            )
        ]
        assert len(places) == 1
        kinds |= set(places)
    assert len({turned for turned, _, _ in kinds}) == 2
    assert len({down for _, down, _ in kinds}) == len({right for _, _, right in kinds}) == 5
    assert_same_bits(plain.held_out(0, 4).inputs, moved.held_out(0, 4).inputs)


def test_patches_are_the_squares_of_an_image_row_by_row():
    images = torch.arange(2 * 4 * 6 * 3).view(2, 4, 6, 3)
    cut = patches(images, 2)
    assert cut.shape == (2, 6, 12)
    for number in range(6):
        row, column = divmod(number, 3)
        expected = images[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2].flatten(1)
        assert torch.equal(cut[:, number], expected)
    with pytest.raises(ValueError, match="do not divide"):
        patches(images, 4)


def test_channels_are_normalised_by_their_own_mean_and_deviation(folder):
    task = Images((str(folder),), patch=8).prepared()
    store = ImageStore(store_folder(task.stores[0]))
    values = task.normalise(store.images["pixels"]).reshape(-1, 3)
    assert np.abs(values.mean(0)).max() < 1e-6
    assert np.abs(values.std(0) - 1).max() < 1e-5


def test_what_a_prepared_task_knows_needs_no_data(folder, data_folder):
    task = task_of(folder)
    os.rename(data_folder, data_folder.with_name("gone"))
    os.rename(folder, folder.with_name("gone-too"))
    assert task.classes == ("cat", "dog")
    assert task.encode(pixels_of(0)[None]).shape == (1, 4, 48)


def test_train_and_test_folders_of_a_data_set_are_taken_as_such(folder, tmp_path):
    (tmp_path / "both").mkdir()
    os.rename(folder, tmp_path / "both" / "train")
    for name in ("cat", "dog"):
        (tmp_path / "both" / "test" / name).mkdir(parents=True)
        Image.fromarray(pixels_of(99)).save(tmp_path / "both" / "test" / name / "x.png")
    task = task_of(tmp_path / "both")
    assert (task.num_training, task.num_held_out) == (20, 2)
    os.rename(tmp_path / "both" / "test", tmp_path / "both" / "val")
    task = task_of(tmp_path / "both")
    assert (task.classes, task.num_training, task.num_held_out) == (("cat", "dog"), 20, 2)
    with pytest.raises(ValueError, match=r"a folder train of folders, which is no class; give .*both/train"):
        task_of(tmp_path / "both", test=str(tmp_path / "both" / "val"))
    with pytest.raises(ValueError, match="trained on too"):
        task_of(tmp_path / "both" / "train", test=str(tmp_path / "both" / "train"))


def test_data_that_changed_since_are_refused(folder, data_folder):
    task = task_of(folder)
    Image.fromarray(pixels_of(77)).save(folder / "cat" / "0.png")
    assert task.prepared() is task
    os.rename(data_folder, data_folder.with_name("gone"))
    with pytest.raises(ValueError, match="no longer the images"):
        task.prepared()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"patch": 3}, "do not divide images of 8 x 8"),
        ({"test_share": 0.01}, "too few to hold some out"),
        ({"test_share": 0.7}, "at most 0.5"),
        ({"crop": -1}, "crop -1"),
        ({"mean": (0.0,)}, "3 channels"),
        ({"std": (1.0, 0.0, 1.0)}, "above 0"),
    ],
)
def test_settings_that_do_not_fit_are_refused(folder, options, said):
    with pytest.raises(ValueError, match=said):
        task_of(folder, **options)


def test_the_digits_of_scikit_learn_are_the_default():
    task = Images().prepared()
    assert task.seen.pixels == (8, 8, 1)
    assert task.num_training + task.num_held_out == 1797
    counts = torch.bincount(task.held_out(0, 400).targets, minlength=10)
    assert counts.min() > 20, "every class is held out"
