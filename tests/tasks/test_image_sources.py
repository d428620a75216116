import io
import os
import shutil

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from relnet.tasks import Images
from relnet.tasks.image_archives import NpzSource
from relnet.tasks.image_decoding import ImageError, decode
from relnet.tasks.image_opening import open_images
from relnet.tasks.image_sources import FolderSource, ParquetSource
from relnet.tasks.image_store import ImageStore, prepare, shape_of, store_folder
from tests.tasks.test_images import data_folder, pixels_of

__all__ = ["data_folder"]


def encoded(pixels, kind="PNG", **options):
    file = io.BytesIO()
    Image.fromarray(pixels.squeeze()).save(file, kind, **options)
    return file.getvalue()


def parquet(path, images, labels, names=None, **options):
    table = pa.table({"img": [{"bytes": image, "path": None} for image in images], "label": labels})
    if names:
        features = '{"info": {"features": {"label": {"names": ["' + '", "'.join(names) + '"]}}}}'
        table = table.replace_schema_metadata({"huggingface": features})
    pq.write_table(table, path, **options)
    return path


def npz(path, num=600, start=0, classes=3, side=4):
    images = np.stack([pixels_of(start + number, (side, side, 3)) for number in range(num)])
    np.savez(path, X=images, Y=np.arange(num) % classes)
    return path


class PowerCut(BaseException):
    pass


def stored(sources, skip=False, on_progress=None):
    return store_folder(prepare(sources, None, shape_of(sources, skip), skip, on_progress))


def test_every_source_gives_the_images_that_were_put_into_it(tmp_path):
    images = [pixels_of(number) for number in range(20)]
    labels = [number % 2 for number in range(20)]
    path = parquet(
        tmp_path / "a.parquet", [encoded(image) for image in images], labels, ["cat", "dog"], row_group_size=7
    )
    np.savez_compressed(tmp_path / "b.npz", X=np.stack(images), Y=np.array(labels))
    for number, image in enumerate(images):
        folder = tmp_path / "c" / f"class-{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:02d}.png").write_bytes(encoded(image))
    (tmp_path / "c" / "class-0" / "notes.txt").write_text("mine")
    for source, classes in (
        (ParquetSource(path), ("cat", "dog")),
        (NpzSource(tmp_path / "b.npz"), ("0", "1")),
        (FolderSource(tmp_path / "c"), ("class-0", "class-1")),
    ):
        found = list(source.examples(0))
        assert source.num_images == len(found) == 20
        assert source.classes == classes
        assert {(example[0].tobytes(), example[1]) for _, _, example in found} == {
            (image.tobytes(), label) for image, label in zip(images, labels, strict=True)
        }
        for start in (1, 7, 8, 19):
            assert [place for _, place, _ in source.examples(found[start - 1][0])] == [
                place for _, place, _ in found[start:]
            ]


def test_a_hub_data_set_is_streamed_with_the_names_of_its_classes(monkeypatch):
    images = [pixels_of(number) for number in range(6)]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    rows = {"image": [{"bytes": encoded(image), "path": None} for image in images], "label": [0, 1] * 3}
    made = datasets.Dataset.from_dict(rows, features=features)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: made.to_iterable_dataset())
    (source,) = open_images(["hub:some/pets"])
    assert source.classes == ("cat", "dog")
    assert [(position, example[1]) for position, _, example in source.examples(2)] == [(3, 0), (4, 1), (5, 0), (6, 1)]
    task = Images(("hub:some/pets",), patch=8, test_share=0.5).prepared()
    assert (task.num_training, task.num_held_out) == (3, 3)


