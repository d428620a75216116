import numpy as np
import pytest
from matplotlib import image

from relnet.report import ImageMaps, image_panel, text_panel


def seen(path):
    """The colours of a picture."""
    return image.imread(path)[..., :3]


@pytest.mark.parametrize("channels", [1, 3])
def test_a_panel_shows_the_picture_and_each_map_and_overwrites_nothing(tmp_path, channels):
    pixels = np.zeros((8, 8, channels), np.uint8)
    pixels[:, 4:] = 255
    flat, peaked = np.ones((2, 2)), np.array([[0.0, 0.0], [0.0, 3.0]])
    chances = [(f"class $ {number}", 0.1 * number) for number in range(5)]
    first, second = (
        image_panel(
            tmp_path / "a.png", [ImageMaps("dog $", pixels, [("one", flat), ("two", other)], chances)] * 2, "title $"
        )
        for other in (peaked, flat)
    )
    assert (first.name, second.name) == ("a.png", "a-2.png")
    assert seen(first).shape == seen(second).shape
    assert not np.array_equal(seen(first), seen(second)), "another map is another picture"


def test_a_map_of_zeros_and_a_long_text_can_be_drawn(tmp_path):
    black = ImageMaps("", np.zeros((4, 4, 3), np.uint8), [("zeros", np.zeros((2, 2)))], [("one", 1.0)])
    image_panel(tmp_path / "a.png", [black], "")
    for length in (3, 300):
        maps = [(f"block {block}", np.tril(np.ones((length, length)))) for block in range(5)]
        assert text_panel(tmp_path / "text.png", ["$a"] * length, maps, "").stat().st_size > 5_000
