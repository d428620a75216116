import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from relnet import cli, protocol
from tests.exam.transformers_models import save, tiny
from tests.launching import launch_two

SMALL = ["--width", "16", "--depth", "1", "--batch-size", "8", "--device", "cpu"]


def relnet(capsys, *arguments, status=0):
    """Run the command line in this process; return what it printed to stdout and stderr."""
    try:
        found = cli.main([str(argument) for argument in arguments])
    except SystemExit as ended:
        found = ended.code or 0
    captured = capsys.readouterr()
    assert found == status, captured.err
    return captured.out, captured.err


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert cli.main(["train", "copying", "--length", "3", "--max-steps", "3", "--out", str(folder), *SMALL]) == 0
    return folder


def test_train_says_what_it_will_do_then_prints_a_table(capsys, tmp_path):
    arguments = ("train", "copying", "--length", 3, "--max-steps", 3, "--out", tmp_path / "run", *SMALL)
    out, err = relnet(capsys, *arguments)
    plan = r"strings of 3: 1,264 weights without embeddings, at most 3 steps of 8; run folder: .*run\nabout [\d.]+ s a step: at most"
    assert re.search(plan, err), err
    assert err.index("s a step") < err.index("3/3")
    assert "3/3" in err
    assert "causalrn" in out
    assert len((tmp_path / "run" / "log.jsonl").read_text().splitlines()) == 3
    assert (tmp_path / "run" / "exam.jsonl").exists()


def test_train_resumes_only_what_it_is_told_to(capsys, finished):
    arguments = ("train", "copying", "--length", 3, "--max-steps", 3, *SMALL)
    _, err = relnet(capsys, *arguments, "--out", finished, status=2)
    assert "already holds a run" in err
    assert err.strip().splitlines()[-1].startswith("relnet: ")
    _, err = relnet(capsys, *arguments, "--out", finished, "--resume")
    assert "s a step" not in err, "what is finished needs no estimate"
    _, err = relnet(capsys, *arguments, "--resume", status=2)
    assert "--resume needs --out" in err
    _, err = relnet(capsys, "train", "copying", "--length", 4, "--out", finished, "--resume", *SMALL, status=2)
    assert "another config" in err


TINY_TEXT = ("--width", 16, "--depth", 1, "--context", 32, "--batch-size", 4, "--max-steps", 4, "--device", "cpu")


@pytest.fixture
def words(tmp_path, monkeypatch):
    monkeypatch.setenv("RELNET_DATA", str(tmp_path / "data"))
    path = tmp_path / "words.txt"
    path.write_text("".join(f"{number:03d} " for number in range(500)))
    return path


def test_train_text_prepares_validates_and_ends_with_a_table_and_a_sample(capsys, monkeypatch, words, tmp_path):
    # Room for the names, however fast the machine is.
    monkeypatch.setenv("COLUMNS", "160")
    arguments = ("train", "text", "--data", words, "--validate-every", 2, "--out", tmp_path / "run", *TINY_TEXT)
    out, err = relnet(capsys, *arguments)
    assert "linear-causalrn on text, windows of 32 tokens" in err
    assert re.search(r"4/4 .*validation \d\.\d{3} bits/byte", err), err
    assert re.search(r"^linear-causalrn +4,896 +512 +\d\.\d{4} ", out, re.MULTILINE), out
    assert "wrote: Three years later, | " in out
    assert "Validation: 100 tokens, 100 bytes, in windows of 32 that begin every 32." in " ".join(out.split())
    row = json.loads((tmp_path / "run" / "exam.jsonl").read_text())
    out, _ = relnet(capsys, "exam", tmp_path / "run", "--device", "cpu")
    rows = [json.loads(line) for line in (tmp_path / "run" / "exam.jsonl").read_text().splitlines()]
    assert rows == [row, row]
    out, _ = relnet(capsys, "report", tmp_path / "run", "--json", tmp_path / "run.jsonl")
    assert "curves.png" in out
    kept = json.loads((tmp_path / "run.jsonl").read_text())
    assert kept["text"] == [row]
    assert [step for step, _ in kept["validation"]] == [2, 4]