def test_an_empty_cell_of_a_hub_data_set_is_one_faulty_image(monkeypatch):
    features = datasets.Features({"image": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    rows = {
        "image": [{"bytes": encoded(pixels_of(number)), "path": None} for number in range(5)],
        "label": [0, 1, 0, 1, 0],
    }
    rows["image"][3] = None
    made = datasets.Dataset.from_dict(rows, features=features)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: made.to_iterable_dataset())
    with pytest.raises(ImageError, match="hub:some/pets, row 3: no image in it"):
        Images(("hub:some/pets",), patch=8, test_share=0.5).prepared()
    task = Images(("hub:some/pets",), patch=8, test_share=0.5, skip=True).prepared()
    assert task.num_training + task.num_held_out == 4


def test_cifar_10_comes_from_the_hub_with_its_own_test_images(monkeypatch):
    features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=["cat", "dog"])})
    asked = []

    def load(path, config, split, streaming):
        asked.append((path, config, split))
        numbers = range(3) if split == "train" else range(10, 12)
        images = [{"bytes": encoded(pixels_of(number)), "path": None} for number in numbers]
        rows = {"img": images, "label": [0] * len(images)}
        return datasets.Dataset.from_dict(rows, features=features).to_iterable_dataset()

    monkeypatch.setattr(datasets, "load_dataset", load)
    task = Images(("cifar10",), patch=8).prepared()
    assert (task.num_training, task.num_held_out) == (3, 2)
    assert set(asked) == {("uoft-cs/cifar10", "plain_text", split) for split in ("train", "test")}


def faulty_parquet(tmp_path, image, label=1):
    good = [encoded(pixels_of(number)) for number in range(9)]
    return parquet(tmp_path / "mine.parquet", [*good, image], [*[0, 1] * 4, 0, label], ["cat", "dog"])


FAULTS = {
    "corrupt": (lambda: b"\x89PNG\r\n\x1a\n" + b"rot" * 30, 1, "no image, or a damaged one"),
    "cut JPEG": (lambda: encoded(pixels_of(0, (64, 64, 3)), "JPEG")[:900], 1, "no image, or a damaged one"),
    "empty": (lambda: b"", 1, "no image"),
    "missing": (lambda: None, 1, "no image in it"),
    "grey": (lambda: encoded(pixels_of(0, (8, 8))), 1, "8 x 8 grey, the first image is 8 x 8 RGB"),
    "RGBA": (lambda: encoded(pixels_of(0, (8, 8, 4))), 1, "RGBA, neither grey nor RGB"),
    "oversized": (lambda: encoded(pixels_of(0, (9, 8, 3))), 1, "8 x 9 RGB, the first image is 8 x 8 RGB"),
    "label too high": (lambda: encoded(pixels_of(0)), 2, "label 2, and there are 2 classes"),
    "label negative": (lambda: encoded(pixels_of(0)), -1, "label -1"),
    "no label": (lambda: encoded(pixels_of(0)), None, "label None"),
    "16 bits": (lambda: encoded(pixels_of(0).astype(np.uint16)[..., 0]), 1, "I;16, more than 8 bits a channel"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_image_is_refused_by_file_and_row_or_left_out_and_counted(tmp_path, fault, caplog):
    image, label, said = FAULTS[fault]
    path = faulty_parquet(tmp_path, image(), label)
    with pytest.raises(ValueError, match=said) as error:
        stored(open_images([str(path)]))
    assert f"{path}, row 9" in str(error.value)
    folder = stored(open_images([str(path)]), skip=True)
    store = ImageStore(folder)
    assert (len(store.images), store.skipped) == (9, 1)
    assert "1 of 10 images left out" in caplog.text


def test_a_size_brings_every_image_to_it(tmp_path):
    for name, mode in (("a", "L"), ("b", "RGBA"), ("c", "RGB"), ("d", "P"), ("e", "1")):
        folder = tmp_path / "all" / ("one" if name < "c" else "two")
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels_of(1, (40, 30, 3))).convert(mode).save(folder / f"{name}.png")
    task = Images((str(tmp_path / "all"),), size=16, patch=4, test_share=0.4).prepared()
    assert task.seen.pixels == (16, 16, 3)
    assert task.num_training == 3


def test_what_is_transparent_lies_on_white_and_the_middle_is_taken(tmp_path):
    pixels = np.zeros((4, 8, 4), np.uint8)
    pixels[:, 2:6] = (10, 20, 30, 255)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert np.array_equal(decode(tmp_path / "a.png", "a", (4, 4, 3)), np.broadcast_to((10, 20, 30), (4, 4, 3)))
    Image.new("RGBA", (4, 4)).save(tmp_path / "b.png")
    assert (decode(tmp_path / "b.png", "b", (4, 4, 3)) == 255).all()


@pytest.mark.parametrize(("dtype", "mode"), [(np.uint16, "I;16"), (np.int32, "I"), (np.float32, "F")])
def test_more_than_8_bits_a_channel_are_not_clipped_to_white(tmp_path, dtype, mode):
    Image.fromarray(np.full((8, 8), 30_000, dtype)).save(tmp_path / "deep.tif")
    for fit in (None, (8, 8, 3), (4, 4, 1)):
        with pytest.raises(ImageError, match=rf"deep\.tif is {mode}, more than 8 bits"):
            decode(tmp_path / "deep.tif", "deep.tif", fit)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF"])
@pytest.mark.parametrize("fit", [None, (12, 8, 3)])
def test_an_image_is_turned_as_its_exif_data_say(tmp_path, kind, fit):
    pixels = np.zeros((8, 12, 3), np.uint8)
    pixels[:, :4] = 255
    exif = Image.Exif()
    # Turned left by the camera, to be turned right to be seen: what was left lies on top.
    exif[0x0112] = 6
    path = tmp_path / f"turned.{kind.lower()}"
    Image.fromarray(pixels).save(path, kind, exif=exif)
    seen = decode(path, "turned", fit)
    assert seen.shape == (12, 8, 3)
    assert seen[:3].min() > 200
    assert seen[6:].max() < 50


def test_damaged_exif_data_are_no_damage_of_the_image():
    exif = Image.Exif()
    exif[0x010E] = "what it shows" * 20
    for content in (exif.tobytes()[:40], b"Exif\0\0no such thing"):
        assert np.array_equal(decode(encoded(pixels_of(0), exif=content), "a"), pixels_of(0))


def test_only_the_kinds_of_the_known_endings_are_opened(monkeypatch):
    """What Pillow hands on, as EPS to Ghostscript, is not looked at."""
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "EPS")
    opened = []
    eps = Image.OPEN["EPS"]
    monkeypatch.setitem(Image.OPEN, "EPS", (lambda *given: (opened.append(given), eps[0](*given))[1], eps[1]))
    with pytest.raises(ImageError, match="no image"):
        decode(file.getvalue(), "a.png", (8, 8, 3))
    assert not opened


