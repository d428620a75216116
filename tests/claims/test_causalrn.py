import pytest

from tests.claims.lines import JUDGES, falling, of, run, verdict

LENGTHS = (16, 32, 64, 128, 256)
ONLY_16 = "; not run side by side: causalrn and transformer at 32, 64, 128, 256 letters"


def grid(*, causalrn, transformer, lengths=LENGTHS, **others):
    names = {
        "causalrn": causalrn,
        "transformer": transformer,
        **{name.replace("_", "-"): steps for name, steps in others.items()},
    }
    return [run(name, length, steps) for name, steps in names.items() for length in lengths]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (grid(causalrn=80, transformer=100), "holds"),
        (grid(causalrn=80, transformer=None), "holds"),
        (grid(causalrn=80, transformer=100, lengths=(16, 32)), "holds in part"),
        (grid(causalrn=100, transformer=80), "does not hold"),
        (grid(causalrn=None, transformer=80), "does not hold"),
        (grid(causalrn=None, transformer=None), "not tested"),
        (
            [*grid(causalrn=80, transformer=100, lengths=(16,)), *grid(causalrn=100, transformer=80, lengths=(32,))],
            "holds in part",
        ),
        ([run("causalrn", 16, 80), run("transformer", 16, 90, seed=1)], "not tested"),
        ([run("causalrn", 16, 80), run("transformer", 16, 90, lr=1e-3)], "not tested"),
        ([run("causalrn", 16, 80), run("transformer", 16, 90, batch_size=320)], "not tested"),
    ],
)
def test_c8_compares_the_two_at_the_same_lengths_seeds_and_settings(lines, expected):
    assert verdict("C8", *lines) == expected


def test_a_run_that_ended_before_the_other_arrived_is_not_behind_it():
    lines = [run("causalrn", 16, 200), run("transformer", 16, None, limit=150)]
    assert verdict("C8", *lines) == "not tested"
    assert verdict("C8", lines[0], run("transformer", 16, None, limit=250)) == "holds in part"
    rest = grid(causalrn=80, transformer=100, lengths=LENGTHS[1:])
    assert verdict("C8", *lines, *rest) == "holds in part", "what is open is no part of the whole"


def test_c8_tells_of_the_higher_rate_and_does_not_judge_by_it():
    faster = [run("causalrn", 16, 50, lr=1e-3), run("transformer", 16, 40, lr=1e-3)]
    found = JUDGES["C8"](of(run("causalrn", 16, 80), run("transformer", 16, 100), *faster))
    assert found.verdict == "holds in part"
    faster_beside = "; at lr 0.001: 16 letters: causalrn 50, transformer 40"
    assert found.came.endswith(f"causalrn 80, transformer 100{ONLY_16}{faster_beside}")
    assert verdict("C8", *faster) == "not tested"


def test_what_a_claim_speaks_of_and_was_not_run_is_told():
    assert "not run" not in JUDGES["C8"](of(*grid(causalrn=80, transformer=100))).came
    lines = grid(causalrn=80, transformer=100, linear_causalrn=200)
    lines += grid(causalrn=80, transformer=100, linear_transformer=200, lengths=LENGTHS[:3])
    assert JUDGES["C9"](of(*lines)).came.endswith(
        "; not run side by side: transformer and linear-transformer at 128, 256 letters"
    )


def with_mixer(line, **settings):
    line["config"]["model"]["mixer"] |= settings
    return line


@pytest.mark.parametrize(
    "other",
    [
        run("causalrn", 16, 150, warmup_steps=1000),
        run("causalrn", 16, 150, schedule="cosine"),
        run("causalrn", 16, 150, stop_accuracy=0.5),
        with_mixer(run("causalrn", 16, 150), pair_norm="none"),
        with_mixer(run("causalrn", 16, 150), windows=[2]),
    ],
)
def test_a_run_with_other_settings_than_the_papers_is_none_of_its_name(other):
    lines = [run("causalrn", 16, 80), run("transformer", 16, 100)]
    assert JUDGES["C8"](of(*lines, other)).came.endswith(f"causalrn 80, transformer 100{ONLY_16}")
    assert verdict("C8", other, lines[1]) == "not tested"


