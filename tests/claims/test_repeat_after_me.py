import pytest

from relnet.claims import Results
from tests.claims.lines import JUDGES, exam, of, run, verdict


def theory(kind, **fields):
    return {"kind": kind, "n": 3, "length": 50, **fields}


def test_j1_and_j2_read_what_relnet_theory_writes():
    error = {
        "model": "transformer",
        "strings": 1000,
        "repeats": 50,
        "wrong": 50,
        "chosen": 100,
        "chosen_right": 100,
        "bound": 0.1,
    }
    assert verdict("J1", theory("error", **error)) == "holds"
    assert verdict("J1", theory("error", **error | {"wrong": 51})) == "does not hold"
    assert verdict("J1", theory("error", **error | {"model": "causalrn"})) == "not tested"
    assert verdict("J2", theory("error", **error)) == "holds"
    assert verdict("J2", theory("error", **error | {"bound": 0.01})) == "does not hold"


def capacity(limit=100, name="lstm, trained at 50"):
    return theory("capacity", model=name, limit=limit, examined=[50, 200], copied=50)


def asked(*counts):
    """A run of an LSTM asked for strings of 50 letters, and of 200 by their exact answers of 320."""
    line = run("lstm", 50, 80)
    rows = [{"mode": "free_running", "length": 200, "items": 320, "exact": exact} for exact in counts]
    return line | {"exam": [*line["exam"], *rows]}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([capacity(), asked(0)], "holds"),
        ([capacity(), asked(159)], "holds"),
        ([capacity(), asked(160)], "does not hold"),
        ([capacity(), asked(256)], "does not hold"),
        ([capacity(), asked(0, 320)], "does not hold"),
        ([capacity(), asked()], "not tested"),
        ([capacity(), run("lstm", 64, 80)], "not tested"),
        ([capacity(None), asked(0)], "not tested"),
        ([capacity(200), asked(320)], "not tested"),
        ([capacity(200), capacity(), asked(320)], "not tested"),
        ([capacity()], "not tested"),
    ],
)
def test_j4_wants_more_wrong_than_right_beyond_what_a_state_holds(lines, expected):
    assert verdict("J4", *lines) == expected


@pytest.mark.parametrize(
    ("trained", "recurrent", "given", "expected"),
    [
        (300, 200_001, 300_000, "holds"),
        (300, 200_000, 300_000, "does not hold"),
        (50, 200_001, 300_000, "holds in part"),
        (300, None, 200_000, "holds"),
        (300, None, 64_000, "not tested"),
    ],
)
def test_j5_compares_samples(trained, recurrent, given, expected):
    lines = [
        exam("transformer", trained, trained, 100, samples_to_99=2000),
        exam("lstm", trained, trained, 90, samples_to_99=recurrent, samples=given),
    ]
    assert verdict("J5", *lines) == expected


def test_j5_holds_whole_only_where_length_300_is_decided():
    short = [exam("transformer", 20, 20, 100, samples_to_99=300), exam("lstm", 20, 20, 0)]
    long = [exam("transformer", 300, 300, 0), exam("lstm", 300, 300, 0)]
    assert verdict("J5", *short, *long) == "holds in part"


def test_j5_takes_the_recurrent_model_that_was_given_least():
    lines = [
        exam("transformer", 20, 20, 100, samples_to_99=300),
        exam("lstm", 20, 20, 0),
        exam("mamba", 20, 20, 0, samples=20_000),
    ]
    assert verdict("J5", *lines) == "not tested"
    assert verdict("J5", *lines[:2]) == "holds in part"


def test_j5_does_not_take_a_model_that_one_seed_learned_for_one_given_in_vain():
    lines = [
        exam("transformer", 20, 20, 100, samples_to_99=300),
        exam("lstm", 20, 20, 100, samples_to_99=2000),
        exam("lstm", 20, 20, 0, seed=1),
    ]
    assert verdict("J5", *lines) == "not tested", "how much slower is open"
    assert verdict("J5", *lines[:2]) == "does not hold"


def test_j5_is_not_judged_by_models_that_none_of_them_learned():
    lines = [exam(name, 50, 50, 10) for name in ("transformer", "lstm")]
    assert verdict("J5", *lines) == "not tested"
    learned = [exam("transformer", 20, 20, 100, samples_to_99=300), exam("lstm", 20, 20, 0)]
    assert verdict("J5", *lines, *learned) == verdict("J5", *learned)


