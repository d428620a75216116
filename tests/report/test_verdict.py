import importlib
import json

import pytest
from matplotlib.figure import Figure
from scipy import stats

from relnet import report
from relnet.report.ceilings import share_without_repeat
from relnet.report.cells import MISSING
from relnet.report.intervals import student, wilson
from relnet.report.verdict import best, lost, share, trained_task


def line(**changes):
    items, exact = changes.get("items", 100), changes.get("exact", 100)
    return {
        "task": "copying-jelassi2024",
        "subject": "mine",
        "mode": "free_running",
        "length": 16,
        "seed": 0,
        "items": items,
        "letters": 16 * items,
        "letters_right": 16 * exact,
        "exact": exact,
        "stopped": items,
        "ended": items,
        "ties": 0,
        "first_errors": [-1] * exact + [3] * (items - exact),
        "note": "",
        "state_bytes": 512,
        "train_length": 16,
        "lr": 1e-3,
        "train_seed": 0,
        "parameters": 1234,
        "steps": 50,
        "samples": 3200,
        "samples_to_99": 2560,
        "train_accuracy": 0.99,
        "alphabet": 26,
        "scorer": "jelassi2024",
        "score": exact / items if items else None,
        **changes,
    }


def cells(lines, subject="mine"):
    (row,) = [row.split() for row in report.verdict(lines, width=200).splitlines() if row.startswith(f"{subject} ")]
    return row


def test_the_verdict_says_what_was_counted():
    lines = [
        line(),
        line(mode="teacher_forced", exact=97),
        line(length=32, exact=95),
        line(length=64, exact=94),
        line(length=80),
    ]
    assert cells(lines) == [
        *(
            "mine",
            "copying-jelassi2024,",
            "16",
            "1,234",
            "2,560",
            "97",
            "100",
            "96.3-100.0",
            "100",
            "100",
            "-",
            "32",
            "512",
        )
    ]


def test_of_several_seeds_the_interval_is_over_seeds_and_of_one_over_its_counts():
    one = [line(exact=80), line(exact=80, mode="teacher_forced")]
    assert cells(one)[7] == "{:.1f}-{:.1f}".format(*(100 * end for end in wilson(80, 100)))
    three = [line(exact=exact, seed=seed) for seed, exact in enumerate((80, 90, 70))]
    assert cells(three)[6:8] == ["80", "{:.1f}-{:.1f}".format(*(100 * end for end in student([0.8, 0.9, 0.7])))]
    assert "Student's t over seeds" in report.verdict(three)
    assert "Wilson's" in report.verdict(one)


def test_the_best_rate_in_training_is_shown_and_all_are_told():
    lines = [line(lr=1e-3, train_accuracy=0.5, exact=100), line(lr=1e-2, train_accuracy=0.75, exact=10)]
    assert best(lines) == [lines[1]]
    assert cells(lines)[6] == "10"
    assert "0.001: 50.0 %, 0.01: 75.0 %" in " ".join(report.verdict(lines).split())


def test_what_was_not_reached_or_not_asked_is_said():
    lines = [
        line(samples_to_99=None),
        line(length=64, items=0, exact=0, note="needs 131 tokens, the model takes at most 99", ties=7),
    ]
    assert cells(lines)[4] == ">3,200"
    text = " ".join(report.verdict(lines).split())
    assert "length 64 was not asked: needs 131 tokens, the model takes at most 99" in text
    assert "in 7 decisions the two highest logits were within 1e-4" in text


def test_seeds_that_agree_do_not_make_a_share_certain():
    for exact, end in ((100, 0), (0, 1)):
        lines = [line(seed=seed, exact=exact) for seed in range(3)]
        interval = share(lines)[1:]
        assert interval[end] == wilson(3 * exact, 300)[end]
        assert interval[1 - end] == exact / 100


def test_a_model_that_never_stops_is_told_and_has_copied_nothing():
    endless = [line(stopped=0, ended=0, first_errors=[16] * 100), line(subject="other")]
    text = " ".join(report.verdict(endless).split())
    assert "mine, copying-jelassi2024 (trained up to 16): never stops; no free-running answer holds an <EOS>." in text
    assert "other, copying-jelassi2024 (trained up to 16): never stops" not in text
    assert cells(endless)[11] == MISSING
    assert cells(endless, "other")[11] == "16"


def test_a_score_that_no_column_shows_is_told_by_length():
    lines = [line(scorer="squad-f1", score=0.25, length=n, train_length=None) for n in (100, 200)]
    assert "squad-f1 100: 0.250, 200: 0.250" in " ".join(report.verdict(lines).split())