def test_compare_text_trains_each_model_and_shows_what_it_writes(capsys, words, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text(words.read_text()[::-1])
    arguments = ("compare", "text", "--data", words, words, "--validation", other, "--hidden", 16, "--prompt", "012 ")
    mixers = ("--mixers", "causalrn", "hybrid", "transformer")
    out, _ = relnet(capsys, *arguments, *mixers, *TINY_TEXT, "--out", tmp_path / "all")
    for name in mixers[1:]:
        assert f"{name} wrote: 012 " in out
    assert "Validation: 2,000 tokens, 2,000 bytes" in " ".join(out.split())
    assert (tmp_path / "all" / "curves.png").exists()
    _, err = relnet(capsys, *arguments[:-1], "x" * 33, *TINY_TEXT, "--out", tmp_path / "b", status=2)
    assert "--prompt has 33 tokens, the models take 32" in err
    assert not (tmp_path / "b").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "is empty"), (b"\0\1", "binary file"), (b"\xff\xfea", "not UTF-8"), (None, "no file of text")],
)
def test_a_text_that_cannot_be_learnt_gets_one_line_and_leaves_no_folder(capsys, words, tmp_path, content, message):
    words.unlink()
    if content is not None:
        words.write_bytes(content)
    out, err = relnet(capsys, "train", "text", "--data", words, "--out", tmp_path / "run", *TINY_TEXT, status=2)
    assert (out, len(err.splitlines())) == ("", 1)
    assert message in err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", [("train", "copying"), ("compare", "copying")])
def test_a_slip_of_the_pen_in_what_to_resume_starts_nothing(capsys, tmp_path, command):
    _, err = relnet(capsys, *command, "--resume", "--out", tmp_path / "typo", *SMALL, status=2)
    assert "typo holds nothing to go on with" in err
    assert list(tmp_path.iterdir()) == []


def test_train_examines_what_an_interrupted_exam_left_out(capsys, tmp_path):
    arguments = ("train", "copying", "--length", 3, "--max-steps", 1, "--out", tmp_path / "run", *SMALL)
    relnet(capsys, *arguments)
    path = tmp_path / "run" / "exam.jsonl"
    path.write_text(path.read_text().splitlines()[0] + "\n")
    relnet(capsys, *arguments, "--resume")
    modes = [json.loads(line)["mode"] for line in path.read_text().splitlines()]
    assert modes == ["teacher_forced", "teacher_forced", "free_running"]