def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(tmp_path):
    path = tmp_path / "bomb.png"
    Image.new("1", (2**14, 2**13)).save(path)
    with pytest.raises(ImageError, match=r"bomb\.png: 16384 x 8192 pixels are too many"):
        decode(path, str(path), (8, 8, 3))


def cut(path):
    os.truncate(path, path.stat().st_size - 200)


def damage(path):
    content = bytearray(path.read_bytes())
    content[2000] ^= 255
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("harm", [cut, damage])
@pytest.mark.parametrize("name", ["a.npz", "a.parquet"])
def test_a_file_that_is_cut_or_damaged_is_named(tmp_path, harm, name):
    if name.endswith(".npz"):
        path = npz(tmp_path / name)
    else:
        path = parquet(tmp_path / name, [encoded(pixels_of(n)) for n in range(30)], [0, 1] * 15, use_dictionary=False)
    harm(path)
    with pytest.raises(ValueError, match=str(path)):
        stored(open_images([str(path)]))


def damage_late(path, image=550):
    """Turn a bit behind the first chunks; every copy of an archive says the same checksums."""
    content = bytearray(path.read_bytes())
    content[content.find(pixels_of(image, (4, 4, 3)).tobytes())] ^= 255
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("killed", [False, True])
def test_no_image_of_a_damaged_archive_stays_when_a_good_copy_takes_its_place(
    tmp_path, data_folder, killed, monkeypatch
):
    good = npz(tmp_path / "a.npz")
    expected = (stored([NpzSource(good)]) / "images.bin").read_bytes()
    monkeypatch.setenv("RELNET_DATA", str(data_folder / "second"))
    (tmp_path / "bad").mkdir()
    bad = tmp_path / "bad" / "a.npz"
    shutil.copy(good, bad)
    damage_late(bad, image=3)

    def cut(*_):
        raise PowerCut

    with pytest.raises(ValueError, match="damaged"):
        stored([NpzSource(bad)], on_progress=cut if killed else None)
    assert (stored([NpzSource(good)]) / "images.bin").read_bytes() == expected


