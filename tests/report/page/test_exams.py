"""Results of exams in the charts against length: each file's for itself, each file once."""

import json

import pytest

from relnet.report.page import gather, page
from relnet.report.page.curves import length_charts
from relnet.report.page.grouping import grouped
from relnet.report.reading import read_runs
from tests.report.folders import TASK, exam_row, make_run
from tests.report.page.test_data import Tags, data_of, sitting


def lines_of(found):
    """The lines of the page's one chart against length: label to percent right."""
    (chart,) = data_of(page(found, "title"))["lengths"]
    return {line["label"]: [point[1] for point in line["free_running.exact"]] for line in chart["lines"]}


def two_exams(folder, second="causalrn"):
    sitting(folder / "exam-a", "causalrn", items=100, exact=100)
    sitting(folder / "exam-b", second, items=100, exact=0)


def test_the_same_sitting_in_two_files_is_two_lines(tmp_path, monkeypatch):
    two_exams(tmp_path)
    (tmp_path / "exam-b" / "exam.jsonl").rename(tmp_path / "b.jsonl")
    monkeypatch.chdir(tmp_path)
    found = lines_of(gather(["exam-a", "b.jsonl"]))
    assert found == {"causalrn (exam-a)": [100, 100, 100], "causalrn (b.jsonl)": [0, 0, 0]}
    assert list(lines_of(gather(["exam-a"]))) == ["causalrn"]


def test_other_sittings_keep_their_names(tmp_path):
    two_exams(tmp_path, "lstm")
    assert list(lines_of(gather([tmp_path]))) == ["causalrn", "lstm"]


def test_a_run_and_an_exam_of_one_name_are_two_lines(tmp_path):
    rows = [exam_row("free_running", length=length, exact=0) for length in (8, 16)]
    make_run(tmp_path / "runs", "causalrn", exam=rows)
    sitting(tmp_path / "exam", "causalrn", items=100, exact=100)
    assert lines_of(gather([tmp_path])) == {"causalrn": [0, 0], f"causalrn ({tmp_path / 'exam'})": [100, 100, 100]}


def test_runs_of_one_name_on_two_tasks_that_are_examined_alike_are_two_lines(tmp_path):
    for folder, task in (("a", TASK), ("b", TASK | {"min_length": 8})):
        rows = [exam_row("free_running", length=length, exact=320 * (folder == "a")) for length in (8, 16)]
        make_run(tmp_path, "causalrn", folder=folder, task=task, exam=rows)
    runs = read_runs([tmp_path])
    (chart,) = length_charts(runs, grouped(runs), {})
    told = "causalrn (Copying, length 16, layout cui2024"
    assert {line["label"]: (line["runs"], line["free_running.exact"][0][1]) for line in chart["lines"]} == {
        f"{told})": ([0], 100),
        f"{told}, min_length 8)": ([1], 0),
    }


@pytest.mark.parametrize("again", ["exam", "exam/exam.jsonl", "link", "link.jsonl", "."])
def test_a_file_that_is_found_twice_counts_once(tmp_path, again):
    sitting(tmp_path / "exam")
    (tmp_path / "link").symlink_to("exam")
    (tmp_path / "link.jsonl").symlink_to("exam/exam.jsonl")
    once, twice = gather([tmp_path / "exam"]), gather([tmp_path / "exam", tmp_path / again])
    assert twice == once
    assert lines_of(twice) == lines_of(once)


def test_runs_beside_results_of_an_exam_count_once(tmp_path):
    (run,) = read_runs([make_run(tmp_path / "runs", "causalrn")])
    path = sitting(tmp_path / "exam") / "exam.jsonl"
    with path.open("a") as file:
        file.write(run.to_json() + "\n")
    assert len(gather([path, tmp_path / "exam", path]).runs) == 1


def test_lines_of_an_exam_that_are_damaged_are_named_and_the_others_stay(tmp_path):
    path = sitting(tmp_path / "exam") / "exam.jsonl"
    lines = path.read_text().splitlines()
    odd = [json.dumps(json.loads(lines[0]) | change) for change in ({"exact": float("nan")}, {"task": ["copying"]})]
    path.write_text("\n".join([*lines, *odd]) + "\n")
    found = gather([tmp_path])
    assert len(found.sittings[tmp_path / "exam"]) == 3
    assert found.unreadable == [(path, "line 4: exact is nan, a number is wanted, and 1 more of its lines")]
    assert "line 4: exact is nan" in Tags(page(found, "title")).text


def test_a_file_of_an_exam_that_cannot_be_opened_stops_nothing(tmp_path):
    make_run(tmp_path, "good")
    path = tmp_path / "exam" / "exam.jsonl"
    path.parent.mkdir()
    path.symlink_to(path)
    found = gather([tmp_path])
    assert (len(found.runs), [place for place, _ in found.unreadable]) == (1, [path])
