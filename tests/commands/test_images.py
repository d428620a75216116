"""Runs on images from the command line: train, resume, compare, look, predict, export."""

import csv
import json
import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from relnet import cli, recipes, run
from tests.assertions import assert_close, assert_same_bits
from tests.tasks.test_images import pixels_of

TINY = ("--width", "8", "--depth", "2", "--patch", "4", "--batch-size", "8", "--max-steps", "4", "--device", "cpu")


@pytest.fixture(autouse=True)
def folders(tmp_path, monkeypatch):
    monkeypatch.setenv("RELNET_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("RELNET_RUNS", str(tmp_path / "runs"))


def relnet(capsys, *arguments, status=0):
    assert cli.main([str(argument) for argument in arguments]) == status
    return capsys.readouterr()


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run on digits, with the data that it was prepared from."""
    root = tmp_path_factory.mktemp("images")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RELNET_DATA", str(root / "data"))
        assert cli.main(["train", "images", "--mixer", "birn", "--heads", "1", *TINY, "--out", str(root / "run")]) == 0
    return root


@pytest.fixture
def trained(finished, monkeypatch):
    monkeypatch.setenv("RELNET_DATA", str(finished / "data"))
    return finished / "run"


def test_a_run_ends_with_its_accuracy_on_all_images_held_out(trained):
    (row,) = [json.loads(line) for line in (trained / "exam.jsonl").read_text().splitlines()]
    result = json.loads((trained / "result.json").read_text())
    assert row["images"] == 359
    assert row["test_accuracy"] == row["right"] / 359 == result["test_accuracy"]
    assert row["test_loss"] == result["test_loss"]
    config, task, model = run.load_images(trained)
    batch = task.held_out(0, 359)
    with torch.no_grad():
        logits = model(batch.inputs)
    assert row["right"] == int((logits.argmax(-1) == batch.targets).sum())
    assert_close(
        torch.nn.functional.cross_entropy(logits, batch.targets).double(), torch.tensor(row["test_loss"]).double(), 1e-4
    )
    assert run.config_from_json(run.config_to_json(config)) == config


KILLED = """
import os, signal, sys
from relnet import cli, progress
call = progress.TrainingProgress.__call__
def kill(self, record):
    call(self, record)
    if record.step == 3:
        os.kill(os.getpid(), signal.SIGKILL)
progress.TrainingProgress.__call__ = kill
cli.main(sys.argv[1:])
"""


def test_training_that_was_killed_resumes_to_the_same_bits(tmp_path, capsys):
    words = ["train", "images", "--mixer", "linear-birn", "--checkpoint-every", "2", "--validate-every", "2", *TINY]
    relnet(capsys, *words, "--out", tmp_path / "whole")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *words, "--out", str(tmp_path / "killed")], capture_output=True
    )
    assert killed.returncode == -signal.SIGKILL
    assert not (tmp_path / "killed" / "result.json").exists()
    relnet(capsys, *words, "--out", tmp_path / "killed", "--resume")
    weights = [load_file(tmp_path / name / "model.safetensors") for name in ("whole", "killed")]
    for name in weights[0]:
        assert_same_bits(weights[1][name], weights[0][name], name)
    logs = [
        [
            {key: value for key, value in json.loads(line).items() if key != "seconds"}
            for line in path.read_text().splitlines()
        ]
        for path in (tmp_path / "whole" / "log.jsonl", tmp_path / "killed" / "log.jsonl")
    ]
    assert logs[0] == logs[1]
    assert [line["step"] for line in logs[0] if "test_accuracy" in line] == [2, 4]


def test_a_comparison_ends_with_a_table_and_curves(tmp_path, capsys):
    out, _ = relnet(capsys, "compare", "images", *TINY, "--validate-every", 2, "--out", tmp_path / "all")
    for name in recipes.IMAGE_MODELS:
        assert name in out
    assert "accuracy %" in out
    assert "359" in out
    assert (tmp_path / "all" / "curves.png").stat().st_size > 10_000
    out, _ = relnet(capsys, "report", tmp_path / "all", "--json", tmp_path / "lines.jsonl")
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert [step for step, _, _ in lines[0]["validation"]] == [2, 4]
    assert lines[0]["images"][0]["images"] == 359
    again, _ = relnet(capsys, "report", tmp_path / "lines.jsonl", "--figure", tmp_path / "again.png")
    assert again.split("learning curves")[0] == out.split("learning curves")[0]
    relnet(capsys, "report", tmp_path / "all", "--html", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Images held out" in page
    assert "images trained on" in page
    models = {line["name"]: line["result"]["num_parameters"] for line in lines}
    assert max(models.values()) < 1.1 * min(models.values()), "equal width, depth and, nearly, weights"


@pytest.mark.parametrize("mixer", ["birn", "linear-birn"])
def test_a_classifier_takes_curvature_penalties(tmp_path, capsys, mixer):
    options = ("--jacobian-weight", 0.01, "--hessian-weight", 0.01, "--penalty-iters", 1)
    relnet(capsys, "train", "images", "--mixer", mixer, *TINY, *options, "--out", tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert all(line["penalty"] > 0 for line in lines)


def test_models_of_the_recipes_have_the_papers_blocks():
    config = recipes.paper_images(("digits",), mixer="transformer").model
    assert (config.width, config.depth, config.mlp, config.mixer.heads, config.mixer.causal) == (
        768,
        12,
        3072,
        12,
        False,
    )
    config = recipes.paper_images(("digits",), mixer="birn").model
    assert (config.mlp, config.mixer.hidden, config.mixer.heads) == (None, 3072, 1)
    assert config.patch_width == 4


def picture(path, number=0):
    Image.fromarray(pixels_of(number, (40, 30, 3))).save(path)
    return path


def test_inspect_writes_the_maps_of_an_image(trained, tmp_path, capsys):
    out, _ = relnet(capsys, "inspect", trained, "--image", picture(tmp_path / "mine.png"), "--held-out", 3)
    assert "mine: " in out
    _, task, model = run.load_images(trained)
    assert (trained / "maps" / "images.png").stat().st_size > 5_000
    with np.load(trained / "maps" / "images.npz") as arrays:
        found = dict(arrays)
    assert found["names"].tolist() == ["mine", "held-out-3"]
    for picture_number, pixels in enumerate((task.read(tmp_path / "mine.png"), task.held_out_image(3)[0])):
        inputs = task.encode(pixels[None])
        assert np.array_equal(found["pixels"][picture_number], pixels)
        chances = found["probabilities"][picture_number]
        assert np.allclose(chances, model(inputs).softmax(-1).detach().numpy()[0], atol=1e-5)
        # The block's own input, its norm included: by hand through the model.
        x, _ = model.embed(inputs)
        for number, block in enumerate(model.blocks, start=1):
            normed = torch.nn.functional.layer_norm(x, x.shape[-1:], eps=0)
            p, q = block.mixer.source(normed)[0], block.mixer.target(normed)[0, -1]
            pairs = torch.nn.functional.layer_norm(p[:-1] + q, q.shape, eps=0)
            norms = pairs.exp().norm(dim=-1)
            expected = (norms / norms.sum()).view(1, 2, 2)
            assert_close(torch.from_numpy(found[f"block_{number}"][picture_number]), expected, 1e-4)
            x = block(x, None)


def test_inspect_keeps_what_is_there_and_takes_blocks_and_quantities(trained, tmp_path, capsys):
    path = picture(tmp_path / "twice.png")
    relnet(capsys, "inspect", trained, "--image", path, "--block", 2)
    before = (trained / "maps" / "twice.npz").read_bytes()
    relnet(capsys, "inspect", trained, "--image", path, "--block", 2, "--quantity", "scale")
    assert (trained / "maps" / "twice.npz").read_bytes() == before
    with np.load(trained / "maps" / "twice-2.npz") as arrays:
        assert sorted(arrays) == ["block_2", "names", "pixels", "probabilities", "quantity"]
        assert str(arrays["quantity"]) == "scale"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "nothing to look at"),
        (("--held-out", 359), "images 0 to 358"),
        (("--held-out", 0, "--block", 3), "blocks 1 to 2"),
        (("--image", "nowhere.png"), "nowhere.png does not exist"),
        (("--text", "abc"), "run on images"),
        (("--retrieval", 3), "run on images"),
    ],
)
def test_inspect_refuses_what_there_is_not(trained, capsys, options, said):
    _, err = relnet(capsys, "inspect", trained, *options, status=2)
    assert said in err
    assert len(err.splitlines()) == 1


def test_predictions_of_a_folder_are_a_csv_file(trained, tmp_path, capsys):
    (tmp_path / "mine" / "deep").mkdir(parents=True)
    for number, name in enumerate(("a.png", "deep/b.jpg", "c.bmp")):
        picture(tmp_path / "mine" / name, number)
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    (tmp_path / "mine" / "bad.png").write_bytes(b"rot")
    path = tmp_path / "said.csv"
    _, err = relnet(capsys, "predict", trained, tmp_path / "mine", "--out", path, "--device", "cpu", status=2)
    assert "bad.png" in err
    assert not path.exists()
    out, err = relnet(capsys, "predict", trained, tmp_path / "mine", "--out", path, "--skip", "--device", "cpu")
    assert "3 images" in out
    assert "1 files left out" in err
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["file"] for row in rows] == ["a.png", "c.bmp", "deep/b.jpg"]
    _, task, model = run.load_images(trained)
    for row in rows:
        chances = model(task.encode(task.read(tmp_path / "mine" / row["file"])[None])).softmax(-1)[0].detach()
        assert row["class"] == task.classes[int(chances.argmax())]
        assert abs(float(row["probability"]) - float(chances.max())) < 1e-5
        assert abs(sum(float(row[name]) for name in task.classes) - 1) < 1e-4
    relnet(capsys, "predict", trained, tmp_path / "mine" / "a.png", "--out", path, "--device", "cpu")
    assert (tmp_path / "said-2.csv").exists()


def test_predict_refuses_what_it_cannot_write_before_it_reads(trained, tmp_path, capsys, monkeypatch):
    path = picture(tmp_path / "a.png")
    monkeypatch.setattr(run, "load_images", None)
    for place, said in ((tmp_path, "is a folder"), (tmp_path / "nowhere" / "a.csv", "nowhere is no folder")):
        _, err = relnet(capsys, "predict", trained, path, "--out", place, status=2)
        assert said in err
        assert len(err.splitlines()) == 1


def test_predict_writes_nothing_where_no_image_can_be_read(trained, tmp_path, capsys):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "bad.png").write_bytes(b"rot")
    words = ("predict", trained, tmp_path / "mine", "--out", tmp_path / "a.csv", "--device", "cpu")
    _, err = relnet(capsys, *words, "--skip", status=2)
    assert "not one image that can be read" in err
    assert "bad.png" in err
    assert not (tmp_path / "a.csv").exists()


def test_names_that_are_not_utf_8_and_letters_that_no_font_has_are_written(trained, tmp_path, capsys):
    name = os.fsdecode(b"\xff\xe7\x8c\xab.png")
    (tmp_path / "mine").mkdir()
    picture(tmp_path / "mine" / name)
    path = tmp_path / "a.csv"
    relnet(capsys, "predict", trained, tmp_path / "mine", "--out", path, "--device", "cpu")
    assert [row["file"] for row in csv.DictReader(path.read_text().splitlines())] == [r"\xff猫.png"]
    out, _ = relnet(capsys, "inspect", trained, "--image", tmp_path / "mine" / name, "--block", 1)
    assert r"\xff猫: " in out


def test_other_commands_say_that_a_run_is_on_images(trained, tmp_path, capsys):
    for words in (("generate", trained, "--prompt", "a"), ("exam", trained)):
        _, err = relnet(capsys, *words, status=2)
        assert "images" in err
    _, err = relnet(capsys, "predict", tmp_path, tmp_path, status=2)
    assert "no run folder" in err


def test_faulty_data_are_one_line_that_names_the_file(tmp_path, capsys):
    folder = tmp_path / "pets"
    for name in ("cat", "dog"):
        (folder / name).mkdir(parents=True)
        for number in range(6):
            Image.fromarray(pixels_of(number)).save(folder / name / f"{number}.png")
    (folder / "dog" / "9.png").write_bytes((folder / "dog" / "0.png").read_bytes()[:60])
    words = ("train", "images", "--data", folder, *TINY, "--out", tmp_path / "run")
    _, err = relnet(capsys, *words, status=2)
    assert "dog/9.png" in err
    assert err.splitlines()[-1].startswith("relnet: ")
    assert not (tmp_path / "run").exists()
    relnet(capsys, *words, "--skip")
    assert run.read_config(tmp_path / "run").task.skip


@pytest.fixture(scope="module")
def copier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("copying") / "run"
    words = (
        "train",
        "copying",
        "--length",
        "4",
        "--width",
        "16",
        "--depth",
        "2",
        "--max-steps",
        "2",
        "--device",
        "cpu",
    )
    assert cli.main([*words, "--out", str(folder)]) == 0
    return folder


def test_inspect_shows_the_pairs_of_a_string_and_measures_retrieval(copier, capsys):
    out, _ = relnet(capsys, "inspect", copier, "--text", "abc", "--retrieval", 3)
    with np.load(copier / "maps" / "text.npz") as arrays:
        assert arrays["block_1"].shape == (1, 10, 10)
        assert np.allclose(arrays["block_1"].sum(-1), 1, atol=1e-5)
        assert not np.triu(arrays["block_2"][0], 1).any()
    assert (copier / "maps" / "text.png").stat().st_size > 5_000
    rows = [json.loads(line) for line in (copier / "retrieval.jsonl").read_text().splitlines()]
    assert {row["quantity"] for row in rows} == {"strength", "scale"}
    assert all(row["steps"] == 12 for row in rows)
    assert out.count("the strongest relation") == 2
    _, err = relnet(capsys, "inspect", copier, "--image", "x.png", status=2)
    assert "not on images" in err


def test_an_exported_classifier_says_the_same_in_transformers(trained, tmp_path, capsys):
    transformers = pytest.importorskip("transformers")
    relnet(capsys, "export", trained, tmp_path / "exported")
    card = (tmp_path / "exported" / "README.md").read_text()
    assert "image-classification" in card
    assert "AutoImageProcessor" in card
    model = transformers.AutoModelForImageClassification.from_pretrained(tmp_path / "exported")
    processor = transformers.AutoImageProcessor.from_pretrained(tmp_path / "exported")
    path = picture(tmp_path / "mine.png")
    logits = model(**processor(Image.open(path), return_tensors="pt")).logits
    _, task, ours = run.load_images(trained)
    assert_close(logits, ours(task.encode(task.read(path)[None])), 1e-5)
    assert model.config.id2label[3] == "3"


def test_what_was_prepared_is_prepared_again_where_it_is_gone(trained, finished, capsys):
    shutil.rmtree(finished / "data")
    out, _ = relnet(capsys, "inspect", trained, "--held-out", 0)
    assert "held-out-0" in out
