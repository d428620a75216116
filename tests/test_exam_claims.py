"""bench/exam_claims.py: its tables."""

import importlib.util
from pathlib import Path

import pytest

from tests.claims.lines import exam

LENGTHS = (10, 20, 25, 30, 40, 60, 80, 400)


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("exam_claims", Path(__file__).parents[1] / "bench" / "exam_claims.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def row(script, *lines, table=0):
    """The cells of the CausalRN's row."""
    shown = script.tables(list(lines)).split("\n\n")[table]
    (found,) = [line for line in shown.splitlines() if line.startswith("| causalrn ")]
    return [cell.strip() for cell in found.strip("|").split("|")][1:]


def test_tables_show_the_best_rate_and_the_mean_over_seeds(script):
    best = [exam("causalrn", 20, length, 80, train_accuracy=0.9, samples_to_99=3200) for length in LENGTHS]
    other = [line | {"lr": 0.1, "exact": 1, "train_accuracy": 0.1, "samples_to_99": None} for line in best]
    for lines in ([*best, *other], [*other, *best]):
        assert row(script, *lines) == ["3,200", *["80"] * len(LENGTHS)]
    second = [line | {"seed": 1, "exact": 40} for line in best]
    assert row(script, *best, *second)[1:] == ["60"] * len(LENGTHS)


def test_tables_have_a_dash_where_nothing_was_asked(script):
    told = {"note": "diverged", "samples_to_99": None}
    lost = [exam("causalrn", 20, length, 0, items=0, **told) for length in LENGTHS[:-1]]
    assert row(script, *lost) == [">64,000", *["-"] * len(LENGTHS)]


def test_tables_are_of_one_trained_task_and_length(script):
    planted = [exam("causalrn", 20, 20, 10 * n, task=f"duplicated-ngram-{n}") for n in script.NGRAMS]
    strange = [line | {"exact": 0, "trained_task": "unrepeated-copying-4-jelassi2024"} for line in planted]
    longer = [line | {"exact": 0, "train_length": 40, "length": 40} for line in planted]
    expected = [">64,000", *(str(10 * n) for n in script.NGRAMS)]
    assert row(script, *planted, *strange, *longer) == expected
    told = [line | {"trained_task": "copying-jelassi2024"} for line in planted]
    assert row(script, *told, *strange) == expected
    short = [line | {"train_length": 8, "length": 8} for line in planted]
    assert row(script, *planted, *short) == [">64,000", "20", "30", "40"]
    assert row(script, *planted, *short, table=1) == expected


def test_annealed_training_ends_with_its_last_update(script):
    for paper in script.papers(length=12, steps=40, anneal=True).values():
        assert (paper.train.schedule, paper.train.steps) == ("cosine", 40)
        assert paper.train.stay >= 40
