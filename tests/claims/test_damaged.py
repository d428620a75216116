"""What happens to lines that no rule can judge."""

import copy
import json

import pytest

from relnet import cli
from relnet.claims import CLAIMS, ledger, read_folder
from tests.claims.lines import exam, run
from tests.claims.test_curvature import attacked, spectrum, structure
from tests.claims.test_data_sets import images, text
from tests.claims.test_repeat_after_me import capacity, theory

GONE = object()


def complete(line):
    """With the settings that every run on a task has."""
    train = {"batch_size": 64, "precision": "float32", "lr": 5e-4, "seed": 0} | line["config"]["train"]
    return line | {"config": line["config"] | {"train": train, "model": {"width": 64, "depth": 4}}}


def looking_up():
    line = run("lstm", 8, 80)
    line["config"]["task"] = {"_type": "SuffixLookup", "length": 8, "layout": "jelassi2024"}
    row = {"task": "suffix-lookup-3-jelassi2024", "mode": "free_running", "length": 8, "items": 64, "exact": 64}
    return line | {"exam": [row]}


MEDIANS = {"cpu": {"both": 2.0}, "attention": {"both": 3.0}, "exp alone": {"both": 1.0}}
SOUND = {
    "copying": run("causalrn", 128, 8, steps=10),
    "lookup": looking_up(),
    "text": complete(text("transformer", 2.0)),
    "images": complete(images("transformer", 0.5)),
    "exam": exam("transformer", 8, 16, 90),
    "planted": exam("transformer", 8, 8, 90, task="duplicated-ngram-3"),
    "bench": {
        "case": "relation_mean",
        "activation": "exp",
        "shape": [1, 2, 3],
        "isa": "avx2",
        "threads": 2,
        "medians": MEDIANS,
    },
    "linear form": {
        "case": "linear form",
        "length": 128,
        "width": 192,
        "error": 1e-7,
        "training_seconds": 0.5,
        "state_bytes": 776,
    },
    "stability": {"case": "stability", "error": 1e-7},
    "structure": structure("none", 0.0, 0.2),
    "spectrum": spectrum({4: 0.1, 8: 0.01}, {4: 0.2, 8: 0.1}),
    "attacked": attacked("lanczos", 0.1, 0, 0.7, 0.6),
    "hand-set": theory(
        "error",
        model="transformer",
        strings=1000,
        repeats=50,
        wrong=50,
        chosen=100,
        chosen_right=100,
        bound=0.1,
    ),
    "capacity": capacity(),
    "retrieval": {"run": "RUN", "block": 0, "quantity": "strength", "share": 1.0, "steps": 1024, "format": 1},
}
# By kind, where and what: GONE takes it away.
DAMAGES = {
    "copying": [
        ("format", 2),
        ("format", GONE),
        ("command", ["relnet"]),
        ("name", GONE),
        ("name", 7),
        ("config", []),
        ("config", None),
        ("config", GONE),
        ("result", None),
        ("result", GONE),
        ("curve", GONE),
        ("exam", {"items": 3}),
        ("config.name", GONE),
        ("config.task", ["Copying"]),
        ("config.task.length", "128"),
        ("config.task.length", None),
        ("config.task.length", 0),
        ("config.task.layout", GONE),
        ("config.model", []),
        ("config.train", GONE),
        ("config.train.precision", GONE),
        ("config.train.batch_size", None),
        ("config.train.lr", "5e-4"),
        ("config.train.lr", float("nan")),
        ("config.train.seed", GONE),
        ("config.penalty", [1]),
        ("result.steps", GONE),
        ("result.steps", 10.5),
        ("result.steps", True),
        ("result.steps", 10**400),
        ("result.steps_to_accuracy", GONE),
        ("result.steps_to_accuracy", "8"),
        ("result.machine", None),
        ("result.wall_seconds", GONE),
        ("result.seconds_per_step", "fast"),
        ("curve.window_accuracy", GONE),
        ("curve.window_accuracy", [0.5]),
        ("curve.loss", GONE),
        ("curve.loss", ["low"] * 10),
        ("curve.step", None),
        ("exam.0", []),
        ("exam.0.task", GONE),
        ("exam.0.mode", GONE),
        ("exam.0.length", "128"),
        ("exam.0.items", GONE),
        ("exam.0.exact", 321),
        ("images", [{}]),
    ],
    "lookup": [
        ("config.task.length", GONE),
        ("exam.0.task", 3),
        ("result.final_accuracy", []),
        ("result.num_parameters", "1"),
    ],
    "text": [
        ("result.bits_per_byte", GONE),
        ("result.bits_per_byte", "2.0"),
        ("config.task.data", "some.txt"),
        ("config.task.tokenizer", GONE),
        ("config.task.context", None),
        ("config.model.width", GONE),
        ("config.model", None),
        ("config.train.seed", "0"),
    ],
    "images": [
        ("images.0.test_accuracy", GONE),
        ("images.0.test_accuracy", float("nan")),
        ("images", {"test_accuracy": 0.5}),
        ("config.task.data", GONE),
        ("config.task.data", [1]),
        ("config.model.depth", None),
    ],
    "exam": [
        ("format", 0),
        ("subject", GONE),
        ("subject", ["lstm"]),
        ("task", None),
        ("train_length", "8"),
        ("train_length", 0),
        ("train_length", GONE),
        ("length", "16"),
        ("lr", [1e-3]),
        ("lr", GONE),
        ("mode", GONE),
        ("seed", GONE),
        ("seed", "0"),
        ("items", "100"),
        ("items", -1),
        ("exact", None),
        ("exact", 101),
        ("samples", "64000"),
        ("samples_to_99", [1]),
        ("train_accuracy", "0.5"),
        ("steps", "1000"),
        ("parameters", "1000"),
        ("trained_task", 3),
    ],
    "planted": [("task", "duplicated-ngram-x-jelassi2024"), ("task", "duplicated-ngram-jelassi2024")],
    "bench": [
        ("medians", GONE),
        ("medians", [1.0]),
        ("medians.cpu", 2.0),
        ("medians.cpu.both", GONE),
        ("medians.attention.both", 0.0),
        ("medians.attention.both", "3"),
        ("shape", 3),
        ("isa", GONE),
        ("threads", GONE),
    ],
    "linear form": [
        ("length", 0),
        ("length", GONE),
        ("width", GONE),
        ("error", "small"),
        ("error", GONE),
        ("training_seconds", GONE),
        ("training_seconds", 0.0),
        ("state_bytes", None),
    ],
    "stability": [("error", GONE), ("error", [])],
    "structure": [
        ("run", "field"),
        ("run", GONE),
        ("run.task", GONE),
        ("run.penalty", None),
        ("run.weight", "0"),
        ("run.seed", [0]),
        ("run.steps", [2000]),
        ("r2", GONE),
        ("r2", None),
        ("left", "0.2"),
        ("left", GONE),
    ],
    "spectrum": [
        ("rows", []),
        ("rows", 5),
        ("rows", GONE),
        ("rows.0", None),
        ("rows.1.error", GONE),
        ("rows.0.method", GONE),
        ("rows.0.products", [4]),
        ("rows.2.error", "0.1"),
        ("shape", [50]),
        ("shape", GONE),
        ("shape", 2000),
        ("starts", GONE),
    ],
    "attacked": [
        ("run", None),
        ("run", "digits"),
        ("run.operator", GONE),
        ("run.data", GONE),
        ("run.method", ["lanczos"]),
        ("run.weight", None),
        ("run.seed", GONE),
        ("run.operator", None),
        ("validation", GONE),
        ("test", []),
        ("test.attacks", GONE),
        ("test.attacks.0", ["pgd", 0.1]),
        ("test.attacks.1", ["pgd", "0.1", 0.5]),
        ("validation.attacks.0", ["pgd", 0.1, float("inf")]),
    ],
    "hand-set": [
        ("format", 3),
        ("model", GONE),
        ("n", None),
        ("length", "50"),
        ("strings", 0),
        ("repeats", GONE),
        ("wrong", 0.5),
        ("chosen", GONE),
        ("chosen_right", None),
        ("bound", 0),
    ],
    "capacity": [
        ("model", ["lstm"]),
        ("limit", "100"),
        ("limit", GONE),
        ("examined", 200),
        ("examined", GONE),
        ("copied", "50"),
    ],
    "retrieval": [
        ("run", GONE),
        ("block", "0"),
        ("share", None),
        ("share", GONE),
        ("steps", "1024"),
        ("quantity", 1),
    ],
}


