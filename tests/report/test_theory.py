import json

import pytest

from relnet.report import read_results, read_theory, theory_figure, theory_tables

BOUND = {"format": 1, "kind": "bound", "n": 3, "head_width": 64, "kappa": 100.0, "exact": 11_078, "tokens": 11_064}


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_table_shows_the_rows_of_its_kind_aligned(tmp_path):
    text = theory_tables(read_theory(write(tmp_path / "a.jsonl", BOUND, BOUND | {"kappa": 1000.0})))
    title, _, header, first, second = text.splitlines()
    assert "proved right" in title
    assert first.split() == ["3", "64", "100", "11,078", "11,064"]
    assert second.split()[2] == "1,000"
    assert len(header) == len(first) == len(second)


def test_a_figure_needs_no_kind_to_be_there_and_overwrites_nothing(tmp_path):
    source = write(tmp_path / "a.jsonl", BOUND)
    assert theory_figure(source, tmp_path / "a.png") == tmp_path / "a.png"
    assert theory_figure(source, tmp_path / "a.png") == tmp_path / "a-2.png"
    with pytest.raises(ValueError, match=r"\.png"):
        theory_figure(source, tmp_path / "a.pdf")


def test_what_is_no_file_of_the_command_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds nothing"):
        read_theory(tmp_path / "none.jsonl")
    with pytest.raises(ValueError, match="format 9"):
        read_theory(write(tmp_path / "b.jsonl", BOUND | {"format": 9}))


def test_copied_is_the_longest_length_that_is_nearly_always_exact_and_ended(tmp_path):
    row = {"mode": "free_running", "items": 100, "exact": 100, "stopped": 100}
    exam = [
        row | {"length": 8},
        row | {"length": 16, "exact": 95},
        row | {"length": 32, "exact": 94},
        row | {"length": 64, "stopped": 0},
        row | {"length": 128, "mode": "teacher_forced"},
        row | {"length": 256, "items": 0},
    ]
    line = {"format": 1, "name": "a", "config": {}, "exam": exam}
    late = [*exam[:3], row | {"length": 64}]
    write(tmp_path / "a.jsonl", line, line | {"name": "b", "exam": []}, {"other": 1}, line | {"exam": late})
    first, second, third = read_results(tmp_path)
    assert (first["name"], first["copied"], first["examined"]) == ("a", 16, [8, 16, 32, 64])
    assert (second["copied"], second["examined"]) == (None, [])
    assert third["copied"] == 16, "a longer one that passes after one that fails is not up to which it copies"
    assert read_results(tmp_path / "nowhere") == []