@pytest.mark.parametrize("command", [("exam",), ("report",)])
def test_of_several_processes_one_alone_examines_and_reports(capsys, monkeypatch, finished, command):
    before = {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()}
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    assert relnet(capsys, *command, finished) == ("", "")
    assert {path: path.read_bytes() for path in finished.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_two_processes_train_one_run_from_the_command_line(tmp_path):
    arguments = ("train", "copying", "--length", 3, "--max-steps", 3, *SMALL)
    done = launch_two("relnet", *arguments, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        *(".lock", "checkpoints", "config.json", "exam.jsonl", "log.jsonl", "model.safetensors", "result.json")
    ]
    settings, lines, rows = (
        (tmp_path / "run" / name).read_text() for name in ("result.json", "log.jsonl", "exam.jsonl")
    )
    assert json.loads(settings)["steps"] == 3
    assert [json.loads(line)["step"] for line in lines.splitlines()] == [1, 2, 3]
    assert [json.loads(row)["mode"] for row in rows.splitlines()] == ["teacher_forced", "free_running"]
    for text, shown in ((done.stderr, "weights without embeddings"), (done.stderr, "3/3"), (done.stdout, "causalrn ")):
        assert text.count(shown) == 1, text
    (tmp_path / "run" / "exam.jsonl").unlink()
    resumed = launch_two("relnet", *arguments, "--out", tmp_path / "run", "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert (tmp_path / "run" / "exam.jsonl").read_text() == rows


@pytest.mark.slow
def test_two_processes_compare_and_need_the_name_of_a_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("RELNET_RUNS", str(tmp_path / "runs"))
    arguments = ("compare", "copying", "--mixers", "causalrn", "lstm", "--length", 3, "--max-steps", 2, *SMALL)
    refused = launch_two("relnet", *arguments)
    assert refused.returncode != 0
    assert "several processes train together: name the run folder" in refused.stderr
    assert not (tmp_path / "runs").exists()
    done = launch_two("relnet", *arguments, "--out", tmp_path / "both")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (tmp_path / "both").iterdir()) == ["causalrn", "curves.png", "lstm"]
    assert done.stdout.count("learning curves") == 1


def test_compare_ends_with_a_table_a_copied_string_and_a_figure(capsys, tmp_path):
    out, err = relnet(
        capsys,
        *("compare", "copying", "--length", 3, "--mixers", "causalrn", "lstm", "--string", "hello", "--max-steps", 2),
        *("--out", tmp_path / "both", *SMALL),
    )
    assert "repeated or cut to the trained 3 letters" in out
    assert re.search(r"^ +hel$", out, re.MULTILINE)
    figure = tmp_path / "both" / "curves.png"
    assert str(figure) in out
    assert figure.read_bytes().startswith(b"\x89PNG")
    assert "lstm" in out
    assert "run folders in" in err


def test_a_string_of_other_characters_is_refused_before_anything_runs(capsys, tmp_path):
    arguments = ("compare", "copying", "--string", "Hello!", "--out", tmp_path / "x", *SMALL)
    out, err = relnet(capsys, *arguments, status=2)
    assert "'!', 'H'" in err
    assert not (tmp_path / "x").exists()
    assert out == ""


def test_exam_adds_results_and_says_what_a_model_cannot_take(capsys, finished):
    out, err = relnet(capsys, "exam", finished, "--lengths", 2, 3, 50, "--num", 4, "--device", "cpu")
    assert "needs 102 tokens, the model takes at most 8" in err
    assert "length 2" in err
    assert "causalrn" in out
    rows = [json.loads(line) for line in (finished / "exam.jsonl").read_text().splitlines()]
    assert {row["length"] for row in rows} >= {2, 3, 50}


def test_exam_asks_strings_of_the_users_own_and_keeps_no_result_of_them(capsys, finished, tmp_path):
    strings = tmp_path / "strings.txt"
    strings.write_text("abc\nxyz\nhi\nmuchtoolong\n")
    before = (finished / "exam.jsonl").read_bytes()
    out, _ = relnet(capsys, "exam", finished, "--data", strings, "--device", "cpu")
    assert re.search(r"length 2 .*free_running: [01]/1 exact", out)
    assert re.search(r"length 3 .*teacher_forced: [012]/2 exact", out)
    assert "needs 24 tokens, the model takes at most 8" in out
    assert (finished / "exam.jsonl").read_bytes() == before
    for content, message in ((b"", "holds no string"), (b"ab1\n", "'1'"), (b"\xff\xfe", "no text file")):
        strings.write_bytes(content)
        _, err = relnet(capsys, "exam", finished, "--data", strings, status=2)
        assert message in err
    _, err = relnet(capsys, "exam", finished, "--data", tmp_path / "none", status=2)
    assert "no text file" in err


def test_exam_trains_a_mixer_of_the_users_and_ends_with_a_verdict_and_figures(capsys, tmp_path):
    example = Path(__file__).parents[1] / "examples" / "own_mixer.py"
    out, err = relnet(
        capsys,
        *("exam", "--model", f"{example}:build", "--hf-config", "mamba", "--mixers", "causalrn", "--width", 16),
        *("--tasks", "copying-4", "suffix-lookup-8", "--lengths", 8, "--max-steps", 2, "--num", 3),
        *("--device", "cpu", "--out", tmp_path / "exam"),
    )
    for name in ("own_mixer", "mamba", "causalrn"):
        assert len(re.findall(rf"^{name} ", out, re.MULTILINE)) == 2, out
    assert "suffix-lookup-3-jelassi2024" in out
    lines = [json.loads(line) for line in (tmp_path / "exam" / "exam.jsonl").read_text().splitlines()]
    assert len(lines) == 3 * 2 * 2 * 3, "three learning rates unless told"
    assert all(line["state_bytes"] > 0 for line in lines)
    for name in ("exam-lengths.png", "exam-samples.png", "exam-states.png"):
        assert name in out
        assert (tmp_path / "exam" / name).read_bytes().startswith(b"\x89PNG")
    assert "length 8" in err


def test_exam_asks_a_pretrained_folder_letters_and_text(capsys, tmp_path):
    save(tiny("gpt_neox", vocab_size=100, context=300), tmp_path / "model")
    passages, squad = tmp_path / "text.txt", tmp_path / "squad.json"
    passages.write_text("the cat sat on the mat")
    answer = {"text": "cat", "answer_start": 4}
    entry = {"context": "the cat sat", "qas": [{"id": "1", "question": "Who?", "answers": [answer]}]}
    squad.write_text(json.dumps({"data": [{"paragraphs": [entry]}]}))
    command = ("exam", "--hf", tmp_path / "model", "--num", 2, "--device", "cpu", "--out", tmp_path / "exam", "--tasks")
    kinds = ("text-copy", "shuffled-copy", "uniform-copy", "phone-book")
    out, _ = relnet(capsys, *command, *kinds, "--text", passages, "--lengths", 3, 4)
    for name in ("text-copy-natural", "text-copy-shuffled", "uniform-copy", "phone-book"):
        assert out.count(f" {name}, ") == 2, out
    out, _ = relnet(capsys, *command, "copying-4", "question-answering", "--squad", squad, "--lengths", 10, 200)
    out = " ".join(out.split())
    assert "question-answering: length 10 was not asked: has no question" in out
    assert "copying-jelassi2024: length 200 was not asked: needs 402 tokens, the model takes at most 300" in out
    for missing, message in ((("question-answering",), "needs --squad"), (("text-copy",), "needs --text")):
        _, err = relnet(capsys, *command, *missing, status=2)
        assert message in err


def test_report_draws_and_never_overwrites(capsys, finished, tmp_path):
    figure = tmp_path / "curves.png"
    figure.write_bytes(b"mine")
    out, _ = relnet(capsys, "report", finished, "--figure", figure, "--markdown")
    assert figure.read_bytes() == b"mine"
    assert "curves-2.png" in out
    assert "|" in out


def test_report_keeps_runs_as_json_lines_in_a_new_file(capsys, finished, tmp_path):
    lines = tmp_path / "runs.jsonl"
    arguments = ("report", finished, "--figure", tmp_path / "c.png", "--json", lines, "--command", "relnet train ...")
    relnet(capsys, *arguments)
    (run,) = (json.loads(line) for line in lines.read_text().splitlines())
    assert run["command"] == "relnet train ..."
    assert run["curve"]["step"] == [1, 2, 3]
    assert run["config"]["train"]["seed"] == 0
    assert run["result"]["steps"] == 3
    assert {row["mode"] for row in run["exam"]} == {"teacher_forced", "free_running"}
    before = lines.read_bytes()
    _, err = relnet(capsys, *arguments, status=2)
    assert "exists" in err
    assert lines.read_bytes() == before


def test_generate_streams_from_a_run_and_from_its_export(capsys, finished, tmp_path):
    said, err = relnet(capsys, "generate", finished, "--prompt", "abc", "--max-new-tokens", 4)
    assert re.search(r"5 tokens read in [\d.]+ s, [1-4] said, .*; state [\d,]+ bytes, [\d,]+ allocated", err)
    relnet(capsys, "export", finished, tmp_path / "model")
    exported, err = relnet(capsys, "generate", tmp_path / "model", "--prompt", "abc", "--max-new-tokens", 4)
    assert exported == said
    assert "tokens read" in err
    for prompt, told in (("abc", False), ("ab", True)):
        _, err = relnet(capsys, "generate", finished, "--prompt", prompt)
        assert (f"trained on strings of exactly 3 letters; '{prompt}' has" in err) == told, err
    sampling = ("--temperature", 2, "--top-k", 9, "--seed", 5)
    drawn, _ = relnet(capsys, "generate", finished, "--prompt", "abc", *sampling)
    assert relnet(capsys, "generate", tmp_path / "model", "--prompt", "abc", *sampling)[0] == drawn
    for folder in (finished, tmp_path / "model"):
        for prompt, message in (("A 1b", "'A 1b' holds ' ', '1', 'A': "), ("", "empty"), ("abcabcabc", "at most 8")):
            _, err = relnet(capsys, "generate", folder, "--prompt", prompt, status=2)
            assert re.search(message, err), err
        _, err = relnet(capsys, "generate", folder, "--prompt", "abc", "--max-new-tokens", 0, status=2)
        assert "max_new_tokens=0; give an integer of at least 1" in err


def test_the_exam_takes_an_exported_folder_in_a_process_that_never_saw_it(capsys, finished, tmp_path):
    relnet(capsys, "export", finished, tmp_path / "model")
    arguments = (
        "exam",
        "--hf",
        tmp_path / "model",
        "--tasks",
        "copying-3",
        "--lengths",
        3,
        "--num",
        4,
        "--out",
        tmp_path / "exam",
    )
    command = [sys.executable, "-m", "relnet", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "copying" in done.stdout


def test_no_new_tokens_at_all_are_refused(capsys, finished):
    out, err = relnet(capsys, "generate", finished, "--prompt", "abc", "--max-new-tokens", 0, status=2)
    assert (out, "max_new_tokens=0" in err) == ("", True)


@pytest.mark.parametrize("command", [("exam",), ("report",), ("export", "again")])
def test_an_exported_folder_in_place_of_a_run_is_said(capsys, finished, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    relnet(capsys, "export", finished, "model")
    out, err = relnet(capsys, command[0], "model", *command[1:], status=2)
    assert (out, len(err.splitlines())) == ("", 1)
    assert re.search("a Hugging Face folder's; give|not a run folder", err), err
    assert not (tmp_path / "again").exists()


def test_the_code_in_the_card_of_an_export_asks_what_was_trained(capsys, finished, tmp_path, monkeypatch):
    relnet(capsys, "export", finished, tmp_path / "model")
    code = (tmp_path / "model" / "README.md").read_text().split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path / "model")
    exec(code, {})
    (asked,) = re.findall(r'tokenizer\("([a-z]{3})"', code)
    assert capsys.readouterr().out.startswith(f"<BOS>{asked}<SEP>")


@pytest.mark.parametrize(
    "arguments",
    [("theory", "--num", "1", "--lengths", "3", "--ngrams", "3", "--out"), ("report", "{finished}", "--json")],
)
def test_a_file_that_is_there_is_named_and_nothing_else_done(capsys, finished, tmp_path, arguments):
    taken = tmp_path / "theory.jsonl"
    taken.write_text("mine")
    place = tmp_path if arguments[0] == "theory" else taken
    out, err = relnet(capsys, *(word.format(finished=finished) for word in arguments), place, status=2)
    assert out == ""
    assert err.endswith(f"relnet: {taken} exists, and nothing is overwritten; give a new name\n")
    assert taken.read_text() == "mine"


def test_an_export_has_a_card_and_overwrites_nothing(capsys, finished, tmp_path):
    relnet(capsys, "export", finished, tmp_path / "model")
    text = (tmp_path / "model" / "README.md").read_text()
    for part in ("causalrn on copying-cui2024", '"seed": 0', "| name |", "relnet export run FOLDER", "1,264 weights"):
        assert part in text
    before = {path: path.read_bytes() for path in (tmp_path / "model").iterdir()}
    assert {path.name for path in before} >= {"config.json", "model.safetensors", "tokenizer.json", "README.md"}
    _, err = relnet(capsys, "export", finished, tmp_path / "model", status=2)
    assert "exists" in err
    assert {path: path.read_bytes() for path in (tmp_path / "model").iterdir()} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "juggling"], "juggling.*copying"),
        (["train", "copying", "--mixer", "mamba"], "mamba.*causalrn.*lstm"),
        (["train", "copying", "--length", "0"], "length 0"),
        (["train", "copying", "--heads", "5"], "heads=5"),
        (["train", "copying", "--lr", "fast"], "fast"),
        (["train", "copying", "--max-steps", "0"], "steps"),
        (["train", "copying", "--device", "abacus"], "abacus"),
        (["train", "copying", "--colour", "red"], "--colour"),
        (
            ["train", "copying", "--lenght", "4"],
            "^.*--lenght, 4 Perhaps you meant: --length or --lengths For full helptext, run relnet --help$",
        ),
        (["train", "copying", "--resum"], "--resum Perhaps you meant: --resume For full"),
        (
            ["train", "copying", "--lenght", "4", "--widht", "3"],
            r"meant: (--width or --length or --lengths|--length or --lengths or --width) For full",
        ),
        (
            ["report", "x", "--max-steps", "3"],
            r"meant: --max-steps of relnet exam, relnet compare copying, .* For full",
        ),
        (["compare", "juggling"], "juggling.*copying"),
        (["train", "text"], "--data"),
        (["compare", "copying", "--mixers", "causalrn", "mamba"], "mamba"),
        (["train", "copying", "--mixer", "lstm", "--heads", "4"], "heads=4: an LSTM has no heads"),
        (["train", "copying", "--seed", str(2**64)], f"seed={2**64}: must be at least 0 and below 2"),
        (["exam"], "no run folder given"),
        (["exam", "run", "--mixers", "causalrn"], "runs and --data belong to an exam of their own"),
        (["exam", "--mixers", "causalrn", "--tasks", "juggling-3"], "unknown task 'juggling-3'"),
        (["exam", "--model", "nowhere.py:build"], "no such file; write --model"),
        (["report"], "no folder given"),
        (["exam", "/nowhere"], "no run folder"),
        (["report", "/nowhere"], "/nowhere"),
        (["generate", "/nowhere", "--prompt", "a"], "no run folder"),
        (["export", "/nowhere", "/nowhere-else"], "no run folder"),
        (["train", "text", "--data", "t.txt", "--precision", "float16"], "^relnet: invalid choice 'float16'[^-]"),
        ([], r"Expected one of.*train.*compare.*exam.*generate.*export.*report"),
    ],
)
def test_a_mistake_gets_one_line_and_exit_2(capsys, monkeypatch, tmp_path, arguments, message):
    monkeypatch.setenv("RELNET_RUNS", str(tmp_path))
    out, err = relnet(capsys, *arguments, status=2)
    assert out == ""
    complaint = [line for line in err.splitlines() if line.startswith("relnet: ")]
    assert len(complaint) == 1, err
    assert re.search(message, complaint[0]), err
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


