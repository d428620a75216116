"""One run among others that holds what no relnet wrote: it is named with the reason."""

import json

import pytest

from relnet.report import learning_curves, markdown, read_runs
from relnet.report.page import gather, page
from relnet.report.reading import CURVE
from tests.report.folders import exam_row, make_run, update
from tests.report.page.test_data import data_of

ODD = [
    ("log.jsonl", {"loss": None}, "update 2 of the log: loss is None, a number is wanted"),
    ("log.jsonl", {"window_accuracy": "much"}, "update 2 of the log: window_accuracy is 'much', a number is wanted"),
    ("log.jsonl", {"accuracy": ...}, "update 2 of the log lacks accuracy"),
    ("log.jsonl", {"step": None}, "update 2 of the log: step is None, a number is wanted"),
    ("log.jsonl", {"bits_per_byte": []}, "step 2 of the log: bits_per_byte is [], a number is wanted"),
    ("exam.jsonl", {"exact": float("nan")}, "row 2 of the exam: exact is nan, a number is wanted"),
    ("exam.jsonl", {"letters": float("inf")}, "row 2 of the exam: letters is inf, a number is wanted"),
    ("exam.jsonl", {"ties": "few"}, "row 2 of the exam: ties is 'few', a number is wanted"),
    ("exam.jsonl", {"exact": 321}, "row 2 of the exam: 321 of 320 items are right"),
    ("exam.jsonl", {"seed": "a"}, "row 2 of the exam: seed is 'a', a number is wanted"),
    ("exam.jsonl", {"task": ["copying"]}, "is damaged: what is asked is a list or an object"),
    ("exam.jsonl", {"task": 3}, "row 2 of the exam: task is 3, a name is wanted"),
    ("config.json", {"train": {"stop_accuracy": "high"}}, "the settings: stop_accuracy is 'high', a number is wanted"),
]


def with_last_line(path, change):
    """Other values in the file's last line, or none (...)."""
    *lines, last = path.read_text().splitlines()
    changed = {name: value for name, value in (json.loads(last) | change).items() if value is not ...}
    path.write_text("\n".join([*lines, json.dumps(changed)]) + "\n")


@pytest.mark.parametrize(("file", "change", "why"), ODD)
def test_a_run_with_an_odd_value_is_named_with_the_reason(tmp_path, file, change, why):
    make_run(tmp_path, "good", log=2)
    bad = make_run(tmp_path, "bad", log=2)
    with_last_line(bad / file, change)
    found = gather([tmp_path])
    assert [run.name for run in found.runs] == ["good"]
    ((place, told),) = found.unreadable
    assert place == bad
    assert why in told
    assert markdown(found.runs)
    assert data_of(page(found, "title"))["lengths"] == []


def test_a_kept_line_with_an_odd_value_is_named_with_the_reason(tmp_path):
    (run,) = read_runs([make_run(tmp_path / "runs", "a", log=2)])
    whole, path = json.loads(run.to_json()), tmp_path / "kept.jsonl"
    (row, _) = whole["exam"]
    for change, why in (
        ({"curve": {name: [1, None] for name in ("step", *CURVE)}}, "update 2 of the log: step is None"),
        ({"curve": {"step": [1, 2]}}, "update 1 of the log lacks loss"),
        ({"exam": [{name: value for name, value in row.items() if name != "ties"}]}, "row 1 of the exam lacks ties"),
    ):
        path.write_text("\n".join(map(json.dumps, (whole, whole | change, whole))))
        ((place, told),) = gather([path]).unreadable
        assert (str(place), len(gather([path]).runs)) == (f"{path}:2", 2)
        assert why in told


def test_counts_that_are_nan_at_two_lengths_keep_no_page_from_being_made(tmp_path):
    make_run(tmp_path, "good")
    rows = [exam_row("free_running", length=length, exact=float("nan")) for length in (8, 16)]
    make_run(tmp_path, "bad", exam=rows)
    assert "row 1 of the exam: exact is nan" in page(gather([tmp_path]), "title")


def test_a_run_that_diverged_is_shown(tmp_path):
    path = make_run(tmp_path, "a", log=0)
    lines = [update(1), update(2, loss=float("nan")), update(3, loss=float("inf"), window_accuracy=0.0)]
    (path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = gather([tmp_path])
    assert found.unreadable == []
    assert learning_curves(found.runs, tmp_path / "curves.png").exists()
