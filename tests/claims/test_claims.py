import pytest

from relnet.claims import CLAIMS
from tests.claims.lines import exam, falling, of, run

JUDGES = {claim.key: claim.judge for claim in CLAIMS}
LENGTHS = (16, 32, 64, 128, 256)


def verdict(key, *lines):
    return JUDGES[key](of(*lines)).verdict


def grid(*, causalrn, transformer, lengths=LENGTHS, **others):
    names = {
        "causalrn": causalrn,
        "transformer": transformer,
        **{name.replace("_", "-"): steps for name, steps in others.items()},
    }
    return [run(name, length, steps) for name, steps in names.items() for length in lengths]


@pytest.mark.parametrize("key", JUDGES)
def test_nothing_is_claimed_without_data(key):
    finding = JUDGES[key](of())
    assert (finding.verdict, finding.files) == ("not tested", ())
    assert finding.came, "why"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (grid(causalrn=80, transformer=100), "holds"),
        (grid(causalrn=80, transformer=None), "holds"),
        (grid(causalrn=80, transformer=100, lengths=(16, 32)), "holds in part"),
        (grid(causalrn=100, transformer=80), "does not hold"),
        (grid(causalrn=None, transformer=None), "does not hold"),
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
    assert verdict("C8", *lines) == "does not hold"
    assert verdict("C8", lines[0], run("transformer", 16, None, limit=250)) == "holds in part"


def test_c8_takes_the_mean_over_seeds_and_of_one_config_the_latest_line():
    lines = [run("causalrn", 16, steps, seed=seed) for seed, steps in enumerate((60, 120))]
    lines += [run("transformer", 16, steps, seed=seed) for seed, steps in enumerate((80, 90))]
    found = JUDGES["C8"](of(*lines))
    assert found.verdict == "does not hold"
    assert found.came == "updates to 99 %: 16 letters: causalrn 60, 120 (mean 90.0), transformer 80, 90 (mean 85.0)"
    assert found.ran == "16 letters, lr 0.0005, batches of 64, seeds 0, 1"
    assert verdict("C8", *lines, run("causalrn", 16, 70, seed=1)) == "holds in part"


def test_a_run_with_a_small_limit_gives_way_to_the_same_run_with_a_larger_one():
    short = run("causalrn", 16, None, limit=50)
    assert verdict("C8", short, run("transformer", 16, 100)) == "does not hold"
    assert verdict("C8", run("causalrn", 16, 80), short, run("transformer", 16, 100)) == "holds in part"


@pytest.mark.parametrize(("linear", "expected"), [(None, "holds"), (100, "holds in part"), (50, "holds in part")])
def test_c9_wants_linear_models_behind_and_one_of_them_lost_at_long_strings(linear, expected):
    lines = grid(causalrn=80, transformer=80, linear_causalrn=linear, linear_transformer=200)
    assert verdict("C9", *lines) == expected


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