def test_damage_is_found_wherever_reading_begins(tmp_path):
    damage_late(npz(tmp_path / "a.npz"))
    for position in (1, 300, 599):
        with pytest.raises(ValueError, match="damaged"):
            list(NpzSource(tmp_path / "a.npz").examples(position))
    # The first alone, for its shape, is not kept.
    next(NpzSource(tmp_path / "a.npz").examples(0))


def test_a_parquet_file_that_fails_while_it_is_read_is_named(tmp_path, monkeypatch):
    path = parquet(tmp_path / "a.parquet", [encoded(pixels_of(0))] * 2, [0, 1])
    (source,) = open_images([str(path)])
    for error in (OSError(), OSError(5, "no answer"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "not UTF-8")):

        def fail(*_, error=error, **__):
            raise error

        monkeypatch.setattr(pq.ParquetFile, "iter_batches", fail)
        with pytest.raises(ValueError, match=f"{path} is no parquet file, or a damaged one"):
            list(source.examples(0))


def test_an_archive_that_zipfile_does_not_know_is_named(tmp_path):
    path = npz(tmp_path / "a.npz", 10)
    content = path.read_bytes()
    for place, value in ((6, 255), (8, 1)):
        # Of each entry in the directory: the version that it takes to read it, and whether it is encrypted.
        changed, at = bytearray(content), -1
        while (at := content.find(b"PK\x01\x02", at + 1)) >= 0:
            changed[at + place] = value
        path.write_bytes(bytes(changed))
        with pytest.raises(ValueError, match=f"{path} is cut short or damaged"):
            NpzSource(path)


def arrays(**given):
    return lambda path: np.savez(path, **given)


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (arrays(X=np.zeros((2, 4, 4, 3), np.uint8)), "X .images. and Y .labels. wanted"),
        (arrays(X=np.zeros((2, 4, 4, 3)), Y=np.zeros(2, int)), "uint8 wanted"),
        (arrays(X=np.zeros((2, 4, 4, 3), np.uint8), Y=np.zeros(3, int)), "uint8 wanted"),
        (arrays(X=np.zeros((2, 4, 4, 3), np.uint8), Y=np.zeros(2)), "whole numbers"),
        (lambda path: path.write_bytes(b"not a zip"), "cut short or damaged"),
        (lambda path: path.write_bytes(b""), "cut short or damaged"),
    ],
)
def test_an_archive_that_is_no_part_of_cifar_5m_is_refused(tmp_path, write, said):
    write(tmp_path / "a.npz")
    with pytest.raises(ValueError, match=said) as error:
        NpzSource(tmp_path / "a.npz")
    assert "a.npz" in str(error.value)


def test_folders_and_names_that_hold_no_images_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "a.png").write_bytes(encoded(pixels_of(0)))
    (tmp_path / "half" / "cat").mkdir(parents=True)
    for name, said in (
        ("empty", "empty is empty"),
        ("flat", "holds no folders of images"),
        ("half", "cat is empty: it holds no images"),
        ("nowhere", "nowhere is no images"),
        ("flat/a.png", "a.png is no images"),
    ):
        with pytest.raises(ValueError, match=said):
            open_images([str(tmp_path / name)])
    with pytest.raises(ValueError, match="no images given"):
        open_images([])


