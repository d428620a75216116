import json

import pytest
from matplotlib.image import imread

from relnet.report import read_runs, steps_figure
from relnet.report.figures import COLOURS
from tests.report.folders import TASK, make_run, result
from tests.report.test_figures import shows


def make_grid(parent, names=("causalrn", "transformer"), lengths=(16, 32)):
    for name in names:
        for length in lengths:
            make_run(parent, name, folder=f"{name}-{length}", log=3, task=TASK | {"length": length})


def test_each_name_has_a_line_and_runs_that_fell_short_a_mark(tmp_path):
    make_grid(tmp_path)
    both = imread(steps_figure(read_runs([tmp_path]), tmp_path / "steps.png", note="a word " * 30))
    assert min(shows(both, colour) for colour in COLOURS[:2]) > 100
    assert shows(both, COLOURS[2]) < 20
    for length in (16, 32):
        path = tmp_path / f"transformer-{length}" / "result.json"
        path.write_text(json.dumps(result(steps_to_accuracy=None)))
    missed = imread(steps_figure(read_runs([tmp_path]), tmp_path / "missed.png"))
    assert 20 < shows(missed, COLOURS[1]) < shows(both, COLOURS[1]) / 2, "marks, and no line"


def test_a_mean_over_some_of_the_seeds_says_over_how_many(tmp_path, monkeypatch):
    def texts(figure):
        drawn.append([text.get_text() for text in figure.axes[0].texts])
        return b""

    drawn = []
    monkeypatch.setattr("relnet.report.steps.png", texts)
    for seed, reached in enumerate((80, 90, None)):
        make_run(tmp_path, "causalrn", folder=f"seed-{seed}", log=3, result=result(steps_to_accuracy=reached))
    runs = read_runs([tmp_path])
    steps_figure(runs, tmp_path / "steps.png")
    steps_figure(runs[:2], tmp_path / "steps.png")
    assert drawn == [["2 of 3"], []]


def test_numbers_of_updates_are_written_alike(tmp_path, monkeypatch):
    def labels(figure):
        figure.canvas.draw()
        drawn.extend(label.get_text() for label in figure.axes[0].get_yticklabels(which="both"))
        return b""

    drawn = []
    monkeypatch.setattr("relnet.report.steps.png", labels)
    for length, reached in ((16, 60), (32, 2000)):
        folder = {"folder": f"{length}", "task": TASK | {"length": length}}
        make_run(tmp_path, "causalrn", log=3, result=result(steps_to_accuracy=reached), **folder)
    steps_figure(read_runs([tmp_path]), tmp_path / "steps.png")
    assert {"100", "200", "1,000", "2,000"} <= set(drawn)


def test_learning_rates_can_be_the_axis(tmp_path):
    make_grid(tmp_path)
    for path in tmp_path.glob("*/config.json"):
        config = json.loads(path.read_text())
        config["train"]["lr"] = 1e-3
        path.write_text(json.dumps(config))
    assert steps_figure(read_runs([tmp_path]), tmp_path / "steps.png", "lr").exists()


def test_what_cannot_be_drawn_is_refused(tmp_path):
    make_grid(tmp_path)
    with pytest.raises(ValueError, match="the figure is a PNG"):
        steps_figure(read_runs([tmp_path]), tmp_path / "steps.pdf")
    with pytest.raises(ValueError, match="no finished run with a lr"):
        steps_figure(read_runs([tmp_path]), tmp_path / "steps.png", "lr")