def test_a_penalised_run_is_none_of_its_name():
    other = run("causalrn", 16, 150)
    other["config"]["penalty"] = {"jacobian_weight": 0.1}
    assert verdict("C8", other, run("transformer", 16, 100)) == "not tested"


def test_c8_takes_the_mean_over_seeds_and_of_one_config_the_latest_line():
    lines = [run("causalrn", 16, steps, seed=seed) for seed, steps in enumerate((60, 120))]
    lines += [run("transformer", 16, steps, seed=seed) for seed, steps in enumerate((80, 90))]
    found = JUDGES["C8"](of(*lines))
    assert found.verdict == "does not hold"
    told = "updates to 99 %: 16 letters: causalrn 60, 120 (mean 90.0), transformer 80, 90 (mean 85.0)"
    assert found.came == told + ONLY_16
    assert found.ran == "16 letters, lr 0.0005, batches of 64, seeds 0, 1"
    assert verdict("C8", *lines, run("causalrn", 16, 70, seed=1)) == "holds in part"


def test_a_run_with_a_small_limit_gives_way_to_the_same_run_with_a_larger_one():
    short = run("causalrn", 16, None, limit=50)
    assert verdict("C8", short, run("transformer", 16, 100)) == "not tested"
    assert verdict("C8", run("causalrn", 16, 80), short, run("transformer", 16, 100)) == "holds in part"


@pytest.mark.parametrize(("linear", "expected"), [(None, "holds"), (100, "holds in part"), (50, "holds in part")])
def test_c9_wants_linear_models_behind_and_one_of_them_lost_at_long_strings(linear, expected):
    lines = grid(causalrn=80, transformer=80, linear_causalrn=linear, linear_transformer=200)
    assert verdict("C9", *lines) == expected


def long_linear(**changes):
    return run("linear-causalrn", 128, None, **changes)


@pytest.mark.parametrize(
    ("linear", "expected"),
    [
        (long_linear(limit=300), "not tested"),
        (long_linear(limit=1999), "not tested"),
        (long_linear(limit=2000), "holds in part"),
        (long_linear(steps=1000, stopped="given up"), "holds in part"),
        (long_linear(steps=500, stopped="given up"), "not tested"),
        (run("linear-causalrn", 128, 1990), "does not hold"),
    ],
)
def test_c9_takes_a_linear_causalrn_for_lost_only_after_its_updates(linear, expected):
    quadratic = run("causalrn", 128, None, limit=linear["result"]["steps"])
    assert verdict("C9", quadratic, linear) == expected


def test_c9_judges_pair_by_pair():
    lines = [run("causalrn", 16, 80), run("linear-causalrn", 16, 100)]
    apart = [run("transformer", 16, 80), run("linear-transformer", 16, 70, seed=1)]
    side_by_side = "updates to 99 %: 16 letters: causalrn 80, linear-causalrn 100"
    missing = (
        "causalrn and linear-causalrn at 32, 64, 128, 256 letters; "
        "transformer and linear-transformer at 16, 32, 64, 128, 256 letters"
    )
    for compared in (lines, [*lines, *apart]):
        found = JUDGES["C9"](of(*compared))
        assert found.verdict == "holds in part"
        assert found.came == f"{side_by_side}; not run side by side: {missing}", "at seeds that both have"


def papers(name, length, reached, **changes):
    return run(name, length, reached, batch_size=320, precision="bfloat16", **changes)