@pytest.mark.parametrize("before", ["", "cifar10-"])
def test_files_named_after_what_they_are_for_are_kept_apart(tmp_path, before):
    for name, num in (("train-00000-of-00002", 6), ("train-00001-of-00002", 4), ("test-00000-of-00001", 3)):
        parquet(
            tmp_path / f"{before}{name}.parquet",
            [encoded(pixels_of(100 * num + n)) for n in range(num)],
            [0, 1, 0, 1, 0, 1][:num],
        )
    task = Images((str(tmp_path),), patch=8).prepared()
    assert (task.num_training, task.num_held_out) == (10, 3)
    assert np.array_equal(task.held_out_image(1)[0], pixels_of(301))


def test_images_of_one_class_are_refused(tmp_path):
    (tmp_path / "all" / "cat").mkdir(parents=True)
    (tmp_path / "all" / "cat" / "a.png").write_bytes(encoded(pixels_of(0)))
    npz(tmp_path / "one.npz", 10, classes=1)
    for name in ("all", "one.npz"):
        with pytest.raises(ValueError, match="at least 2 classes wanted"):
            Images((str(tmp_path / name),)).prepared()


def test_a_folder_that_cannot_be_read_is_refused(tmp_path, monkeypatch):
    for name in ("cat", "dog", "dog/closed"):
        (tmp_path / "all" / name).mkdir(parents=True)
        (tmp_path / "all" / name / "a.png").write_bytes(encoded(pixels_of(0)))
    scandir = os.scandir

    def refuse(path="."):
        if "closed" in os.fspath(path):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError, match="closed"):
        open_images([str(tmp_path / "all")])


def test_names_that_are_not_utf_8_are_read_and_told_apart(tmp_path):
    for number, name in enumerate((b"cat", b"\xff")):
        (tmp_path / "all" / os.fsdecode(name)).mkdir(parents=True)
        (tmp_path / "all" / os.fsdecode(name) / os.fsdecode(b"\xfe.png")).write_bytes(encoded(pixels_of(number)))
    source = FolderSource(tmp_path / "all")
    assert source.classes == ("cat", r"\xff")
    before = source.digest
    path = tmp_path / "all" / "cat" / os.fsdecode(b"\xfe.png")
    path.rename(path.with_name(os.fsdecode(b"\xfd.png")))
    assert FolderSource(tmp_path / "all").digest != before
    task = Images((str(tmp_path / "all"),), patch=8, test_share=0.5).prepared()
    assert (task.num_training, task.num_held_out) == (1, 1)


def test_what_was_left_out_before_a_kill_is_counted_and_no_more(tmp_path, caplog):
    names = [encoded(pixels_of(number)) for number in range(600)]
    path = parquet(tmp_path / "a.parquet", [b"rot", *names[1:]], [0, 1] * 300)

    def cut(_, done, total):
        if done > total / 2:
            raise PowerCut

    with pytest.raises(PowerCut):
        stored(open_images([str(path)]), skip=True, on_progress=cut)
    assert ImageStore(stored(open_images([str(path)]), skip=True)).skipped == 1
    assert "1 of 600 images left out" in caplog.text
    assert "None" not in caplog.text


def test_data_sets_of_other_classes_do_not_mix(tmp_path):
    for name in ("cat", "dog"):
        for number in range(2):
            folder = tmp_path / name / f"{name}-{number}"
            folder.mkdir(parents=True)
            (folder / "a.png").write_bytes(encoded(pixels_of(number)))
    with pytest.raises(ValueError, match="other classes"):
        open_images([str(tmp_path / "cat"), str(tmp_path / "dog")])
    with pytest.raises(ValueError, match="other classes"):
        Images((str(tmp_path / "cat"),), str(tmp_path / "dog")).prepared()


def test_two_parts_that_hold_the_same_make_the_same_store(tmp_path):
    npz(tmp_path / "a.npz")
    shutil.copy(tmp_path / "a.npz", tmp_path / "b.npz")
    assert stored([NpzSource(tmp_path / "a.npz")]) == stored([NpzSource(tmp_path / "b.npz")])
