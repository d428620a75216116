"""relnet report: files of JSON lines, the page, and the command that it names for each run."""

import dataclasses
import json
import shlex
import shutil

import pytest

from relnet import cli, recipes, run, tasks
from relnet.commands import report as command
from relnet.commands.rerun import rerun
from relnet.report import read_runs
from relnet.train import CurvaturePenalty
from tests.report.folders import make_run, result


def made_by(config, folder, finished=True):
    folder.mkdir()
    if finished:
        (folder / "result.json").write_text(json.dumps(result()))
    (folder / "config.json").write_text(run.config_to_json(config))
    (found,) = read_runs([folder])
    return found


def learnt(config, **others):
    """As if the task's data had been prepared."""
    return dataclasses.replace(config, task=dataclasses.replace(config.task, stores=("a", "b"), **others))


def configs(text):
    stored = recipes.text(
        (str(text),), validation="other.txt", mixer="hybrid", depth=4, hidden=32, lr=0.5, final_lr=0.1
    )
    return {
        "defaults": (recipes.copying(), "relnet train copying"),
        "options": (
            recipes.copying(3, "transformer", "jelassi2024", 16, 2, 4, lr=0.01, stop_accuracy=None, seed=7),
            "relnet train copying --length 3 --mixer transformer --layout jelassi2024 --width 16 --depth 2 --heads 4 --lr 0.01 "
            "--stop-accuracy None --seed 7",
        ),
        "lstm": (recipes.copying(mixer="lstm"), "relnet train copying --mixer lstm"),
        "paper": (recipes.paper_copying(16), "relnet train paper-copying --length 16"),
        "paper's constant rate": (
            learnt(recipes.paper_images(("digits",), rate="constant")),
            "relnet train paper-images --data digits --rate constant",
        ),
        "images": (
            learnt(recipes.images(mixer="birn", patch=4, lr=0.5), mean=(0.3,), std=(0.4,)),
            "relnet train images --mixer birn --patch 4 --hidden 256 --lr 0.5",
        ),
        "switches": (
            learnt(recipes.images(flip=True, skip=True), mean=(0.3,), std=(0.4,)),
            "relnet train images --flip --skip --hidden 256",
        ),
        "two mixers": (
            recipes.long_copying(seed=1, windows=(2, 3)),
            "relnet train long-copying --windows 2 3 --seed 1",
        ),
        "compared": (recipes.compare_copying(8, ("linear-causalrn",))[0], None),
        "penalty": (
            dataclasses.replace(recipes.copying(3), penalty=CurvaturePenalty(0.5, norm="frobenius", iters=2)),
            "relnet train copying --length 3 --jacobian-weight 0.5 --penalty-norm frobenius --penalty-iters 2",
        ),
        "another name": (dataclasses.replace(recipes.copying(5), name="mine"), "relnet train copying --length 5"),
        "text": (learnt(stored), None),
    }


@pytest.mark.parametrize(
    "case",
    [
        "defaults",
        "options",
        "lstm",
        "paper",
        "compared",
        "penalty",
        "another name",
        "text",
        "images",
        "switches",
        "two mixers",
        "paper's constant rate",
    ],
)
def test_the_command_named_for_a_run_gives_its_very_configuration(tmp_path, case):
    config, words = configs(tmp_path / "a b.txt")[case]
    told = rerun(made_by(config, tmp_path / "run"))
    assert words in (None, told)
    again = cli.parse(shlex.split(told)[1:])._penalised()
    if isinstance(config.task, tasks.Text):
        again = learnt(again)
    elif isinstance(config.task, tasks.Images):
        again = learnt(again, mean=config.task.mean, std=config.task.std)
    assert dataclasses.replace(again, name=config.name) == config


def test_a_run_whose_images_are_gone_is_made_again_from_its_folder(tmp_path):
    config = recipes.images(mixer="birn")
    gone = dataclasses.replace(config, task=dataclasses.replace(config.task, data=(str(tmp_path / "gone.npz"),)))
    assert rerun(made_by(gone, tmp_path / "run")).startswith("python -c ")


def test_what_no_recipe_gives_is_made_again_from_the_folder_itself(tmp_path):
    config = recipes.copying(3, width=8, depth=1, batch_size=2, max_steps=1)
    odd = dataclasses.replace(config, train=dataclasses.replace(config.train, beta2=0.5))
    program, option, code = shlex.split(rerun(made_by(odd, tmp_path / "it's")))
    assert (program, option) == ("python", "-c")
    exec(code, {})
    again = run.read_config(tmp_path / "it's-again")
    assert again == odd
    assert (tmp_path / "it's-again" / "exam.jsonl").exists(), "as relnet train ends"


def test_an_unfinished_run_is_gone_on_with_in_its_folder(tmp_path):
    config = recipes.copying(3, width=8, depth=1, batch_size=2, max_steps=1)
    folder = tmp_path / "a b"
    told = rerun(made_by(config, folder, finished=False))
    command = cli.parse(shlex.split(told)[1:])
    assert (command.recipe, command.out, command.resume) == (config, folder, True)
    odd = dataclasses.replace(config, train=dataclasses.replace(config.train, beta2=0.5))
    _, _, code = shlex.split(rerun(made_by(odd, tmp_path / "odd", finished=False)))
    exec(code, {})
    assert (tmp_path / "odd" / "result.json").exists()