def test_the_papers_batches_are_compared_among_themselves_and_come_first():
    ours = [run("causalrn", 16, 100), run("transformer", 16, 80)]
    theirs = [papers("causalrn", 16, 60), papers("transformer", 16, 70)]
    assert verdict("C8", *ours) == "does not hold"
    found = JUDGES["C8"](of(*ours, *theirs))
    assert (found.verdict, found.ran) == (
        "holds in part",
        "16 letters, lr 0.0005, batches of 320 under bfloat16, seed 0",
    )
    assert verdict("C8", *ours, theirs[0]) == "does not hold", "nothing to compare it with"
    assert verdict("C8", ours[0], theirs[1]) == "not tested"
    mixed = JUDGES["C8"](of(*theirs, run("causalrn", 32, 60), run("transformer", 32, 70)))
    assert mixed.ran.endswith("batches of 320 under bfloat16, seed 0; 32 letters, lr 0.0005, batches of 64, seed 0")


def test_runs_at_the_papers_batches_that_broke_off_give_way_to_others():
    broken = [papers("causalrn", 16, 30), papers("transformer", 16, None, limit=20)]
    whole = [run("causalrn", 16, 80), run("transformer", 16, 90)]
    found = JUDGES["C8"](of(*broken, *whole))
    assert found.ran == "16 letters, lr 0.0005, batches of 64, seed 0"
    assert "causalrn 80, transformer 90" in found.came
    assert "causalrn 30, transformer >20" in JUDGES["C8"](of(*broken)).came
    spent = [papers("causalrn", 16, 30), papers("transformer", 16, None)]
    assert "causalrn 30, transformer >2,000" in JUDGES["C8"](of(*spent, *whole)).came


def test_c9_does_not_hold_where_linear_models_are_ahead():
    lines = grid(causalrn=80, transformer=80, linear_causalrn=50, linear_transformer=50, lengths=(16,))
    assert verdict("C9", *lines) == "does not hold"


def ablation(name, reached=None, curve=None, **changes):
    return run(name, 128, reached, curve=curve, **changes)


SHARP, SLOW = falling(100, 120, 200), falling(100, 190, 200)


@pytest.mark.parametrize(
    ("exact", "other", "expected"),
    [
        (SHARP, SLOW, "holds"),
        (SHARP, SHARP, "holds in part"),
        (SLOW, SHARP, "holds in part"),
        (falling(500, 900, 1000), SHARP, "does not hold"),
    ],
)
def test_c4_tells_a_phase_change_by_how_long_the_rise_takes(exact, other, expected):
    lines = [ablation("causalrn", 200, exact)]
    lines += [ablation(name, None, other) for name in ("causalrn-approximate", "causalrn-no-pair-norm")]
    assert verdict("C4", *lines) == expected


OTHERS = ("causalrn-approximate", "causalrn-no-pair-norm")


@pytest.mark.parametrize(("steps", "expected"), [(150, "holds in part"), (180, "holds")])
def test_c4_leaves_a_curve_that_ended_early_open(steps, expected):
    # 90 % at 120: at 180 a curve without a phase change shows none.
    flat = [ablation(name, None, [0.0] * steps, steps=steps) for name in OTHERS]
    assert verdict("C4", ablation("causalrn", 200, SHARP), *flat) == expected


def test_c4_leaves_a_curve_that_ended_on_its_rise_open():
    # 20 % at 171, 90 % would count until 256.
    rising = [ablation(name, None, [*[0.0] * 170, *[0.2] * 80], steps=250) for name in OTHERS]
    assert verdict("C4", ablation("causalrn", 200, SHARP), *rising) == "holds in part"
    settled = [ablation(name, None, [*[0.0] * 170, *[0.2] * 90], steps=260) for name in OTHERS]
    assert verdict("C4", ablation("causalrn", 200, SHARP), *settled) == "holds"


def test_c4_is_open_where_nothing_was_learned():
    lines = [ablation(name, None, [0.0] * 10, steps=10) for name in ("causalrn", *OTHERS)]
    assert verdict("C4", *lines) == "not tested"


def test_c5_leaves_a_curve_that_ended_early_open():
    exact = ablation("causalrn", 130, SHARP)
    early = [ablation(name, None, [0.0] * 150, steps=150) for name in ("causalrn-relu", "causalrn-elu")]
    assert verdict("C5", exact, *early) == "not tested"
    late = [ablation(name, None, [0.0] * 190, steps=190) for name in ("causalrn-relu", "causalrn-elu")]
    assert verdict("C5", exact, *late) == "holds in part", "no phase change, and 99 % might come before 195"