def damaged(kind, place, value):
    line = copy.deepcopy(SOUND[kind])
    inner, (*way, last) = line, place.split(".")
    for key in way:
        inner = inner[int(key) if isinstance(inner, list) else key]
    if value is GONE:
        del inner[last]
    else:
        inner[int(last) if isinstance(inner, list) else last] = value
    return line


def write(path, *lines):
    path.write_text("".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines))


def test_what_is_damaged_here_is_sound_without(tmp_path):
    write(tmp_path / "a.jsonl", *SOUND.values())
    results = read_folder(tmp_path)
    assert (results.left_out, results.files) == ((), {"a.jsonl": list(SOUND.values())})
    assert DAMAGES.keys() == SOUND.keys()


@pytest.mark.parametrize(
    ("kind", "place", "value"),
    [
        pytest.param(kind, place, value, id=f"{kind}-{place}-{'gone' if value is GONE else repr(value)[:12]}")
        for kind, damages in DAMAGES.items()
        for place, value in damages
    ],
)
def test_a_line_that_cannot_be_judged_is_left_out_and_named(tmp_path, kind, place, value):
    write(tmp_path / "a.jsonl", SOUND[kind])
    alone = ledger(CLAIMS, read_folder(tmp_path))
    write(tmp_path / "a.jsonl", SOUND[kind], damaged(kind, place, value))
    results = read_folder(tmp_path)
    assert ledger(CLAIMS, results) == alone
    [told] = results.left_out
    assert told.startswith(f"{tmp_path / 'a.jsonl'}, line 2: ")
    assert told.endswith(": left out")
    assert place.partition(".")[0] in told