def test_what_is_told_of_answers_is_of_the_rate_that_the_table_shows():
    other = {"lr": 1e-2, "train_accuracy": 0.1}
    endless = {"stopped": 0, "ended": 0}
    shown, hidden = line(**endless), line(ties=7, scorer="squad-f1", score=0.25, note="cut off", **other)
    text = " ".join(report.verdict([shown, hidden]).split())
    assert "never stops" in text
    assert not any(told in text for told in ("7 decisions", "squad-f1", "cut off"))
    text = " ".join(report.verdict([line(ties=7, note="cut off"), hidden | endless]).split())
    assert "in 7 decisions" in text
    assert "length 16: cut off." in text
    assert "never stops" not in text
    lost = line(items=0, exact=0, note="diverged in training at lr 0.01", **other)
    assert "length 16 was not asked: diverged in training at lr 0.01." in " ".join(
        report.verdict([shown, lost]).split()
    )


def test_what_is_told_of_answers_is_told_by_trained_length():
    lines = [line(stopped=0, ended=0, scorer="squad-f1", score=0.25, ties=3), line(train_length=8, length=8, ties=4)]
    text = " ".join(report.verdict(lines).split())
    assert "mine, copying-jelassi2024 (trained up to 16): never stops" in text
    assert "mine, copying-jelassi2024 (trained up to 16): squad-f1 16: 0.250." in text
    assert "mine, copying-jelassi2024 (trained up to 16): in 3 decisions" in text
    assert "mine, copying-jelassi2024 (trained up to 8): in 4 decisions" in text
    assert "up to 8): never stops" not in text


def diverged(seed, **changes):
    note = "diverged in training at lr 0.001 (update 3: loss nan)"
    nothing = {"items": 0, "exact": 0, "samples_to_99": None, "train_accuracy": 0.0, "state_bytes": None}
    made = line(seed=seed, note=note, **nothing, **changes)
    return {key: value for key, value in made.items() if key != "parameters"}


def test_seeds_that_diverged_are_told_at_the_row_and_named():
    lines = [diverged(0), line(seed=1), line(seed=2)]
    assert cells(lines)[3:7:3] == ["1,234", "100"]
    assert cells(lines)[4] == ">3,200"
    text = report.verdict(lines, width=200)
    assert "1 of 3 seeds diverged" in [row.strip() for row in text.splitlines()]
    told = " ".join(text.split())
    assert "length 16 at seed 0 was not asked: diverged in training at lr 0.001 (update 3: loss nan)." in told
    assert "seeds 0, 1, 2; interval: Student's t over seeds" in told
    assert "a seed that was not asked is in no share and no interval." in told
    text = report.verdict([line(seed=seed) for seed in range(3)])
    assert not any(told in text for told in ("seeds diverged", "not asked"))


def test_how_many_seeds_lack_answers_that_others_have():
    too_long = [line(seed=seed, length=64, items=0, exact=0, note="needs 131 tokens") for seed in range(2)]
    assert lost([line(seed=0), line(seed=1), *too_long]) == ""
    assert lost([diverged(0), line(seed=1), *too_long]) == "1 of 2 seeds diverged"
    nan = line(seed=0, length=8, items=0, exact=0, note="gives NaN, trained at lr 0.001")
    assert lost([line(seed=0), line(seed=1), nan, line(seed=1, length=8)]) == "1 of 2 seeds did not give all answers"
    assert lost([diverged(0), diverged(1)]) == ""


def test_a_figure_says_where_seeds_are_missing_and_what_was_trained(tmp_path, monkeypatch):
    told = []
    module = importlib.import_module("relnet.report.exam_figures")
    monkeypatch.setattr(module, "literal", lambda text: told.append(text) or text)
    planted = {"task": "duplicated-ngram-2-jelassi2024", "trained_task": "copying-jelassi2024"}
    lines = [line(seed=1), diverged(0), diverged(0, subject="none"), line(subject="other", **planted)]
    assert len(report.exam_figures(lines, tmp_path)) == 3
    assert told.count("mine, up to 16, 1 of 2 seeds diverged") == 2
    assert told.count("other, copying-jelassi2024 up to 16") == 2
    assert {"mine, 99 % not reached within", "other, copying-jelassi2024"} <= set(told)
    assert not any(text.startswith("none") for text in told)


