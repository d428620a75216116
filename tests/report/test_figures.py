import io
import itertools
import json
import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.image import imread

from relnet.report import learning_curves, markdown, read_runs, table
from relnet.report.figures import COLOURS, _legend_shape, wrapped
from tests.report.folders import TEXT_TASK, make_run, update


def shows(picture, colour):
    rgb = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    return int((np.abs(picture[..., :3] - rgb) < 0.02).all(-1).sum())


def test_every_run_gets_a_line_of_its_own_colour_on_white(tmp_path):
    for name in "abc":
        make_run(tmp_path, name)
    path = learning_curves(read_runs([tmp_path]), tmp_path / "figures" / "curves.png")
    assert path == tmp_path / "figures" / "curves.png"
    picture = imread(path)
    assert picture.shape[1] >= 1200
    assert (picture[:5, :5, :3] == 1).all()
    for colour in COLOURS[1:3]:
        assert shows(picture, colour) > 100
    for colour in COLOURS[3:6]:
        assert shows(picture, colour) < 20


def test_an_existing_file_is_left_alone(tmp_path):
    runs = read_runs([make_run(tmp_path, "a")])
    taken = tmp_path / "curves.png"
    taken.write_bytes(b"mine")
    assert learning_curves(runs, taken) == tmp_path / "curves-2.png"
    assert learning_curves(runs, str(taken)) == tmp_path / "curves-3.png"
    assert taken.read_bytes() == b"mine"


def test_a_run_that_has_just_begun_is_drawn_and_one_without_updates_left_out(tmp_path):
    make_run(tmp_path, "one", log=1, result=None, exam=())
    make_run(tmp_path, "none", log=0, result=None, exam=())
    picture = imread(learning_curves(read_runs([tmp_path]), tmp_path / "curves.png"))
    plots = picture[: int(0.85 * len(picture))]
    assert shows(plots, COLOURS[0]) > 50, "points, for there are no lines yet"


def test_a_loss_that_is_nan_or_missing_is_a_gap(tmp_path):
    path = make_run(tmp_path, "a", log=3, result=None)
    with open(path / "log.jsonl", "a") as file:
        file.write(json.dumps(update(4, loss=float("nan"))) + '\n{"step": 5}\n')
    assert learning_curves(read_runs([path]), tmp_path / "curves.png").exists()


def test_names_are_shown_as_they_are(tmp_path):
    # matplotlib would read it as a formula and fail.
    make_run(tmp_path, r"$\frac$", folder="a")
    assert learning_curves(read_runs([tmp_path]), tmp_path / "curves.png").exists()


def test_what_cannot_be_drawn_is_refused(tmp_path):
    runs = read_runs([make_run(tmp_path, "a")])
    with pytest.raises(ValueError, match=r"curves.pdf: the figure is a PNG"):
        learning_curves(runs, tmp_path / "curves.pdf")
    with pytest.raises(ValueError, match=r"no updates to draw: .*new"):
        learning_curves(read_runs([make_run(tmp_path, "new", log=0, result=None)]), tmp_path / "curves.png")
    with pytest.raises(ValueError, match="no runs"):
        learning_curves([], tmp_path / "curves.png")


@pytest.fixture
def drawn(monkeypatch):
    """Figures as they are drawn, in place of files."""
    figures = []

    def keep(figure):
        figure.canvas.draw()
        figures.append(figure)
        return b""

    monkeypatch.setattr("relnet.report.figures.png", keep)
    return figures


ABLATIONS = ["", "-no-sum-norm", "-approximate", "-no-pair-norm", "-relu", "-elu"]


@pytest.mark.parametrize(
    "names",
    [
        ["causalrn", "transformer"],
        ["a" * 20] * 4,
        ["a" * 60] * 3,
        # Where the number does not divide, the first columns have one more.
        *([f"causalrn{ablation}" for ablation in ABLATIONS[:number]] for number in range(3, 7)),
    ],
    ids=lambda names: f"{len(names)} of {len(names[-1])}",
)
def test_the_legend_fits_the_figure(drawn, tmp_path, names):
    runs = read_runs([make_run(tmp_path, name, folder=str(number)) for number, name in enumerate(names)])
    learning_curves(runs, tmp_path / "curves.png")
    box = drawn[0].legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= drawn[0].bbox.width


def test_a_legend_has_few_rows():
    assert _legend_shape(["causalrn", "transformer"]) == (2, 1)
    assert _legend_shape(["a" * 20] * 4) == (3, 2)
    assert _legend_shape(["a" * 100] * 3) == (1, 3)


def test_the_legend_and_the_note_are_not_drawn_over_each_other(tmp_path, drawn):
    runs = read_runs([make_run(tmp_path / name, name) for name in ("causalrn", "transformer")])
    learning_curves(runs, tmp_path / "curves.png", "Not as in the paper: " + "batches of 64 strings for 320; " * 6)
    (figure,) = drawn
    parts = (figure.legends[0], figure._supxlabel, figure.axes[0].title, figure.axes[1].xaxis.label)
    boxes = [part.get_window_extent() for part in parts]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_a_note_breaks_between_words_and_not_in_a_percentage():
    for words in range(60):
        lines = wrapped("word " * words + "99 % has stayed")
        assert not any(line.startswith("%") for line in lines)
        assert " ".join(lines).replace("\N{NO-BREAK SPACE}", " ") == "word " * words + "99 % has stayed"


def test_no_global_state_of_matplotlib_is_touched(tmp_path):
    make_run(tmp_path, "a")
    before = dict(matplotlib.rcParams)
    learning_curves(read_runs([tmp_path]), tmp_path / "curves.png")
    assert dict(matplotlib.rcParams) == before
    code = (
        "import sys; from relnet.report import *; learning_curves(read_runs(sys.argv[1:2]), sys.argv[2]); "
        "print('matplotlib.pyplot' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path), str(tmp_path / "curves.png")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "False\n"


def test_the_same_runs_give_the_same_file(tmp_path):
    runs = read_runs([make_run(tmp_path, "a")])
    first, second = (learning_curves(runs, tmp_path / "curves.png") for _ in range(2))
    assert imread(io.BytesIO(first.read_bytes())).tobytes() == imread(second).tobytes()


def test_of_texts_the_validation_is_drawn(tmp_path):
    for name, colour in (("a", 0), ("b", 1)):
        path = make_run(tmp_path, name, log=0, task=TEXT_TASK, stop_accuracy=None, exam=())
        lines = [
            update(step, **({"bits_per_byte": 5 - step / 50 - colour} if step % 20 == 0 else {}))
            for step in range(1, 101)
        ]
        (path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    picture = imread(learning_curves(read_runs([tmp_path]), tmp_path / "curves.png"))
    lower = picture[len(picture) // 2 : int(0.85 * len(picture))]
    for colour in COLOURS[:2]:
        assert shows(lower, colour) > 100


def test_letters_that_no_encoding_has_are_replaced(tmp_path):
    make_run(tmp_path, "bad\udcff", folder="a", task={"_type": "Copying", "layout": "\ud800"})
    runs = read_runs([tmp_path])
    assert learning_curves(runs, tmp_path / "curves.png").exists()
    assert "bad? " in table(runs)
    assert "| bad? |" in markdown(runs)