def test_a_run_without_a_configuration_of_ours_has_no_command(tmp_path):
    (bare,) = read_runs([make_run(tmp_path, "a", config=False)])
    (foreign,) = read_runs([make_run(tmp_path, "b")])
    assert (rerun(bare), rerun(foreign)) == (None, None)


def report(capsys, *arguments, status=0):
    found = cli.main(["report", *map(str, arguments)])
    captured = capsys.readouterr()
    assert found == status, captured.err
    return captured.out, captured.err


def test_a_page_is_written_in_place_of_a_figure_and_replaces_an_earlier_one(capsys, tmp_path):
    made_by(recipes.copying(5), tmp_path / "runs")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "config.json").write_text("{")
    path = tmp_path / "page.html"
    for _ in range(2):
        out, _ = report(capsys, tmp_path, "--html", path)
        assert f"page: {path}" in out
        assert f"not readable: {tmp_path / 'torn'}: " in out
        assert "relnet train copying --length 5" in path.read_text()
    assert {file.name for file in tmp_path.iterdir()} == {"runs", "torn", "page.html"}
    path.write_text("mine")
    _, err = report(capsys, tmp_path, "--html", path, status=2)
    assert "nothing is overwritten" in err
    assert path.read_text() == "mine"


def test_a_file_of_json_lines_stands_for_its_runs(capsys, tmp_path):
    make_run(tmp_path / "runs", "causalrn")
    kept = tmp_path / "kept.jsonl"
    whole, _ = report(capsys, tmp_path / "runs", "--json", kept, "--figure", tmp_path / "a.png")
    again, _ = report(capsys, kept)
    assert whole.partition("\nlearning curves")[0] == again.partition("\nlearning curves")[0]
    assert (tmp_path / "curves.png").exists()


def test_a_table_of_runs_says_what_else_there_is(capsys, tmp_path):
    make_run(tmp_path / "runs", "causalrn")
    kept = tmp_path / "kept.jsonl"
    report(capsys, tmp_path / "runs", "--json", kept)
    exam = {"subject": "a model", "task": "copying", "mode": "free_running", "seed": 0, "length": 5}
    exam |= {"items": 1, "exact": 1, "letters": 5, "letters_right": 5}
    with kept.open("a") as file:
        file.write(json.dumps(exam) + "\n")
    out, _ = report(capsys, kept)
    assert "causalrn" in out
    assert "results of exams are there too; --html FILE shows them" in out
    kept.write_text(json.dumps(exam) + "\n")
    _, err = report(capsys, kept, status=2)
    assert "holds results of an exam and no run; --html FILE shows them" in err
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "config.json").write_text("{")
    _, err = report(capsys, tmp_path / "torn", status=2)
    assert f"{tmp_path / 'torn'} cannot be read: " in err
    out, _ = report(capsys, tmp_path / "torn", tmp_path / "runs", "--figure", tmp_path / "other.png")
    assert f"not readable: {tmp_path / 'torn'}: " in out


def test_a_watched_page_follows_the_runs_until_ctrl_c(capsys, tmp_path, monkeypatch):
    make_run(tmp_path / "runs", "first", log=5, result=None)
    path = tmp_path / "page.html"
    seen = []

    def sleep(seconds):
        assert seconds == command.WATCHING
        seen.append(path.read_text())
        if len(seen) == 3:
            raise KeyboardInterrupt
        make_run(tmp_path / "runs", f"run-{len(seen)}")

    monkeypatch.setattr(command.time, "sleep", sleep)
    report(capsys, tmp_path / "runs", "--html", path, "--watch")
    assert [text.count('class="run"') for text in seen] == [1, 2, 3]
    assert all(f'"refresh":{command.WATCHING}' in text for text in seen)
    assert '"refresh":null' in path.read_text()


def test_a_page_is_watched_from_before_the_first_run_to_after_its_folder_is_gone(capsys, tmp_path, monkeypatch):
    path, runs = tmp_path / "page.html", tmp_path / "runs"
    seen = []

    def sleep(_):
        seen.append(path.read_text().count('class="run"'))
        if len(seen) == 1:
            runs.mkdir()
        elif len(seen) == 2:
            make_run(runs, "first")
        elif len(seen) == 3:
            shutil.rmtree(runs)
        else:
            raise KeyboardInterrupt

    monkeypatch.setattr(command.time, "sleep", sleep)
    _, err = report(capsys, runs, "--html", path, "--watch", "--figure", tmp_path / "curves.png")
    assert seen == [0, 0, 1, 1]
    assert path.read_text().count('class="run"') == 1
    assert '"refresh":null' in path.read_text()
    assert "no run is left in the folders" in err


def test_watching_needs_a_page(capsys, tmp_path):
    make_run(tmp_path, "a")
    _, err = report(capsys, tmp_path, "--watch", status=2)
    assert "--html FILE" in err
