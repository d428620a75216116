"""relnet report and the names it is given: what it refuses first, writes whole, and prints as it is."""

import errno
import json
import os
import subprocess
import sys

import pytest

from relnet import cli
from relnet.commands import report as command
from relnet.commands.console import out
from tests.commands.test_report import report
from tests.report.folders import make_run, update


def without_room(_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--json", "k.jsonl", "--figure", "x.jpg"], "x.jpg: the figure is a PNG"),
        (["--json", "k.jsonl", "--html", "mine.html"], "mine.html exists, and nothing is overwritten"),
        (["--json", "k.jsonl", "--html", "/dev/full"], "/dev/full is no regular file"),
        (["--json", "k.html", "--html", "k.html"], "give two names"),
        (["--json", "mine.html", "--figure", "c.png"], "mine.html exists, and nothing is overwritten"),
        (["--json", "none/k.jsonl", "--figure", "c.png"], "none is no folder"),
        (["--html", "p.html", "--figure", "x.jpg"], "x.jpg: the figure is a PNG"),
    ],
)
def test_what_can_be_refused_is_refused_before_anything_is_written(capsys, tmp_path, monkeypatch, options, why):
    make_run(tmp_path / "runs", "a")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.html").write_text("mine")
    told, err = report(capsys, "runs", *options, status=2)
    assert told == ""
    assert why in err
    assert {file.name for file in tmp_path.iterdir()} == {"runs", "mine.html"}


def test_a_run_without_an_update_has_a_table_and_no_figure(capsys, tmp_path):
    make_run(tmp_path / "runs", "young", log=0, result=None, exam=())
    told, _ = report(capsys, tmp_path / "runs", "--json", tmp_path / "k.jsonl")
    assert "young" in told
    assert "no learning curves: no run has an update yet" in told
    _, err = report(capsys, tmp_path / "runs", "--figure", tmp_path / "c.png", "--json", tmp_path / "2.jsonl", status=2)
    assert "no updates to draw" in err
    assert {file.name for file in tmp_path.iterdir()} == {"runs", "k.jsonl"}


@pytest.mark.parametrize("option", ["--html", "--json", "--figure"])
def test_a_full_disk_is_told_with_the_file_and_the_next_call_finds_no_rest(capsys, tmp_path, monkeypatch, option):
    make_run(tmp_path / "runs", "a")
    path = tmp_path / "c.png"
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", without_room)
        _, err = report(capsys, tmp_path / "runs", option, path, status=1)
    assert err == f"relnet: {path}: No space left on device; make room, or give a name where there is some\n"
    report(capsys, tmp_path / "runs", option, path)
    assert path.stat().st_size > 0


def test_watching_goes_on_while_the_disk_is_full(capsys, tmp_path, monkeypatch):
    make_run(tmp_path / "runs", "a")
    path, seen = tmp_path / "page.html", []
    sync = os.fsync

    def sleep(_):
        seen.append(path.read_text().count('class="run"'))
        make_run(tmp_path / "runs", f"run-{len(seen)}")
        monkeypatch.setattr(os, "fsync", without_room if len(seen) == 1 else sync)
        if len(seen) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(command.time, "sleep", sleep)
    _, err = report(capsys, tmp_path / "runs", "--html", path, "--watch")
    assert seen == [1, 1, 3]
    assert f"the page stays as it was: {path}: No space left on device; make room" in err


def test_a_run_that_cannot_be_read_is_named_and_the_others_go_on(capsys, tmp_path):
    make_run(tmp_path / "runs", "good", log=3)
    bad = make_run(tmp_path / "runs", "bad", log=3)
    with (bad / "log.jsonl").open("a") as file:
        file.write('{"step": 4}\n' + json.dumps(update(5)) + "\n")
    kept = tmp_path / "k.jsonl"
    told, _ = report(capsys, tmp_path / "runs", "--json", kept, "--figure", tmp_path / "c.png")
    assert f"not readable: {bad}: update 4 of the log lacks loss" in told
    assert [json.loads(line)["name"] for line in kept.read_text().splitlines()] == ["good"]
    assert (tmp_path / "c.png").exists()


def run_command(*arguments, **environment):
    """The command in a process of its own: its standard streams have an encoding."""
    return subprocess.run(
        [sys.executable, "-m", "relnet", "report", *arguments],
        capture_output=True,
        env=os.environ | environment,
        check=False,
    )


def test_a_terminal_that_lacks_letters_gets_the_table_without_them(tmp_path):
    make_run(tmp_path, "ü\N{GRINNING FACE}", folder="a")
    found = run_command(str(tmp_path / "a"), PYTHONIOENCODING="ascii")
    assert found.returncode == 0, found.stderr
    assert b"??" in found.stdout


@pytest.mark.skipif(sys.platform == "darwin", reason="macOS's file system takes UTF-8 only")
def test_a_folder_whose_name_is_no_utf8_is_shown(tmp_path):
    folder = os.fsencode(tmp_path) + b"/bad\xff\xfe"
    os.mkdir(folder)
    make_run(tmp_path, "a", config=False).joinpath("log.jsonl").rename(os.fsdecode(folder + b"/log.jsonl"))
    found = run_command(folder, "--markdown", PYTHONIOENCODING="utf-8")
    assert found.returncode == 0, found.stderr
    assert b"| bad?? |" in found.stdout
    assert os.path.exists(folder + b"/curves.png")


def test_names_are_printed_as_they_are(capsys, tmp_path):
    folder = make_run(tmp_path / "a:b:c", "[bold]x", folder="[red]y")
    told, _ = report(capsys, folder)
    assert "[bold]x" in told
    assert f"learning curves: {folder / 'curves.png'}" in told
    out.print(":b: [bold]x 12 'y'")
    assert capsys.readouterr().out == ":b: [bold]x 12 'y'\n"


def test_standard_output_that_is_set_to_another_way_keeps_it(capsys):
    sys.stdout.reconfigure(errors="xmlcharrefreplace")
    cli.main(["claims", "nowhere"])
    assert sys.stdout.errors == "xmlcharrefreplace"