def test_candidates_that_ended_together_without_99_percent_stand_side_by_side():
    module = importlib.import_module("relnet.report.exam_figures")
    axes = Figure().subplots()
    names = ("mine", "other", "third")
    module._samples(
        axes, [line(subject=name, samples_to_99=None) for name in names], {name: {"color": "k"} for name in names}
    )
    places = [float(drawn.get_xdata()[0]) for drawn in axes.get_lines()]
    assert len(set(places)) == 3
    assert all(abs(place - line()["train_length"]) < 1 for place in places)


def test_what_was_trained_is_the_task_examined_unless_it_is_said():
    old = line()
    assert trained_task(old) == "copying-jelassi2024"
    assert trained_task(old | {"trained_task": "unrepeated"}) == "unrepeated"
    assert trained_task(old | {"task": "duplicated-ngram-4-jelassi2024"}) is None
    assert trained_task(old | {"train_length": None}) is None
    new = line(lr=1e-2, train_accuracy=1.0, trained_task="copying-jelassi2024")
    assert best([old, new]) == [new], "old and new lines are of one sitting"


def test_a_model_taken_as_it_is_gets_a_line_a_length():
    trained = ("train_length", "lr", "parameters", "samples", "samples_to_99", "train_accuracy", "steps", "alphabet")
    lines = [{k: v for k, v in line(length=n).items() if k not in trained} for n in (8, 16)]
    rows = [row for row in report.verdict(lines, width=200).splitlines() if row.startswith("mine ")]
    assert [row.split()[2] for row in rows] == ["8", "16"]


def test_figures_are_drawn_of_what_there_is_and_never_over_another(tmp_path):
    lines = [line(length=n, exact=max(0, 100 - n), train_length=64, samples_to_99=n or None) for n in (16, 64, 320)]
    lines += [line(subject="other", task="prefix-lookup-3-jelassi2024", samples_to_99=None)]
    made = report.exam_figures(lines, tmp_path)
    assert [path.name for path in made] == ["exam-lengths.png", "exam-samples.png", "exam-states.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in made)
    assert report.exam_figures(lines, tmp_path)[0].name == "exam-lengths-2.png"
    untrained = [{k: v for k, v in line().items() if k not in ("samples", "train_length", "lr")}]
    assert [path.name for path in report.exam_figures(untrained, tmp_path / "new")] == [
        "exam-lengths.png",
        "exam-states.png",
    ]
    with pytest.raises(ValueError, match="no results of an exam to draw"):
        report.exam_figures([line(items=0, exact=0)], tmp_path)


def test_a_file_that_is_no_exam_is_refused(tmp_path):
    path = tmp_path / "exam.jsonl"
    path.write_text(json.dumps(line()) + "\n")
    assert report.read_exam(path) == [line()]
    for content in ("", "{", "[]\n"):
        path.write_text(content)
        with pytest.raises(ValueError, match="holds no exam"):
            report.read_exam(path)


@pytest.mark.parametrize(("part", "whole"), [(0, 10), (7, 10), (320, 320), (1, 1000)])
def test_wilsons_interval_is_that_of_scipy(part, whole):
    found = stats.binomtest(part, whole).proportion_ci(method="wilson")
    assert wilson(part, whole) == pytest.approx((found.low, found.high), abs=1e-12)


def test_students_interval_is_that_of_scipy():
    assert wilson(0, 0) == (0, 1)
    for num in (2, 3, 6, 11, 12, 30):
        shares = [0.5 + 0.01 * (-1) ** n * n / num for n in range(num)]
        mean, error = sum(shares) / num, stats.sem(shares)
        assert student(shares) == pytest.approx(stats.t.interval(0.95, num - 1, mean, error), abs=2e-5)
    with pytest.raises(ValueError, match="at least 2"):
        student([0.5])


def test_the_ceiling_is_the_birthday_problem_where_letters_are_independent():
    # 1-grams: 26 25 24 ... / 26^L exactly.
    for length in (3, 6):
        exact = 1.0
        for taken in range(length):
            exact *= (26 - taken) / 26
        assert abs(share_without_repeat(length, 1) - exact) < 4 * (exact * (1 - exact) / 4000) ** 0.5
    shares = [share_without_repeat(length, 3) for length in (16, 64, 256)]
    assert shares == sorted(shares, reverse=True)
    for length in (16, 64):
        assert 1 - share_without_repeat(length, 3) < length**2 / 26**3
    assert share_without_repeat(64, 3) < share_without_repeat(64, 4) < share_without_repeat(64, 5)
