import pytest

from relnet.report import markdown, read_runs, table
from tests.report.folders import TEXT_TASK, exam_row, make_run, result, text_row

EXPECTED = """\
                                               teacher-      free-
                                steps            forced    running
                                   to  stays     exact/     exact/  stops     s/    wall
name                parameters   99 %   from  letters %  letters %      %   step    time
----------------------------------------------------------------------------------------
causalrn             1,342,848     82     85  99.6/99.9  99.6/99.9    100  0.412  12m34s
linear-transformer   5,325,504   >150   >150      0/5.8          -      -   0.25   1h02m
young                        -      -      -          -          -      -   0.25       -
"""


@pytest.fixture
def runs(tmp_path):
    make_run(tmp_path, "causalrn")
    slow = result(
        steps=150, steps_to_accuracy=None, steps_to_stay=None, wall_seconds=3725, num_parameters=5325504,
        seconds_per_step=0.25,
    )  # fmt: skip
    exam = [exam_row("teacher_forced", exact=0, letters_right=300, stopped=12)]
    make_run(tmp_path, "linear-transformer", log=150, result=slow, exam=exam)
    make_run(tmp_path, "young", log=7, result=None, exam=())
    return read_runs([tmp_path])


def test_the_table_shows_each_number_of_each_run(runs):
    text = table(runs, width=120)
    assert text.startswith(EXPECTED + "\n")
    below = " ".join(text.removeprefix(EXPECTED).split())
    assert "Exam: 320 items a length and seed; length 16; seed 0." in below
    assert "Scorer of the training accuracy: cui2024." in below
    assert "young: no result yet, 7 updates in the log." in below


def test_at_80_columns_every_number_and_name_is_still_there(runs):
    text = table(runs, width=80)
    assert max(map(len, text.splitlines())) <= 80
    for line in EXPECTED.splitlines()[5:]:
        assert line.split() in [narrow.split() for narrow in text.splitlines()]


def test_names_that_are_too_long_are_folded_and_nothing_is_lost(tmp_path):
    name = "a-model-with-a-name-that-is-as-long-as-names-get-in-a-sweep-of-many-settings"
    make_run(tmp_path, name, result=result(num_parameters=1_234_567_890))
    text = table(read_runs([tmp_path]), width=80)
    lines = text.split("\n\n")[0].splitlines()
    assert max(map(len, lines)) <= 80
    assert "1,234,567,890" in text
    first = next(index for index, line in enumerate(lines) if line.startswith("a-model"))
    assert "".join(line.split()[0] for line in lines[first:]) == name


def test_the_text_is_plain_ascii_without_trailing_blanks(runs):
    text = table(runs)
    assert text.isascii()
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_the_width_is_the_terminals_but_never_under_80(runs, monkeypatch):
    for columns, width in [("40", 80), ("100", 100)]:
        monkeypatch.setenv("COLUMNS", columns)
        assert table(runs) == table(runs, width=width)


def test_names_are_shown_as_they_are(tmp_path):
    make_run(tmp_path, "[bold]a|b[/bold]", folder="a")
    runs = read_runs([tmp_path])
    assert "[bold]a|b[/bold]" in table(runs, width=120)
    assert "| [bold]a\\|b[/bold] |" in markdown(runs)


@pytest.mark.parametrize(
    ("right", "shown"), [(0, "0"), (1, "0.0"), (2559, "49.9"), (2560, "50.0"), (5119, "99.9"), (5120, "100")]
)
def test_percentages_round_down_so_that_100_means_all(tmp_path, right, shown):
    make_run(tmp_path, "a", exam=[exam_row("free_running", exact=0, letters_right=right)])
    assert f" 0/{shown} " in table(read_runs([tmp_path]))


def test_seeds_are_pooled(tmp_path):
    exam = [exam_row("free_running", seed=seed, exact=exact) for seed, exact in [(0, 320), (1, 0)]]
    make_run(tmp_path, "a", exam=exam)
    text = table(read_runs([tmp_path]))
    assert " 50.0/99.9 " in text
    assert "seeds 0, 1." in text