@pytest.mark.parametrize(
    ("changed", "expected_c5", "expected_c6"),
    [(None, "holds", "holds"), (151, "holds", "holds"), (150, "holds in part", "does not hold")],
)
def test_c5_and_c6_take_half_as_many_updates_again_for_later(changed, expected_c5, expected_c6):
    names = ("causalrn-relu", "causalrn-elu", "causalrn-approximate", "causalrn-no-pair-norm")
    lines = [ablation("causalrn", 100, SHARP), *(ablation(name, changed, SLOW) for name in names)]
    assert verdict("C5", *lines) == expected_c5
    assert verdict("C6", *lines) == expected_c6


@pytest.mark.parametrize(
    ("without", "expected"),
    [(None, "holds"), (90, "holds in part")],
)
def test_c3_adds_up_the_rises_of_the_loss(without, expected):
    lines = [ablation("causalrn", 100), ablation("causalrn-no-sum-norm", without, steps=120)]
    lines[1]["curve"]["loss"] = [1.0, 0.5] * 60
    assert verdict("C3", *lines) == expected


def test_c3_is_open_where_neither_came_to_99():
    lines = [ablation(name, None, limit=10) for name in ("causalrn", "causalrn-no-sum-norm")]
    assert verdict("C3", *lines) == "not tested"


def test_c3_to_c7_compare_at_the_seeds_that_all_have():
    names = ("causalrn-no-sum-norm", "causalrn-relu", "causalrn-elu", *OTHERS)
    lines = [ablation("causalrn", 100, SHARP), *(ablation(name, None, SLOW, steps=200) for name in names)]
    lines += [ablation("transformer", 110, SHARP)]
    lines[1]["curve"]["loss"] = [1.0, 0.5] * 100
    further = [ablation("causalrn", 1000, SLOW, seed=seed) for seed in (1, 2)]
    for line in further:
        line["curve"]["loss"] = [1.0, 0.0] * 100
    for key in ("C3", "C4", "C5", "C6", "C7"):
        found = JUDGES[key](of(*lines, *further))
        assert found == JUDGES[key](of(*lines)), key
        assert found.verdict == "holds", key
    assert verdict("C6", further[0], *lines[1:]) == "not tested"


def test_c7_wants_two_phase_changes_at_about_the_same_time():
    lines = [ablation("causalrn", 130, SHARP), ablation("transformer", 150, SHARP)]
    assert verdict("C7", *lines) == "holds"
    assert verdict("C7", lines[0], ablation("transformer", 300, SHARP)) == "holds in part"
    assert verdict("C7", ablation("causalrn", 130, SLOW), ablation("transformer", 300, SLOW)) == "does not hold"


@pytest.mark.parametrize(
    ("counts", "expected"),
    [((320, 320), "holds"), ((320, 319), "holds in part"), ((319, 0), "holds in part")],
)
def test_c10_asks_whether_teacher_forced_implies_free_running(counts, expected):
    lines = grid(causalrn=80, transformer=80)
    lines[3] = run("causalrn", 128, 80, exam=counts)
    assert verdict("C10", *lines) == expected
    assert verdict("C10", lines[0]) == "holds in part", "one length only"


def test_c10_asks_for_the_trained_length_only_and_in_both_ways():
    lines = grid(causalrn=80, transformer=80)
    shorter = {"task": "copying-cui2024", "mode": "teacher_forced", "length": 8, "items": 320, "exact": 0}
    lines[0]["exam"] += [shorter, shorter | {"mode": "free_running"}]
    assert verdict("C10", *lines) == "holds"
    lines[0]["exam"] = [shorter]
    assert verdict("C10", *lines) == "holds in part"
    assert verdict("C10", lines[0]) == "not tested"
    free = [row for row in lines[1]["exam"] if row["mode"] == "free_running"]
    assert verdict("C10", lines[1] | {"exam": free}) == "not tested"


