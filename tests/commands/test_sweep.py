"""relnet sweep: what it prints, writes and draws."""

import contextlib
import json
import re
import signal
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

from relnet import cli, recipes, run
from relnet.recipes import figures, repeat_after_me
from relnet.train.folder import locked

SMALL = (
    "--lengths",
    "3",
    "--mixers",
    "causalrn",
    "linear-causalrn",
    "--seeds",
    "1",
    "--max-steps",
    "4",
    "--device",
    "cpu",
)


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    """The paper's widths take seconds a step."""

    def narrow(*arguments, **options):
        return recipes.copying(*arguments, width=16, depth=1, **{**options, "batch_size": 8})

    monkeypatch.setattr(figures, "copying", narrow)
    monkeypatch.setenv("RELNET_RUNS", str(tmp_path / "runs"))


def sweep(capsys, *arguments, status=0):
    found = cli.main(["sweep", *map(str, arguments)])
    captured = capsys.readouterr()
    assert found == status, captured.err
    return captured.out, captured.err


def test_a_sweep_ends_with_a_table_a_figure_and_a_line_a_run(capsys, tmp_path):
    lines = tmp_path / "lines.jsonl"
    out, err = sweep(capsys, "figure4", *SMALL, "--json", lines)
    assert re.search(
        r"run 2 of 2: linear-causalrn-copying-cui2024-3-lr-0.0005-seed-0-\w{10}, .*; all runs: about \ds, without exams",
        err,
    ), err
    assert re.search(r"2/2 linear-causalrn .* left; all runs: about 0s, without exams", err), err
    assert re.search(r"^linear-causalrn ", out, re.MULTILINE)
    assert "Not as in the paper: 4 updates for 2,000; float32 for bfloat16" in out
    assert (tmp_path / "runs" / "figures" / "figure4-cpu.png").exists()
    assert [json.loads(line)["name"] for line in lines.read_text().splitlines()] == ["causalrn", "linear-causalrn"]
    _, err = sweep(capsys, "figure4", *SMALL, "--json", lines, "--figure", tmp_path / "again.png")
    assert "run 1 of 2" not in err
    assert (tmp_path / "again.png").exists()
    assert len(lines.read_text().splitlines()) == 2


def test_curves_are_drawn_where_the_figure_is_one_of_curves(capsys, tmp_path):
    options = ("--length", 3, "--mixers", "causalrn", "--max-steps", 3, "--device", "cpu", "--out", tmp_path / "here")
    out, _ = sweep(capsys, "figure3", *options)
    assert (tmp_path / "here" / "figures" / "figure3-cpu.png").exists()
    assert "strings of 3 letters for 128; 3 updates for 2,000" in out