HELP = {
    (): ("Train one model by a recipe", "Examine trained runs"),
    ("train",): ("Learn to say a string of random letters again", "paper's exact settings"),
    ("train", "copying"): ("Letters in a string", "default: 0.0005", "(default: auto)", "default: causalrn"),
    ("train", "paper-copying"): ("default: 2000", "default: 128", "no number of its own"),
    ("train", "text"): ("Text files (UTF-8), folders", "(required)", "default: linear-causalrn"),
    ("train", "paper-text"): ("published configuration", "default: 6375"),
    ("compare",): ("Train several models", "default: hello"),
    ("compare", "copying"): ("Models to compare", "default: hello", "default: 300", "default: 0.99"),
    ("compare", "text"): ("Models to compare", "Three years later,", "(required)"),
    ("exam",): ("Strings a length and seed", "default: 320", "default: 64"),
    ("generate",): ("go on from a prompt", "default: 0.0", "Of the draws"),
    ("export",): ("RUN FOLDER", "Hugging Face folder", "New folder"),
    ("report",): ("PNG file of the learning curves", "default: False"),
}


@pytest.mark.parametrize("command", HELP, ids=" ".join)
def test_help_says_what_options_mean_and_their_defaults(capsys, command):
    out, _ = relnet(capsys, *command, "--help")
    text = " ".join(re.sub(r"[│|]", " ", out).split())
    assert f"usage: relnet {' '.join(command)}".strip() in text
    for part in HELP[command]:
        assert part in text, text