def test_the_run_that_went_furthest_counts():
    short, long = (exam("lstm", 20, 20, 0, samples=samples, steps=samples // 32) for samples in (20_000, 64_000))
    learned = exam("transformer", 20, 20, 100, samples_to_99=300)
    assert verdict("J5", learned, long, short) == "holds in part"
    assert verdict("J5", learned, short) == "not tested"
    reached = exam("lstm", 20, 20, 100, samples_to_99=15_000, samples=16_000)
    assert verdict("J5", learned, long, reached, short) == "does not hold"


def test_sizes_do_not_mix():
    def sat(name, width, **changes):
        line = run(name, 20, steps=30, **changes)
        line["config"]["task"]["layout"] = "jelassi2024"
        line["config"]["model"]["width"] = width
        return line | {
            "exam": [{"task": "copying-jelassi2024", "mode": "free_running", "length": 20, "items": 9, "exact": 9}]
        }

    lines = [sat("transformer-nope", 128, reached=30), sat("lstm", 128, reached=30)]
    assert verdict("J5", *lines) == "does not hold"
    assert verdict("J5", lines[0], sat("lstm", 1024, reached=30)) == "not tested"
    assert verdict("J5", lines[0], exam("lstm", 20, 20, 100, samples_to_99=1920)) == "not tested"


def test_runs_of_a_sweep_count_as_an_exam():
    def sat(name, length, exact):
        line = run(name, 300, 30, exam=(320, exact))
        line["config"]["task"]["layout"] = "jelassi2024"
        for row in line["exam"]:
            row |= {"task": "copying-jelassi2024", "length": length}
        return line

    assert verdict("J5", sat("transformer-nope", 300, 320), run("lstm", 300, 30)) == "not tested", "another layout"
    found = JUDGES["J5"](of(sat("transformer-nope", 300, 320), sat("lstm", 300, 320)))
    assert (found.verdict, found.came) == (
        "does not hold",
        "samples to 99 % at 300: best transformer 1,920, best recurrent model 1,920",
    )


def test_what_a_run_without_the_target_of_99_percent_spent_is_no_measure():
    def sat(name, **changes):
        line = run(name, 300, 30, **changes)
        line["config"]["task"]["layout"] = "jelassi2024"
        for row in line["exam"]:
            row |= {"task": "copying-jelassi2024"}
        return line

    learned = sat("transformer-nope")
    for target in (None, 0.1):
        other = sat("lstm", stop_accuracy=target, steps=6000)
        assert verdict("J5", learned, other) == "not tested"
        assert verdict("J5", learned, other, sat("lstm", seed=1)) == "does not hold", "the other seed tells"


def test_j6_looks_beyond_twice_the_trained_length():
    lines = [exam(name, 50, 50, 100) for name in ("lstm", "transformer", "transformer-hard-alibi")]
    assert verdict("J6", *lines) == "not tested"
    lines += [exam("lstm", 50, 100, 0), exam("transformer", 50, 100, 40), exam("transformer-hard-alibi", 50, 1000, 95)]
    assert verdict("J6", *lines) == "holds"
    assert verdict("J6", *lines, exam("lstm", 50, 200, 30)) == "holds in part"
    assert verdict("J6", exam("lstm", 50, 50, 100), exam("lstm", 50, 100, 30)) == "does not hold"
    assert verdict("J6", exam("lstm", 50, 50, 90), exam("lstm", 50, 100, 30)) == "not tested", "not trained to its end"


def test_j6_judges_each_model_at_the_longest_length_that_it_learned():
    lines = [exam("lstm", 5, 5, 100), exam("lstm", 5, 10, 0), exam("lstm", 20, 20, 0), exam("lstm", 20, 40, 30)]
    assert verdict("J6", *lines) == "holds in part"
    assert verdict("J6", *lines[2:]) == "not tested", "what was never learned does not fall"
    assert verdict("J6", exam("lstm", 100, 100, 100), exam("lstm", 100, 200, 30)) == "not tested", (
        "trained on more than 50"
    )


def test_j6_holds_whole_only_where_hard_alibi_was_asked_for_20_times_its_length():
    lines = [exam(name, 50, 50, 100) for name in ("lstm", "transformer", "transformer-hard-alibi")]
    lines += [exam("lstm", 50, 1000, 0), exam("transformer", 50, 100, 40), exam("transformer-hard-alibi", 50, 100, 95)]
    assert verdict("J6", *lines) == "holds in part"


def test_j7_compares_at_one_trained_length():
    planted = [exam("transformer", 20, 20, 20, task=f"duplicated-ngram-{n}") for n in (4, 5)]
    plain = [exam("transformer", 5, 5, 100), exam("transformer", 20, 20, 10)]
    assert verdict("J7", *plain, *planted) == "not tested", "learned at 5, planted at 20"


def test_j7_plants_ngrams():
    plain = exam("transformer-rope", 20, 20, 99)
    planted = {
        n: exam("transformer-rope", 20, 20, 97 if n < 5 else 60, task=f"duplicated-ngram-{n}") for n in (2, 3, 4, 5, 6)
    }
    assert verdict("J7", plain, *planted.values()) == "holds"
    assert verdict("J7", plain, *(planted | {3: planted[3] | {"exact": 80}}).values()) == "holds in part"
    assert verdict("J7", plain, *(line | {"exact": 98} for line in planted.values())) == "holds in part"
    assert verdict("J7", plain | {"exact": 50}, *planted.values()) == "not tested"


def test_j7_links_every_file_that_it_quotes():
    learned = [exam("transformer", 20, 20, 99)]
    learned += [exam("transformer", 20, 20, 97, task=f"duplicated-ngram-{n}") for n in (4, 5)]
    unlearned = [exam("transformer", 30, 30, 50), exam("transformer", 30, 30, 40, task="duplicated-ngram-4")]
    found = JUDGES["J7"](Results({"a.jsonl": learned, "b.jsonl": unlearned}))
    assert "50 % of strings drawn at random" in found.came
    assert found.files == ("a.jsonl", "b.jsonl")


def test_models_that_were_trained_on_another_task_are_none_of_copying():
    plain = exam("transformer-rope", 20, 20, 99)
    planted = [exam("transformer-rope", 20, 20, 97 if n < 5 else 60, task=f"duplicated-ngram-{n}") for n in (4, 5)]
    own = {"trained_task": "copying-jelassi2024"}
    assert verdict("J7", plain | own, *(line | own for line in planted)) == "holds"
    other = {"trained_task": "unrepeated-copying-4-jelassi2024"}
    strange = [line | other | {"exact": 0} for line in (plain, *planted)]
    assert verdict("J7", plain, *planted, *strange) == "holds"
    assert verdict("J7", *strange) == "not tested"


def lookup(suffix=20, beyond=99, **changes):
    """An LSTM and a Transformer, trained on up to 32 letters; suffix, beyond: the LSTM's exact, of prefixes at twice the length."""
    lines = [exam("lstm", 32, 32, suffix, task="suffix-lookup", **changes)]
    lines += [exam("transformer", 32, 32, 99, task="suffix-lookup")]
    lines += [exam("lstm", 32, 32, 99, task="prefix-lookup")]
    return lines if beyond is None else [*lines, exam("lstm", 32, 64, beyond, task="prefix-lookup")]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (lookup(), "holds"),
        (lookup(suffix=96), "holds in part"),
        (lookup(beyond=40), "holds in part"),
        (lookup(beyond=None), "holds in part"),
        (lookup()[2:], "holds in part"),
        (lookup()[:2], "holds in part"),
        (lookup(beyond=None)[2:], "not tested"),
        (lookup(suffix=96, beyond=40), "does not hold"),
    ],
)
def test_j8_sets_suffix_lookup_against_prefix_lookup(lines, expected):
    assert verdict("J8", *lines) == expected


def test_j8_is_open_where_nobody_learned_or_a_recurrent_model_was_given_less():
    assert verdict("J8", *lookup(samples=32_000)[:2]) == "not tested"
    assert verdict("J8", lookup()[0], exam("transformer", 32, 32, 50, task="suffix-lookup")) == "not tested"
    unlearned = [exam("lstm", 32, length, 50, task="prefix-lookup") for length in (32, 64)]
    assert verdict("J8", *unlearned) == "not tested"
    assert verdict("J8", *unlearned, exam("transformer", 32, 32, 99, task="prefix-lookup")) == "does not hold"