def test_images_can_be_swept(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("RELNET_DATA", str(tmp_path / "data"))
    options = (
        "figure7",
        "--mixers",
        "linear-birn",
        "--max-steps",
        2,
        "--device",
        "cpu",
        "--json",
        tmp_path / "lines.jsonl",
    )
    out, _ = sweep(capsys, *options)
    assert "2 updates for 15,625; batches of 64 for 320" in out
    assert "images digits for CIFAR-5m" in out
    assert (tmp_path / "runs" / "figures" / "figure7-cpu.png").exists()
    sweep(capsys, *options)
    (line,) = (tmp_path / "lines.jsonl").read_text().splitlines()
    assert json.loads(line)["images"][0]["images"] == 359
    # Figure 8 shows maps of the same run, which is not trained again.
    out, err = sweep(capsys, "figure8", *options[3:])
    assert "run 1 of 1" not in err
    assert "held-out-9: " in out
    assert "held-out-10" not in out
    assert (tmp_path / "runs" / "figures" / "figure8-cpu.png").exists()
    with np.load(tmp_path / "runs" / "figures" / "figure8-cpu.npz") as arrays:
        assert arrays["block_2"].shape[0] == 10
    assert len((tmp_path / "lines.jsonl").read_text().splitlines()) == 1
    # The report of the run finds them, once.
    sweep(capsys, "figure8", *options[3:])
    assert len(list((tmp_path / "runs" / "figures").glob("figure8-cpu*.png"))) == 2
    (mapped,) = (tmp_path / "runs").glob("*/maps/*")
    assert mapped.read_bytes() == (tmp_path / "runs" / "figures" / "figure8-cpu.png").read_bytes()


def test_an_exam_ends_with_a_verdict_and_its_figures(capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(repeat_after_me.SHAPES, "cpu", (16, 1, 2))
    monkeypatch.setenv("COLUMNS", "200")
    options = ("--length", 8, "--mixers", "lstm", "transformer-hard-alibi", "--max-steps", 2, "--device", "cpu")
    out, _ = sweep(
        capsys, "exam-lookup", *options, "--figure", tmp_path / "lookup.png", "--json", tmp_path / "lines.jsonl"
    )
    assert re.search(r"^transformer-hard-alibi +suffix-lookup-3-jelassi2024, 8 ", out, re.MULTILINE), out
    assert (tmp_path / "lookup" / "exam-lengths.png").exists()
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert len(lines) == 4
    assert all({row["length"] for row in line["exam"]} == {8, 16, 24, 40} for line in lines)


def test_runs_that_fail_are_named_and_the_exit_status_is_1(capsys, monkeypatch):
    def broken(*_, **__):
        raise FloatingPointError("loss nan")

    monkeypatch.setattr("relnet.run.training.train", broken)
    _, err = sweep(capsys, "figure4", *SMALL, status=1)
    assert "2 of 2 runs failed twice: causalrn-copying-cui2024-3-lr-0.0005-seed-0-" in err.splitlines()[-1]
    assert "FloatingPointError: loss nan" in err


def test_a_figure_that_cannot_be_drawn_does_not_hide_which_runs_failed(capsys, monkeypatch):
    train = run.training.train

    def broken(model, task, config, folder, **options):
        if "linear-causalrn" in str(folder):
            raise ValueError("two\nlines")
        return train(model, task, config, folder, **options)

    def undrawn(*_, **__):
        raise OSError(28, "No space left on device", "figure4-cpu.png")

    monkeypatch.setattr("relnet.run.training.train", broken)
    monkeypatch.setattr("relnet.report.steps_figure", undrawn)
    _, err = sweep(capsys, "figure4", *SMALL, status=1)
    assert "no figure: OSError: [Errno 28] No space left on device" in err
    assert "1 of 2 runs failed twice: linear-causalrn-" in err.splitlines()[-1]
    assert err.splitlines()[-1].endswith(": ValueError: two lines")


def test_who_waits_is_told_for_which_run(capsys, monkeypatch, tmp_path):
    (causalrn, _) = recipes.figure4(lengths=(3,), mixers=("causalrn", "linear-causalrn"), seeds=1, max_steps=4).runs
    with contextlib.ExitStack() as other:
        other.enter_context(locked(tmp_path / "runs" / causalrn.name))
        # The sweep's own waiting, not that of threads that draw: they share the module.
        clock = SimpleNamespace(sleep=lambda _: other.close(), monotonic=time.monotonic)
        monkeypatch.setattr("relnet.sweep.time", clock)
        _, err = sweep(capsys, "figure4", *SMALL)
    assert re.search(r"1 of 2 done: waiting for what another process is at:\s+causalrn-copying", err), err
    assert "2 of 2 done" in err


def test_ray_that_is_not_installed_is_told(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    _, err = sweep(capsys, "figure4", *SMALL, "--on", "ray", status=2)
    assert err.splitlines()[-1] == 'relnet: Ray is not installed; install it with pip install "relnet[ray]"'


def test_a_cluster_that_is_not_there_is_told_in_one_line(capsys, monkeypatch):
    def init(**_):
        raise ConnectionError("Could not find\nany running Ray instance.")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init))
    _, err = sweep(capsys, "figure4", *SMALL, "--on", "ray", "--address", "auto", status=2)
    assert err.splitlines()[-1] == "relnet: no Ray cluster at auto: Could not find any running Ray instance."


def test_a_used_up_budget_is_said(capsys):
    out, _ = sweep(capsys, "figure4", *SMALL, "--budget", 1e-9)
    assert "2 of 2 runs are left; the same command goes on" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("figure4", "--budget", "0"), "hours above 0"),
        (("figure4", "--budget", "nan"), "hours above 0"),
        (("heads-lr", "--heads", "1", "5"), "causalrn-5-heads cannot be built: hidden 16 is not divisible by heads=5"),
        (("figure4", "--mixers"), "no runs"),
        (("figure4", "--seeds", "0"), "no runs"),
        (("figure6", "--max-steps", "0"), "steps=0: must be at least 1"),
        (("figure6", "--lr", "0"), "lr=0.0: must be a number above 0"),
        (("figure7", "--max-steps", "0"), "steps=0: must be at least 1"),
        (("exam-copying", "--max-steps", "0"), "steps=0: must be at least 1"),
        (("exam-copying", "--lengths"), "no runs"),
        (("exam-lengths", "--length", "0"), "length"),
        (("figure4", "--figure", "curves.pdf"), "the figure is a PNG"),
        (("figure7", "--size", "paper"), "--data FOLDER"),
        (("figure4", "--size", "huge"), "huge"),
        (("figure9",), "figure9"),
    ],
)
def test_mistakes_are_one_line(capsys, arguments, words):
    try:
        status = cli.main(["sweep", *arguments])
    except SystemExit as ended:
        status = ended.code
    assert status == 2
    assert words in capsys.readouterr().err


def test_ctrl_c_says_that_the_same_command_goes_on(capsys, monkeypatch):
    def stopped(*_, **__):
        raise KeyboardInterrupt("stopped after update 3")

    monkeypatch.setattr("relnet.run.training.train", stopped)
    _, err = sweep(capsys, "figure4", *SMALL, status=130)
    assert "the same command goes on" in err


def test_a_run_that_was_stopped_says_where_it_goes_on(capsys, monkeypatch):
    def pressed(progress, record):
        if record.step == 2:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr("relnet.commands.sweep.TrainingProgress.__call__", pressed)
        sweep(capsys, "figure4", *SMALL, status=130)
    _, err = sweep(capsys, "figure4", *SMALL)
    assert re.findall(r"^(\S+) goes on after update (\d+)$", err, re.MULTILINE) == [
        (err.split(", ")[0].split()[-1], "2")
    ], err