def test_a_reason_names_the_field(tmp_path):
    faults = [("exam.1.items", "many"), ("result.steps", GONE), ("curve.loss", [0.5])]
    write(tmp_path / "a.jsonl", SOUND["exam"], *(damaged("copying", *fault) for fault in faults))
    assert [told.partition(", ")[2] for told in read_folder(tmp_path).left_out] == [
        "line 2: exam[1].items is not a whole number from 0: left out",
        "line 3: no result.steps: left out",
        "line 4: curve is not of lists of one length: left out",
    ]


@pytest.mark.parametrize(
    "line", ["{", "plain text", "[1]", "null", "3", '"name"', "\x00", "[" * 100_000], ids=lambda line: line[:9]
)
def test_what_is_no_json_object_is_left_out_and_named(tmp_path, line):
    write(tmp_path / "a.jsonl", "", SOUND["copying"], line, "  ")
    results = read_folder(tmp_path)
    assert results.files == {"a.jsonl": [SOUND["copying"]]}
    assert results.left_out == (f"{tmp_path / 'a.jsonl'}, line 3: not a line of relnet's: left out",)


def test_bytes_that_are_no_text_are_left_out_and_named(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b"\xff\xfe{\n" + json.dumps(SOUND["exam"]).encode())
    results = read_folder(tmp_path)
    assert (len(results.files["a.jsonl"]), len(results.left_out)) == (1, 1)


@pytest.mark.parametrize(
    "line",
    [
        {"case": "another thing"},
        {},
        run("causalrn") | {"result": {}},
        run("causalrn") | {"config": {}},
        complete(text("transformer", None)),
        complete(images("transformer", 0.5)) | {"images": []},
        exam("gpt", None, 16, 90, lr=None, samples=None),
        SOUND["bench"] | {"medians": {"triton": {"both": 1.0}}},
        SOUND["structure"] | {"r2": float("nan")},
        damaged("copying", "curve.loss", [float("nan")] * 10),
        damaged("lookup", "exam", None),
        damaged("bench", "medians.cpu", None),
    ],
    ids=range(12),
)
def test_what_says_little_is_sound(tmp_path, line):
    write(tmp_path / "a.jsonl", line)
    results = read_folder(tmp_path)
    assert (len(results.files["a.jsonl"]), results.left_out) == (1, ())
    assert "| 1 |" in ledger(CLAIMS, results)


def test_the_command_goes_on_without_damaged_lines_and_names_them_on_stderr(tmp_path, capsys):
    sound = run("causalrn", 16, 80)
    write(tmp_path / "a.jsonl", sound)
    assert cli.main(["claims", str(tmp_path)]) == 0
    alone = capsys.readouterr()
    assert alone.err == ""
    write(tmp_path / "a.jsonl", sound, json.dumps(sound)[:-9])
    write(tmp_path / "b.jsonl", *[sound | {"format": 2}] * 3)
    assert cli.main(["claims", str(tmp_path)]) == 0
    told = capsys.readouterr()
    assert [line for line in told.out.splitlines() if "b.jsonl" not in line] == alone.out.splitlines()
    assert told.err.splitlines() == [
        f"{tmp_path / 'a.jsonl'}, line 2: not a line of relnet's: left out",
        f"{tmp_path / 'b.jsonl'}, 3 lines from line 1 on: format 2, this release of relnet reads format 1: left out",
    ]


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ([], "are empty"),
        ([""], "are empty"),
        (["{"], "a.jsonl, line 1: not a line of relnet's"),
        (["{", run("causalrn") | {"format": 2}], "(and 1 more)"),
    ],
)
def test_a_folder_without_a_line_to_judge_is_refused_in_one_line(tmp_path, capsys, lines, why):
    write(tmp_path / "a.jsonl", *lines)
    assert cli.main(["claims", str(tmp_path)]) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.count("\n")) == ("", 1)
    assert told.err.startswith(f"relnet: {tmp_path} holds no results: ")
    assert why in told.err
