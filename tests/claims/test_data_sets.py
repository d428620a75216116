import pytest

from tests.claims.lines import JUDGES, of, run, verdict

EPOCH = 522_243_436 // (320 * 256)


def text(name, bits, steps=600, *, data="some.txt", tokenizer="bytes", context=256, width=128, batch_size=320, seed=0):
    line = run(name, 16, None)
    line["config"] |= {"task": {"_type": "Text", "data": [data], "tokenizer": tokenizer, "context": context}}
    line["config"]["model"] = {"width": width, "depth": 4}
    line["config"]["train"] = {"batch_size": batch_size, "seed": seed, "steps": steps}
    line["result"] |= {"bits_per_byte": bits, "steps": steps}
    return line


def texts(linear, transformer=2.0, **changes):
    rivals = [text("transformer", transformer, **changes), text("linear-transformer", 2.3, **changes)]
    return [text("linear-causalrn", linear, **changes), *rivals]


@pytest.mark.parametrize(
    ("bits", "changes", "expected"),
    [
        (2.0, {}, "holds in part"),
        (2.0, {"steps": EPOCH, "data": "wikitext-103"}, "holds"),
        (2.0, {"steps": EPOCH, "data": "hub:Salesforce/wikitext:wikitext-103-raw-v1:train"}, "holds"),
        (2.0, {"steps": EPOCH - 1, "data": "wikitext-103"}, "holds in part"),
        (2.0, {"steps": EPOCH, "data": "wikitext-103", "tokenizer": "bpe"}, "holds in part"),
        (2.0, {"steps": EPOCH}, "holds in part"),
        (2.2, {"steps": EPOCH, "data": "wikitext-103"}, "does not hold"),
    ],
)
def test_c12_holds_whole_after_an_epoch_of_wikitext_only(bits, changes, expected):
    assert verdict("C12", *texts(bits, **changes)) == expected


@pytest.mark.parametrize(
    "changes",
    [{"data": "other.txt"}, {"context": 64}, {"width": 64}, {"tokenizer": "bpe"}, {"steps": 700}, {"seed": 1}],
)
def test_c12_compares_runs_that_differ_in_their_mixer_only(changes):
    assert verdict("C12", *texts(2.0)[:2], text("linear-transformer", 2.3, **changes)) == "not tested"


def test_c12_judges_those_that_read_most_and_the_mean_over_seeds():
    assert verdict("C12", *texts(2.0, steps=700), *texts(2.2, steps=600)) == "holds in part"
    assert verdict("C12", *texts(2.2, steps=700), *texts(2.0, steps=600)) == "does not hold"
    found = JUDGES["C12"](of(*texts(2.0), *texts(2.4, seed=1), text("linear-causalrn", 9.0, seed=2)))
    assert (found.verdict, found.ran.rpartition(", seeds ")[2]) == ("does not hold", "0, 1")
    assert "linear-causalrn 2.200, transformer 2.000" in found.came


def test_c12_takes_a_setting_that_is_not_given_for_none_and_leaves_saving_out():
    lines = texts(2.0)
    lines[0]["config"]["train"] |= {"give_up_after": None, "checkpoint_every": 100}
    assert verdict("C12", *lines) == "holds in part"


@pytest.mark.parametrize("first", [True, False])
def test_c12_does_not_take_one_of_two_models_of_a_name(first):
    other = text("linear-causalrn", 9.0)
    other["config"]["model"]["mixer"] = {"hidden": 512}
    assert verdict("C12", *((other, *texts(2.0)) if first else (*texts(2.0), other))) == "not tested"
    assert verdict("C12", other, *texts(2.0), *texts(2.0, seed=1)) == "holds in part", "at the other seed"


def test_c12_keeps_penalised_runs_apart():
    other = text("linear-causalrn", 9.0)
    other["config"]["penalty"] = {"jacobian_weight": 0.1}
    assert verdict("C12", *texts(2.0), other) == "holds in part"


def images(name, accuracy, data="folder/cifar10-train.parquet", **changes):
    line = run(name, 16, None, **changes)
    line["config"]["task"] = {"_type": "Images", "data": [data]}
    return line | {"images": [{"test_accuracy": accuracy}]}


def compared(linear, data, **changes):
    rivals = [images("transformer", 0.61, data, **changes), images("linear-transformer", 0.5, data, **changes)]
    return [images("linear-birn", linear, data, **changes), *rivals]


WHOLE = {"batch_size": 320, "limit": 5_000_000 // 320, "curve": [0.5]}


@pytest.mark.parametrize(
    ("linear", "data", "changes", "expected"),
    [
        (0.60, "a/cifar10-train.parquet", {}, "holds in part"),
        (0.58, "digits", {}, "does not hold"),
        (0.6, "cifar5m_part0.npz", {}, "holds in part"),
        (0.6, "cifar5m_part0.npz", WHOLE, "holds"),
        (0.6, "data/CIFAR-5m/", WHOLE, "holds"),
        (0.6, "digits", WHOLE, "holds in part"),
    ],
)
def test_c13_allows_a_point_and_wants_an_epoch_of_cifar5m(linear, data, changes, expected):
    lines = compared(linear, data, **changes)
    assert verdict("C13", *lines) == expected
    assert verdict("C13", *lines[1:]) == "not tested"


def test_c13_says_how_many_images_were_seen():
    lines = compared(0.6, "a/b/")
    assert JUDGES["C13"](of(*lines)).came.startswith("accuracy on images held out: b, 128,000 images seen: linear-birn")


def test_c13_does_not_count_a_data_set_that_was_skipped():
    lines = [*compared(0.6, "digits"), *compared(0.6, "cifar5m", **WHOLE)[:2]]
    assert verdict("C13", *lines) == "holds in part"


def test_c13_does_not_mix_budgets_and_takes_the_largest():
    lines = [*compared(0.6, "digits"), *compared(0.5, "digits", limit=600)]
    assert verdict("C13", *lines) == "holds in part"
    assert verdict("C13", *lines[:2], lines[5]) == "not tested"


def test_c13_keeps_sets_apart_whose_files_have_one_name():
    lines = [*compared(0.6, "cifar10/train.parquet"), *compared(0.3, "svhn/train.parquet")]
    found = JUDGES["C13"](of(*lines))
    assert (found.verdict, found.came.count("linear-birn")) == ("holds in part", 2)
    assert verdict("C13", *lines[3:]) == "does not hold"
