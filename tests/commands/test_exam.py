"""relnet exam: what it refuses before anything is trained, and pretrained models whose tokenizer rewrites a text."""

import json

import pytest
import torch
from tokenizers import Tokenizer, normalizers

from relnet import cli, recipes, run
from tests.exam.transformers_models import save, tiny


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--mixers", "causalrn", "--num", "0"], "--num 0: at least 1 wanted"),
        (["--mixers", "causalrn", "--batch-size", "0"], "--batch-size 0: at least 1 wanted"),
        (["--mixers", "causalrn", "--hf", "nowhere"], "nowhere"),
        (["--mixers", "causalrn", "--hf-config", "mambo", "--max-steps", "2"], "mambo"),
        (["RUN", "--lrs", "0.1"], "a run sits the exam of its own task"),
        (["RUN", "--tasks", "copying-4"], "a run sits the exam of its own task"),
    ],
)
def test_a_mistake_is_told_before_anything_is_trained(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    out = tmp_path / "out"
    named = [*arguments, "--out", str(out)] if arguments[0] != "RUN" else [str(tmp_path), *arguments[1:]]
    assert cli.main(["exam", *named]) == 2
    assert message in capsys.readouterr().err.strip().splitlines()[-1]
    assert not list(out.rglob("log.jsonl"))


@pytest.mark.parametrize("kind", ["text-copy", "shuffled-copy"])
def test_a_tokenizer_that_lowers_letters_is_asked_to_copy_what_it_reads(tmp_path, capsys, kind):
    folder, text, out = tmp_path / "model", tmp_path / "text.txt", tmp_path / "exam"
    save(tiny("gpt_neox", vocab_size=100, context=300), folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.save(str(folder / "tokenizer.json"))
    text.write_text("The Cat sat on THE mat")
    asked = ["--tasks", kind, "--text", str(text), "--lengths", "3", "--num", "5", "--device", "cpu", "--out", str(out)]
    assert cli.main(["exam", "--hf", str(folder), *asked]) == 0, capsys.readouterr().err
    lines = [json.loads(line) for line in (out / "exam.jsonl").read_text().splitlines()]
    assert [line["items"] for line in lines] == [5, 5]


def test_a_model_that_took_another_ones_place_does_not_take_its_results(tmp_path, capsys):
    folder, out = tmp_path / "model", tmp_path / "exam"
    asked = ["exam", "--hf", str(folder), "--tasks", "uniform-copy", "--num", "3", "--device", "cpu", "--out", str(out)]
    model = tiny("gpt_neox", vocab_size=100, context=300)
    save(model, folder)
    for length in ("3", "4"):
        assert cli.main([*asked, "--lengths", length]) == 0, capsys.readouterr().err
    before = (out / "exam.jsonl").read_text()
    assert len(before.splitlines()) == 4
    with torch.no_grad():
        next(model.parameters()).mul_(2)
    save(model, folder)
    assert cli.main([*asked, "--lengths", "3"]) == 2
    assert f"holds answers of another model that was named {folder}; take another --out" in capsys.readouterr().err
    assert (out / "exam.jsonl").read_text() == before


def test_a_run_on_a_text_refuses_what_is_of_strings(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("RELNET_DATA", str(tmp_path / "data"))
    text = tmp_path / "text.txt"
    text.write_text("What is written here is read byte by byte. " * 40)
    config = recipes.text((str(text),), validation_share=0.1, context=16, width=8, depth=1, batch_size=2, max_steps=1)
    run.train(config, tmp_path / "run", device="cpu")
    for option in (["--data", str(text)], ["--lengths", "3"], ["--num", "5"], ["--seeds", "1"], ["--batch-size", "2"]):
        assert cli.main(["exam", str(tmp_path / "run"), *option]) == 2
        assert "leave out --lengths, --num, --seeds, --batch-size and --data" in capsys.readouterr().err
    assert not (tmp_path / "run" / "exam.jsonl").exists()