def test_recipes_are_told_in_straight_paragraphs(capsys):
    out, _ = relnet(capsys, "train", "--help")
    words = ("Learn to say a string", "relnet train copying", "Learn to say the next byte", "relnet train text")
    starts = [row.index(word) for row in out.splitlines() for word in words if word in row]
    assert starts == starts[:1] * len(words), out


def test_a_failure_that_is_not_the_users_exits_1_in_one_line(capsys, monkeypatch, finished):
    def full_disk(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cli.run, "examine", full_disk)
    _, err = relnet(capsys, "exam", finished, status=1)
    assert err.startswith("relnet: ")
    assert "No space left" in err


def test_ctrl_c_exits_130_and_says_how_to_go_on(capsys, monkeypatch, tmp_path):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt("stopped after update 7; resume the run in here to go on")

    monkeypatch.setattr(cli.run, "train", interrupted)
    arguments = ("train", "copying", "--length", 3, "--max-steps", 3, "--out", tmp_path / "run", *SMALL)
    _, err = relnet(capsys, *arguments, status=130)
    assert "stopped after update 7" in err
    assert f"relnet: to go on: relnet {' '.join(map(str, arguments))} --resume\n" in err


def test_ctrl_c_in_an_exam_says_how_to_go_on(capsys, monkeypatch, tmp_path):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(protocol, "sit", interrupted)
    _, err = relnet(capsys, "exam", "--mixers", "causalrn", "--out", tmp_path / "exam", status=130)
    assert f"the same command with --out {tmp_path / 'exam'} goes on" in err


def test_the_module_runs_as_a_program():
    done = subprocess.run([sys.executable, "-m", "relnet", "--help"], capture_output=True, text=True, check=True)
    assert "usage: relnet" in done.stdout