@pytest.mark.parametrize(
    ("changed", "expected_c5", "expected_c6"),
    [(None, "holds", "holds"), (150, "holds", "holds"), (149, "holds in part", "does not hold")],
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


def text(name, bits, steps=600):
    line = run(name, 16, None)
    line["config"] |= {"task": {"_type": "Text", "context": 256}}
    line["config"]["model"] = {"width": 128, "depth": 4}
    line["config"]["train"] = {"batch_size": 8, "seed": 0}
    line["result"] |= {"bits_per_byte": bits, "steps": steps}
    return line


@pytest.mark.parametrize(
    ("bits", "steps", "expected"),
    [(2.0, 600, "holds in part"), (2.0, 200_000, "holds"), (2.2, 200_000, "does not hold")],
)
def test_c12_holds_whole_after_an_epoch_only(bits, steps, expected):
    lines = [
        text("linear-causalrn", bits, steps),
        text("transformer", 2.0, steps),
        text("linear-transformer", 2.3, steps),
    ]
    assert verdict("C12", *lines) == expected


def images(name, accuracy, data="folder/cifar10-train.parquet"):
    line = run(name, 16, None)
    line["config"]["task"] = {"_type": "Images", "data": [data]}
    return line | {"images": [{"test_accuracy": accuracy}]}


@pytest.mark.parametrize(
    ("linear", "data", "expected"),
    [
        (0.60, "a/cifar10-train.parquet", "holds in part"),
        (0.58, "digits", "does not hold"),
        (0.6, "cifar5m_part0.npz", "holds"),
    ],
)
def test_c13_allows_a_point(linear, data, expected):
    rivals = [images("transformer", 0.61, data), images("linear-transformer", 0.5, data)]
    found = JUDGES["C13"](of(images("linear-birn", linear, data), *rivals))
    assert found.verdict == expected
    assert f"{data.rpartition('/')[2]}, 128,000 images seen: linear-birn" in found.came
    assert verdict("C13", *rivals) == "not tested"


def measured(case, error, **fields):
    return {"case": case, "error": error, "width": 192, **fields}


def test_c1_wants_the_numbers_the_time_and_the_state():
    short = measured("linear form", 1e-7, length=100, seconds=0.1, state_bytes=772)
    long = measured("linear form", None, length=1000, seconds=1.1, state_bytes=772)
    assert verdict("C1", short, long) == "holds"
    assert verdict("C1", short, long | {"seconds": 2.0}) == "holds in part"
    assert verdict("C1", short, long | {"state_bytes": 7720}) == "holds in part"
    assert verdict("C1", short | {"error": 1e-3}, long | {"seconds": 2.0, "state_bytes": 7720}) == "does not hold"


def test_c2_wants_the_numbers():
    assert verdict("C2", measured("stability", 1e-7), measured("stability", 2e-6)) == "holds"
    assert verdict("C2", measured("stability", 1e-7), measured("stability", 2e-5)) == "does not hold"


def theory(kind, **fields):
    return {"kind": kind, "n": 3, "length": 50, **fields}


def test_j1_j2_and_j4_read_what_relnet_theory_writes():
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
    state = {"model": "lstm", "limit": 100, "examined": [50, 200], "copied": 50}
    assert verdict("J4", theory("capacity", **state)) == "holds"
    assert verdict("J4", theory("capacity", **state | {"copied": 200})) == "does not hold"
    assert verdict("J4", theory("capacity", **state | {"limit": None})) == "not tested"
    assert verdict("J4", theory("capacity", **state | {"examined": [50, 100]})) == "not tested"


@pytest.mark.parametrize(
    ("trained", "recurrent", "expected"),
    [
        (300, 200_000, "holds"),
        (300, 100_000, "does not hold"),
        (50, 200_000, "holds in part"),
        (300, None, "does not hold"),
    ],
)
def test_j5_compares_samples(trained, recurrent, expected):
    lines = [
        exam("transformer", trained, trained, 100, samples=2000),
        exam("lstm", trained, trained, 90, samples=recurrent),
    ]
    assert verdict("J5", *lines) == expected


def test_j5_is_not_judged_by_models_that_none_of_them_learned():
    lines = [exam(name, 50, 50, 10, samples=None) for name in ("transformer", "lstm")]
    assert verdict("J5", *lines) == "not tested"
    learned = [exam("transformer", 20, 20, 100, samples=300), exam("lstm", 20, 20, 0, samples=None)]
    assert verdict("J5", *lines, *learned) == verdict("J5", *learned)


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


def test_j6_looks_beyond_twice_the_trained_length():
    lines = [exam(name, 50, 50, 100) for name in ("lstm", "transformer", "transformer-hard-alibi")]
    assert verdict("J6", *lines) == "not tested"
    lines += [exam("lstm", 50, 100, 0), exam("transformer", 50, 100, 40), exam("transformer-hard-alibi", 50, 1000, 95)]
    assert verdict("J6", *lines) == "holds"
    assert verdict("J6", *lines, exam("lstm", 50, 200, 30)) == "holds in part"
    assert verdict("J6", exam("lstm", 50, 50, 100), exam("lstm", 50, 100, 30)) == "does not hold"
    assert verdict("J6", exam("lstm", 50, 50, 90), exam("lstm", 50, 100, 30)) == "not tested", "not trained to its end"


def test_j7_plants_ngrams():
    plain = exam("transformer-rope", 20, 20, 99)
    planted = {
        n: exam("transformer-rope", 20, 20, 97 if n < 5 else 60, task=f"duplicated-ngram-{n}") for n in (2, 3, 4, 5, 6)
    }
    assert verdict("J7", plain, *planted.values()) == "holds"
    assert verdict("J7", plain, *(planted | {3: planted[3] | {"exact": 80}}).values()) == "holds in part"
    assert verdict("J7", plain, *(line | {"exact": 98} for line in planted.values())) == "holds in part"
    assert verdict("J7", plain | {"exact": 50}, *planted.values()) == "not tested"


def test_j8_sets_suffix_lookup_against_prefix_lookup():
    suffix = [exam("lstm", 32, 32, 20, task="suffix-lookup"), exam("transformer", 32, 32, 99, task="suffix-lookup")]
    prefix = [exam("lstm", 32, length, 99, task="prefix-lookup") for length in (32, 64)]
    assert verdict("J8", *suffix, *prefix) == "holds"
    assert verdict("J8", *suffix) == "holds in part"
    assert verdict("J8", *suffix, prefix[0], prefix[1] | {"exact": 40}) == "holds in part"


def structure(penalty, weight, left, *, r2=0.99, seed=0, task="field"):
    return {"run": {"task": task, "penalty": penalty, "weight": weight, "seed": seed}, "r2": r2, "left": left}


def test_r1_wants_a_tenth_left_at_equal_fit():
    plain = [structure("none", 0.0, 0.2, seed=seed) for seed in (0, 1)]
    assert verdict("R1", *plain) == "not tested"
    assert verdict("R1", *plain, structure("frobenius", 3.0, 0.01)) == "holds"
    assert verdict("R1", *plain, structure("frobenius", 3.0, 0.03)) == "holds in part"
    assert verdict("R1", *plain, structure("frobenius", 3.0, 0.3)) == "does not hold"
    assert (
        verdict("R1", *plain, structure("frobenius", 3.0, 0.03), structure("frobenius", 3.0, 0.3, seed=1))
        == "does not hold"
    )
    assert verdict("R1", *plain, structure("frobenius", 3.0, 0.01, r2=0.9)) == "does not hold"
    another = [structure("none", 0.0, 0.2, task="energy"), structure("signed", 3.0, 0.1, task="energy")]
    assert verdict("R1", *plain, structure("frobenius", 3.0, 0.01), *another) == "holds in part"


def spectrum(ours, power, shape=(50, 2000, 64)):
    rows = [{"method": "power", "products": products, "error": error} for products, error in power.items()]
    rows += [{"method": "Golub-Kahan", "products": products, "error": error} for products, error in ours.items()]
    return {"case": "J", "shape": list(shape), "starts": 4, "iters": [2, 4], "rows": rows}


def test_r2_compares_at_equal_products():
    assert verdict("R2", spectrum({4: 0.1, 8: 0.01}, {4: 0.2, 8: 0.1})) == "holds"
    assert verdict("R2", spectrum({4: 0.1, 8: 0.01}, {4: 0.2, 8: 0.1}, (50, 96, 64))) == "holds in part"
    assert verdict("R2", spectrum({4: 0.1, 8: 0.15}, {4: 0.2, 8: 0.3})) == "holds in part"
    assert verdict("R2", spectrum({4: 0.3, 8: 0.31}, {4: 0.2, 8: 0.1})) == "does not hold"


def attacked(method, weight, seed, validation, test):
    return {
        "run": {"data": "digits", "operator": "jacobian", "method": method, "weight": weight, "seed": seed},
        "validation": {"attacks": [["pgd", 0.1, validation]]},
        "test": {"attacks": [["pgd", 0.05, 0.99], ["pgd", 0.1, test], ["square", 0.1, test + 0.01]]},
    }


def test_r3_chooses_weights_on_the_validation_split_and_compares_the_worst_attack():
    def lines(lanczos):
        found = []
        for seed, wobble in enumerate((-0.01, 0.0, 0.01)):
            for method, test in (("hutchinson", 0.6), ("power", 0.6), ("lanczos", lanczos)):
                found += [attacked(method, 0.1, seed, 0.7, test + wobble), attacked(method, 1.0, seed, 0.5, 0.9)]
        return found

    assert verdict("R3", *lines(0.7)) == "holds in part", "one data set"
    assert verdict("R3", *lines(0.605)) == "does not hold"
    both = [*lines(0.7), *(line | {"run": line["run"] | {"data": "cifar"}} for line in lines(0.7))]
    assert verdict("R3", *both) == "holds"
    assert JUDGES["R3"](of(*lines(0.7))).came.endswith("hutchinson 60.0 %, power 60.0 %, lanczos 70.0 % (3 seeds)")