def test_c11_is_open_where_no_run_came_to_99():
    lines = [
        run(name if heads == 1 else f"{name}-{heads}-heads", 16, None, lr=lr, heads=heads, limit=50)
        for name, lr in (("causalrn", 1e-3), ("transformer", 5e-4))
        for heads in (1, 2, 4, 8)
    ]
    assert verdict("C11", *lines) == "not tested"


def test_c11_compares_at_the_seeds_that_all_have():
    lines = [run("causalrn", 16, 60, lr=1e-3), run("causalrn", 16, 900, lr=1e-3, seed=1)]
    lines += [run(f"causalrn-{heads}-heads", 16, 100, lr=1e-3, heads=heads) for heads in (2, 4, 8)]
    assert verdict("C11", *lines) == "holds in part"


def test_c11_finds_the_best_rate_and_number_of_heads():
    rates = {1e-5: None, 5e-5: 900, 1e-4: 400, 5e-4: 80, 1e-3: 60}
    lines = [run("causalrn", 16, steps, lr=lr) for lr, steps in rates.items()]
    assert verdict("C11", *lines) == "holds in part", "the Transformer is not run"
    lines += [run("transformer", 16, steps, lr=lr) for lr, steps in (rates | {1e-3: 90}).items()]
    for name, lr in (("causalrn", 1e-3), ("transformer", 5e-4)):
        lines += [run(f"{name}-{heads}-heads", 16, 100 + heads, lr=lr, heads=heads) for heads in (2, 4, 8)]
    assert verdict("C11", *lines) == "holds"
    lines[4] = run("causalrn", 16, 300, lr=1e-3)
    assert verdict("C11", *lines) == "holds in part"


def measured(case, error, **fields):
    return {"case": case, "error": error, "width": 192, **fields}


def test_c1_wants_the_numbers_the_time_and_the_state():
    short = measured("linear form", 1e-7, length=100, training_seconds=0.1, state_bytes=772)
    long = measured("linear form", None, length=1000, training_seconds=1.1, state_bytes=772)
    assert verdict("C1", short, long) == "holds"
    assert verdict("C1", short, long | {"training_seconds": 2.0}) == "holds in part"
    assert verdict("C1", short, long | {"state_bytes": 7720}) == "holds in part"
    assert (
        verdict("C1", short | {"error": 1e-3}, long | {"training_seconds": 2.0, "state_bytes": 7720}) == "does not hold"
    )


def test_c1_sees_what_the_start_of_a_short_text_hides():
    start = measured("linear form", 1e-7, length=10, training_seconds=0.1, state_bytes=772)
    short = measured("linear form", 1e-7, length=1000, training_seconds=0.1, state_bytes=772)
    long = measured("linear form", None, length=2000, training_seconds=0.4, state_bytes=772)
    assert verdict("C1", start, short, long) == "holds in part", "quadratic from 1,000 on"


def test_c1_is_open_where_nothing_was_compared():
    short = measured("linear form", None, length=100, training_seconds=0.1, state_bytes=772)
    assert verdict("C1", short) == "not tested"
    long = measured("linear form", None, length=1000, training_seconds=1.1, state_bytes=772)
    assert verdict("C1", long, short) == "holds in part", "in any order"


def test_c2_wants_the_numbers():
    assert verdict("C2", measured("stability", 1e-7), measured("stability", 2e-6)) == "holds"
    assert verdict("C2", measured("stability", 1e-7), measured("stability", 2e-5)) == "does not hold"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "holds"),
        ({"wall_seconds": 6000}, "does not hold"),
        ({"machine": "H200"}, "not tested"),
        ({"steps": 300}, "not tested"),
    ],
)
def test_c15_wants_the_papers_run_on_an_a100(changes, expected):
    line = papers("causalrn", 128, 200, steps=2000)
    line["result"] |= {"machine": "Linux, NVIDIA A100-SXM4", "wall_seconds": 3600} | changes
    assert verdict("C15", line) == expected
    line["config"]["task"] = {"_type": "Text"}
    assert verdict("C15", line) == "not tested"
