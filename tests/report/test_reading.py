import json
import subprocess
import sys

import pytest

from relnet.report import read_runs
from relnet.report.reading import labels
from tests.report.folders import exam_row, make_run, update


def test_a_run_folder_is_read_whole(tmp_path):
    (run,) = read_runs([make_run(tmp_path, "causalrn")])
    assert (run.name, run.steps, run.stop_accuracy) == ("causalrn", 99, 0.99)
    assert run.task == "Copying, length 16, layout cui2024"
    assert run.updates == [update(step) for step in range(1, 100)]
    assert [row["mode"] for row in run.exam] == ["teacher_forced", "free_running"]
    assert run.result["num_parameters"] == 1342848


def test_a_folder_stands_for_the_runs_in_it_each_once(tmp_path):
    make_run(tmp_path, "b")
    make_run(tmp_path, "a")
    make_run(tmp_path / "deeper", "c")
    (tmp_path / "b" / "exported").mkdir()
    (tmp_path / "b" / "exported" / "config.json").write_text("another program's")
    (tmp_path / "empty").mkdir()
    assert [run.name for run in read_runs([tmp_path])] == ["a", "b", "c"]
    assert [run.name for run in read_runs([str(tmp_path / "b"), tmp_path])] == ["b", "a", "c"]


def test_a_run_that_still_goes_on_is_read_up_to_its_last_whole_line(tmp_path):
    path = make_run(tmp_path, "young", log=5, result=None, exam=())
    with open(path / "log.jsonl", "a") as file:
        file.write('{"step": 6, "loss": 1.')
    (run,) = read_runs([path])
    assert run.steps == 5
    assert len(run.updates) == 5
    assert run.result == {}
    assert run.exam == []


def test_a_line_torn_in_the_middle_of_a_character_is_left_out(tmp_path):
    path = make_run(tmp_path, "young", log=2, result=None, exam=())
    with open(path / "log.jsonl", "ab") as file:
        file.write('{"step": 3, "note": "é'.encode()[:-1])
    assert read_runs([path])[0].steps == 2


def test_a_run_that_has_not_begun_or_has_no_config_is_read(tmp_path):
    (begun,) = read_runs([make_run(tmp_path, "new", log=0, result=None, exam=())])
    assert (begun.steps, begun.updates) == (0, [])
    (bare,) = read_runs([make_run(tmp_path, "bare", config=False)])
    assert (bare.name, bare.stop_accuracy, bare.task, bare.steps) == ("bare", None, "", 99)


def test_a_repeated_exam_counts_once_by_its_latest_row(tmp_path):
    rows = [exam_row("free_running", exact=1), exam_row("free_running", exact=2), exam_row("free_running", seed=1)]
    (run,) = read_runs([make_run(tmp_path, "a", exam=rows)])
    assert [(row["seed"], row["exact"]) for row in run.exam] == [(0, 2), (1, 319)]


def test_foreign_lines_in_an_exam_file_are_left_out(tmp_path):
    path = make_run(tmp_path, "a")
    rows = (path / "exam.jsonl").read_text()
    (path / "exam.jsonl").write_text('{"task": "copy\n[1]\n{"mode": "free_running"}\n' + rows)
    assert len(read_runs([path])[0].exam) == 2


def test_what_is_not_a_run_folder_is_named(tmp_path):
    make_run(tmp_path, "good")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.txt").write_text("")
    for name, message in [
        ("empty", "empty is not a run folder, nor does it hold any: no config.json"),
        ("missing", "missing is not a run folder: it does not exist"),
        ("file.txt", r"file.txt is not a run folder: it is a file"),
    ]:
        with pytest.raises(ValueError, match=message) as caught:
            read_runs([tmp_path / "good", tmp_path / name])
        assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="no run folder given"):
        read_runs([])


@pytest.mark.parametrize("file", ["config.json", "result.json"])
@pytest.mark.parametrize(
    ("content", "message"),
    [('{"format": 1', "is damaged"), ("[1]", "is damaged"), ('{"format": 2}', "has format 2, .* reads format 1")],
)
def test_damaged_and_newer_files_are_named(tmp_path, file, content, message):
    path = make_run(tmp_path, "a")
    (path / file).write_text(content)
    with pytest.raises(ValueError, match=f"{file} {message}"):
        read_runs([path])


def test_an_exam_of_a_newer_release_is_named(tmp_path):
    path = make_run(tmp_path, "a", exam=[exam_row("free_running"), {"format": 2, "mode": "by_heart"}])
    with pytest.raises(ValueError, match=r"exam\.jsonl has format 2, .* reads format 1"):
        read_runs([path])


def test_runs_of_one_name_are_told_apart_by_their_folder(tmp_path):
    make_run(tmp_path, "causalrn", folder="seed-0")
    make_run(tmp_path, "causalrn", folder="seed-1")
    make_run(tmp_path, "transformer", folder="seed-2")
    assert labels(read_runs([tmp_path])) == ["causalrn (seed-0)", "causalrn (seed-1)", "transformer"]
    make_run(tmp_path / "again", "causalrn", folder="seed-0")
    names = labels(read_runs([tmp_path]))
    assert len(set(names)) == 4
    assert f"causalrn ({tmp_path / 'again' / 'seed-0'})" in names


def test_lines_of_one_name_are_told_apart_by_their_settings(tmp_path):
    for length, target in ((8, 0.9), (8, 0.95), (16, 0.9)):
        make_run(tmp_path, "causalrn", folder=f"{length}-{target}", task={"length": length}, stop_accuracy=target)
    file = tmp_path / "kept.jsonl"
    file.write_text("".join(run.to_json() + "\n" for run in read_runs([tmp_path])))
    told = [f"causalrn, length {length}, stop_accuracy {target}" for length, target in ((16, 0.9), (8, 0.9), (8, 0.95))]
    assert labels(read_runs([file])) == told
    line = file.read_text().splitlines()[0]
    file.write_text(f"{line}\n{line}\n")
    assert labels(read_runs([file])) == ["causalrn (kept.jsonl:1)", "causalrn (kept.jsonl:2)"]


def test_reading_changes_nothing(tmp_path):
    path = make_run(tmp_path, "a")
    before = {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.iterdir()}
    read_runs([tmp_path])
    assert {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in path.iterdir()} == before


def test_importing_the_package_loads_neither_torch_nor_matplotlib():
    code = "import sys, relnet.report; print([name for name in ('torch', 'matplotlib') if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert json.loads(loaded) == []
