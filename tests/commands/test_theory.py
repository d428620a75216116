"""relnet theory: what it writes, prints and draws."""

import json

import pytest

from relnet import cli
from relnet.commands import theory as command

QUICK = ["--ngrams", "2", "--lengths", "6", "12", "--num", "20"]


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(command, "LONGEST", ((3, 2),))
    monkeypatch.setattr(command, "ABLATION_LENGTH", 20)
    monkeypatch.setattr(command, "GAINS", (30.0, 100.0))


def trained(folder, exact):
    exam = {"mode": "free_running", "items": 100, "stopped": 100}
    config = {
        "format": 1,
        "name": "causalrn",
        "task": {"_type": "Copying", "length": 5, "layout": "cui2024", "min_length": None, "max_context": None},
        "model": {
            "vocab_size": 29,
            "width": 8,
            "depth": 2,
            "context": 12,
            "mixer": {"_type": "CausalRNConfig", "hidden": 4},
            "mlp": None,
            "positions": "learned",
            "checkpointing": False,
        },
        "train": {"steps": 3},
    }
    rows = [exam | {"length": length, "exact": number} for length, number in exact.items()]
    another_task = config["task"] | {"_type": "DuplicatedNgram", "length": 8, "ngram": 4}
    folder.mkdir()
    for task in (config["task"], another_task):
        line = {"format": 1, "name": "causalrn", "config": config | {"task": task}, "exam": rows}
        (folder / f"{task['_type']}.jsonl").write_text(json.dumps(line) + "\n")


def test_the_command_writes_what_it_measured_prints_it_and_draws_it(tmp_path, capsys):
    trained(tmp_path / "results", {5: 100, 9: 95, 20: 3})
    folder = tmp_path / "out"
    arguments = ["theory", "--out", str(folder), "--results", str(tmp_path / "results"), *QUICK]
    assert cli.main(arguments) == 0
    rows = [json.loads(line) for line in (folder / "theory.jsonl").read_text().splitlines()]
    assert all(row["format"] == 1 and row["machine"] and row["seed"] == 0 for row in rows)
    errors = [row for row in rows if row["kind"] == "error"]
    assert [(row["model"], row["length"]) for row in errors] == [
        ("causalrn", 6),
        ("causalrn", 12),
        ("transformer", 6),
        ("transformer", 12),
    ]
    for row in errors:
        assert row["same"] == 20
        assert row["wrong"] == row["wrong_free"] == row["repeats"] >= row["wrong_letters"]
        assert row["chosen_right"] == row["chosen"] == 2
    assert errors[1]["repeats"] > 0
    ablations = [row for row in rows if row["kind"] == "ablation"]
    assert {row["needed"] for row in ablations} == {True, False}
    assert all(row["right"] == row["strings"] == 20 for row in ablations if not row["needed"])
    (one,) = [row for row in rows if row.get("model", "").startswith("causalrn, trained at")]
    # 7 tokens of 2 blocks of 4 numbers of 32 bits.
    assert (one["bits"], one["limit"], one["copied"]) == (7 * 2 * 4 * 32, None, 9)
    printed = capsys.readouterr().out
    assert "9 (examined to 20)" in printed
    assert "not trained here" in printed
    assert (folder / "theory.png").stat().st_size > 10_000


def test_no_results_are_needed_and_nothing_is_overwritten(tmp_path, capsys):
    arguments = ["theory", "--out", str(tmp_path), "--results", str(tmp_path / "nowhere"), *QUICK]
    assert cli.main(arguments) == 0
    before = (tmp_path / "theory.jsonl").read_bytes()
    assert cli.main(arguments) == 2
    assert (tmp_path / "theory.jsonl").read_bytes() == before
    assert capsys.readouterr().err.strip().splitlines()[-1].startswith("relnet: ")


def test_one_that_was_killed_goes_on_where_it_was(tmp_path, capsys, monkeypatch):
    def measured(folder):
        return [
            {key: value for key, value in json.loads(line).items() if key not in ("commit", "machine")}
            for line in (folder / "theory.jsonl").read_text().splitlines()
        ]

    arguments = ["theory", "--results", str(tmp_path / "nowhere"), *QUICK, "--out"]
    assert cli.main([*arguments, str(tmp_path / "whole")]) == 0
    lines = (tmp_path / "whole" / "theory.jsonl").read_bytes().splitlines(keepends=True)
    cut = tmp_path / "cut"
    cut.mkdir()
    (cut / "theory.jsonl").write_bytes(b"".join(lines[:4]) + lines[4][:30])
    assert cli.main([*arguments, str(cut), "--num", "21"]) == 2
    assert "was begun with" in capsys.readouterr().err.splitlines()[-1]
    old = tmp_path / "old"
    old.mkdir()
    row = {key: value for key, value in json.loads(lines[0]).items() if key != "asked"}
    (old / "theory.jsonl").write_text(json.dumps(row) + "\n")
    assert cli.main([*arguments, str(old)]) == 2
    assert "was begun with None" in capsys.readouterr().err.splitlines()[-1]
    asked = []
    errors = command.Theory._errors
    monkeypatch.setattr(command.Theory, "_errors", lambda *given: (asked.append(given), errors(*given))[1])
    assert cli.main([*arguments, str(cut)]) == 0
    assert len(asked) == 1, "three of the four are known"
    whole = [line for line in (cut / "theory.jsonl").read_bytes().splitlines() if line.endswith(b"}")]
    (cut / "theory.jsonl").write_bytes(b"\n".join(whole))
    assert measured(cut) == measured(tmp_path / "whole")


def test_one_that_was_begun_with_other_results_is_not_gone_on_with(tmp_path, capsys):
    arguments = ["theory", "--out", str(tmp_path / "out"), "--results", str(tmp_path / "results"), *QUICK]
    assert cli.main(arguments) == 0
    (tmp_path / "out" / "theory.png").unlink()
    before = (tmp_path / "out" / "theory.jsonl").read_bytes()
    # Its models would stand in the places of others.
    trained(tmp_path / "results", {5: 100})
    assert cli.main(arguments) == 2
    told = capsys.readouterr().err.splitlines()[-1]
    assert "'0 models, SHA-256 " in told
    assert "'2 models, SHA-256 " in told
    assert (tmp_path / "out" / "theory.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--lengths", "0"], "length 0"),
        (["--ngrams", "0"], "n=0"),
        (["--ngrams", "1", "--lengths", "40"], "at most 26"),
        (["--num", "0"], "num 0"),
        (["--lengths"], "lengths"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(tmp_path, capsys, arguments, message):
    assert cli.main(["theory", "--out", str(tmp_path / "out"), *arguments]) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
    assert not (tmp_path / "out" / "theory.jsonl").exists()