def test_several_lengths_get_a_line_each_and_a_refused_one_a_sentence(tmp_path):
    exam = [
        exam_row("free_running", length=16),
        exam_row("free_running", length=32, exact=32, letters=10240, letters_right=5120),
        exam_row("free_running", length=64, items=0, letters=0, letters_right=0, exact=0, stopped=0, note="needs 130"),
    ]
    make_run(tmp_path, "a", exam=exam)
    make_run(tmp_path, "b", exam=())
    text = table(read_runs([tmp_path]), width=120)
    rows = [line.split()[:2] for line in text.splitlines() if line.startswith(("a ", "b "))]
    assert rows == [["a", "16"], ["a", "32"], ["b", "-"]]
    assert " 10.0/50.0 " in text
    assert "a: length 64 was not examined, it needs 130." in text
    assert "lengths 16, 32; seed 0." in text


def test_the_target_is_the_runs_own(tmp_path):
    make_run(tmp_path / "same", "a", stop_accuracy=0.95)
    assert "steps to 95 % |" in markdown(read_runs([tmp_path / "same"]))
    make_run(tmp_path / "same", "b", stop_accuracy=0.999)
    text = markdown(read_runs([tmp_path]))
    assert "steps to target |" in text
    assert "- a: the target is 95 %.\n- b: the target is 99.9 %." in text


def test_a_run_without_a_target_has_no_steps_to_it(tmp_path):
    make_run(tmp_path, "a", stop_accuracy=None, result=result(steps_to_accuracy=None, steps_to_stay=None))
    assert "| 1,342,848 | - | - |" in markdown(read_runs([tmp_path]))


def test_markdown_is_a_table_of_equally_long_lines(runs):
    text = markdown(runs)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 5
    assert len({line.count("|") for line in lines}) == 1
    assert lines[0].startswith("| name | parameters | steps to 99 % | stays from | teacher-forced exact/letters % |")
    assert lines[2].startswith("| causalrn | 1,342,848 | 82 | 85 | 99.6/99.9 | 99.6/99.9 | 100 | 0.412 | 12m34s |")


def test_ties_are_told(tmp_path):
    make_run(tmp_path, "a", exam=[exam_row("free_running", ties=3)])
    assert "a: in 3 decisions" in table(read_runs([tmp_path]))


def test_scorers_that_differ_are_named_with_a_warning(tmp_path):
    make_run(tmp_path, "a")
    make_run(tmp_path, "b", exam=[exam_row("free_running", scorer="jelassi2024")])
    assert "cui2024, jelassi2024 (never compare across scorers)." in table(read_runs([tmp_path]), width=200)


def test_no_runs_are_refused():
    for draw in (table, markdown):
        with pytest.raises(ValueError, match="no runs"):
            draw([])


def make_text_runs(parent):
    for name, bits in (("causalrn", 2.0), ("hybrid", 2.0625)):
        row = text_row(subject=name, bits_per_byte=bits)
        make_run(parent, name, task=TEXT_TASK, stop_accuracy=None, exam=(row,))
    make_run(parent, "young", task=TEXT_TASK, stop_accuracy=None, exam=(), result=None, log=7)


def test_runs_on_a_text_have_a_table_of_their_own(tmp_path):
    make_text_runs(tmp_path)
    text = table(read_runs([tmp_path]), width=120)
    rows = {line.split()[0]: line.split()[1:] for line in text.split("\n\n")[0].splitlines()[3:] if line.strip()}
    assert rows["causalrn"] == ["1,342,848", "202,752", "2.0000", "4.000", "4,967", "65,536", "0.412", "12m34s"]
    assert rows["hybrid"][2] == "2.0625"
    assert rows["young"] == ["-", "14,336", "-", "-", "8,192", "-", "0.25", "-"]
    below = " ".join(text.split())
    assert "Validation: 1,256,449 tokens, 1,256,449 bytes, in windows of 256 that begin every 256." in below
    assert "causalrn wrote: Three years later, | the $caf?" in below
    assert "young: no result yet, 7 updates in the log." in below
    assert "teacher-" not in text
    assert text.isascii()


def test_runs_of_both_kinds_get_both_tables(tmp_path):
    make_text_runs(tmp_path / "texts")
    make_run(tmp_path, "copier")
    for show in (table, markdown):
        shown = show(read_runs([tmp_path]))
        assert "teacher-" in shown
        assert "perplexity" in shown
        for name in ("copier", "causalrn", "hybrid"):
            assert name in shown
