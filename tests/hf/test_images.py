"""Classifiers of images in transformers: the same logits, saved and loaded, and what does not fit is refused."""

import json

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageClassification

from relnet import nn, tasks
from relnet.hf import RelnetForImageClassification, RelnetImageConfig, RelnetImageProcessor
from relnet.tasks.image_decoding import decode
from tests.assertions import assert_close, assert_same_bits
from tests.nn.cases import BIDIRECTIONAL, draw, random_values


def make(name="linear-birn", **changes):
    content = nn.converter().unstructure(BIDIRECTIONAL[name], nn.BidirectionalMixerConfig)
    settings = {
        "image_height": 4,
        "image_width": 8,
        "width": 12,
        "depth": 2,
        "mlp": 16,
        "id2label": {0: "cat", 1: "dog", 2: "cow"},
    }
    model = RelnetForImageClassification(RelnetImageConfig(**(settings | {"mixer": content} | changes)))
    draw(model.model)
    return model.eval()


@pytest.mark.parametrize("mixer", BIDIRECTIONAL)
def test_pixels_become_the_patches_of_the_model(mixer):
    model = make(mixer)
    pixels = random_values(3, 3, 4, 8)
    output = model(pixels, labels=torch.tensor([0, 2, 1]))
    expected = model.model(tasks.patches(pixels.permute(0, 2, 3, 1), 2))
    assert_same_bits(output.logits, expected)
    chances = expected.log_softmax(-1)
    assert_close(output.loss, -(chances[0, 0] + chances[1, 2] + chances[2, 1]) / 3)
    output.loss.backward()


@pytest.mark.parametrize("mixer", ["birn", "attention"])
def test_a_saved_model_comes_back_through_the_auto_classes(tmp_path, mixer):
    model = make(mixer)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForImageClassification.from_pretrained(tmp_path)
    assert isinstance(loaded, RelnetForImageClassification)
    pixels = random_values(2, 3, 4, 8)
    assert_same_bits(loaded(pixels).logits, model(pixels).logits)
    config = AutoConfig.from_pretrained(tmp_path)
    assert config.id2label == {0: "cat", 1: "dog", 2: "cow"}
    assert config.model_config() == model.config.model_config()


def test_a_folder_that_lacks_a_tensor_is_refused(tmp_path):
    make().save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["model.cls.weight"]
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match=r"has no model\.cls\.weight"):
        RelnetForImageClassification.from_pretrained(tmp_path)


def test_the_processor_normalises_by_channel_and_is_saved(tmp_path):
    processor = RelnetImageProcessor(4, 8, (0.1, 0.2, 0.3), (0.5, 0.6, 0.7))
    processor.save_pretrained(tmp_path)
    processor = RelnetImageProcessor.from_pretrained(tmp_path)
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 3), dtype=np.uint8)
    values = processor([Image.fromarray(pixels), pixels], return_tensors="pt")["pixel_values"]
    expected = (torch.from_numpy(pixels) / 255 - torch.tensor([0.1, 0.2, 0.3])) / torch.tensor([0.5, 0.6, 0.7])
    assert_close(values[0], expected.permute(2, 0, 1), 1e-6)
    assert_same_bits(values[0], values[1])
    assert processor(Image.new("L", (100, 50)), return_tensors="pt")["pixel_values"].shape == (1, 3, 4, 8)


def test_the_processor_takes_an_image_as_predict_does(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 4), dtype=np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    processor = RelnetImageProcessor(4, 8, (0.0,) * 3, (1 / 255,) * 3)
    expected = torch.from_numpy(decode(tmp_path / "a.png", "a", (4, 8, 3)).copy()).permute(2, 0, 1).float()
    with Image.open(tmp_path / "a.png") as image:
        assert_close(processor(image, return_tensors="pt")["pixel_values"][0], expected, 1e-6)
    Image.fromarray(pixels).save(tmp_path / "b.png")
    with Image.open(tmp_path / "b.png") as image:
        both = processor([image, pixels], return_tensors="pt")["pixel_values"]
    assert_same_bits(both[0], both[1])


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (np.zeros((8, 8, 3)), r"image 0 is \(8, 8, 3\) float64; give .* uint8"),
        (np.zeros((8, 8), np.int64), "int64"),
        (np.zeros((3, 8, 8), np.uint8), "give .height, width, 1, 3 or 4. uint8"),
        (np.zeros((2, 8, 8, 3), np.uint8), "give .height, width"),
        (Image.fromarray(np.zeros((8, 8), np.uint16)), "image 0 is I;16, more than 8 bits"),
    ],
)
def test_the_processor_refuses_what_it_would_have_to_guess(image, said):
    with pytest.raises(ValueError, match=said):
        RelnetImageProcessor(4, 8)(image)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"patch_size": 3}, "do not divide"),
        ({"mixer": {"_type": "CausalRNConfig"}}, "CausalRNConfig"),
        ({"depth": 0}, "depth=0"),
    ],
)
def test_configurations_that_do_not_fit_are_refused(changes, said):
    with pytest.raises(Exception, match=said):
        make(**changes)


def test_images_of_another_size_and_options_are_refused():
    with pytest.raises(ValueError, match="pixel_values have shape"):
        make()(torch.zeros(1, 3, 8, 8))
    with pytest.raises(ValueError, match="output_attentions"):
        make()(torch.zeros(1, 3, 4, 8), output_attentions=True)


def test_the_configuration_on_disk_is_plain_json(tmp_path):
    make("attention").save_pretrained(tmp_path)
    content = json.loads((tmp_path / "config.json").read_text())
    assert content["mixer"]["_type"] == "AttentionConfig"
    assert content["model_type"] == "relnet-image"
