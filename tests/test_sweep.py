import contextlib
import doctest
import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from relnet import recipes, run, sweep
from relnet.sweep import identity
from relnet.train.folder import locked
from tests.launching import ROOT
from tests.sweeping import numbers, renamed, swept, tiny_runs


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    outcome = swept(folder)
    assert [place.name for place in outcome.finished] == [planned.name for planned in tiny_runs()]
    assert (outcome.failed, outcome.left) == ({}, [])
    return folder


def test_each_run_has_a_folder_and_a_line_and_is_done_once(whole):
    first, second = numbers(whole)
    assert [line["config"]["train"]["seed"] for line in (first, second)] == [0, 1]
    assert len(first["curve"]["loss"]) == 6
    assert {row["mode"] for row in first["exam"]} == {"teacher_forced", "free_running"}
    before = (whole / "lines.jsonl").read_bytes()
    started = []
    outcome = swept(whole, on_start=lambda planned, _: started.append(planned))
    assert len(outcome.finished) == 2
    assert started == []
    assert (whole / "lines.jsonl").read_bytes() == before


class StopError(BaseException):
    """As abrupt as a second Ctrl-C."""


def test_a_file_system_without_locks_stops_no_sweep(tmp_path, whole, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", fail)
    swept(tmp_path)
    assert numbers(tmp_path) == numbers(whole)


@pytest.mark.parametrize("updates", [1, 5, 9])
def test_a_sweep_that_is_stopped_goes_on_to_the_same_numbers(tmp_path, whole, updates):
    done = []

    def stop(*step):
        done.append(step)
        if len(done) == updates:
            raise StopError

    with pytest.raises(StopError):
        swept(tmp_path, on_step=stop)
    swept(tmp_path)
    assert numbers(tmp_path) == numbers(whole)


@pytest.mark.slow
def test_a_sweep_that_is_killed_twice_goes_on_to_the_same_numbers(tmp_path, whole):
    command = [sys.executable, "-m", "tests.sweeping", str(tmp_path)]
    for kill in (["--kill", "3"], ["--kill", "6"]):
        killed = subprocess.run([*command, *kill], cwd=ROOT, check=False)
        assert killed.returncode == -signal.SIGKILL
    subprocess.run(command, cwd=ROOT, check=True)
    assert numbers(tmp_path) == numbers(whole)


def test_a_budget_saves_the_run_that_trains_and_leaves_the_rest(tmp_path, monkeypatch, whole):
    clock = [0.0]
    monkeypatch.setattr(sweep.time, "monotonic", lambda: clock[0])

    def tick(_, record):
        clock[0] += 1.0

    outcome = swept(tmp_path, budget=3.0, on_step=tick)
    assert (outcome.finished, len(outcome.left)) == ([], 2)
    place = tmp_path / tiny_runs()[0].name
    assert len((place / "log.jsonl").read_text().splitlines()) == 3
    assert (place / "checkpoints" / "step-00000003.safetensors").exists()
    swept(tmp_path)
    assert numbers(tmp_path) == numbers(whole)


@pytest.mark.parametrize("times", [1, 2])
def test_a_run_that_fails_is_gone_on_with_once_and_then_reported(tmp_path, whole, times):
    first, _ = tiny_runs()
    failures = []

    def fail(planned, record):
        if planned == first and record.step == 3 and len(failures) < times:
            failures.append(record)
            raise RuntimeError("out\nof luck")

    outcome = swept(tmp_path, on_step=fail)
    if times == 1:
        assert outcome.failed == {}
        assert numbers(tmp_path) == numbers(whole)
    else:
        assert outcome.failed == {tmp_path / first.name: "RuntimeError: out of luck"}
        assert len(outcome.finished) == 1
        assert [line["config"]["train"]["seed"] for line in numbers(tmp_path)] == [1]


def test_lengths_that_are_asked_for_later_are_examined_and_written(tmp_path):
    (planned,) = tiny_runs(seeds=[0], max_steps=2)
    swept(tmp_path, [planned])
    longer = sweep.PlannedRun(planned.config, lengths=(2, 3))
    swept(tmp_path, [longer])
    assert [sorted({row["length"] for row in line["exam"]}) for line in numbers(tmp_path)] == [[3], [2, 3]]


def test_an_exam_of_another_number_of_strings_is_not_the_sweep_s(tmp_path):
    runs = tiny_runs(seeds=[0], max_steps=2)
    swept(tmp_path, runs)
    before = numbers(tmp_path)
    (tmp_path / "lines.jsonl").unlink()
    (tmp_path / runs[0].name / "exam.jsonl").unlink()
    run.examine(tmp_path / runs[0].name, num=2)
    swept(tmp_path, runs)
    assert numbers(tmp_path) == before


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("{}")])
@pytest.mark.parametrize("name", ["config.json", "result.json"])
def test_half_a_run_folder_does_not_count_as_finished(tmp_path, name, damage):
    runs = tiny_runs(seeds=[0], max_steps=2)
    (place,) = swept(tmp_path, runs).finished
    before = numbers(tmp_path)
    (tmp_path / "lines.jsonl").unlink()
    damage(place / name)
    outcome = swept(tmp_path, runs)
    if outcome.failed:
        assert name in outcome.failed[place]
        assert (tmp_path / "lines.jsonl").read_bytes() == b""
    else:
        assert numbers(tmp_path) == before


@pytest.mark.parametrize(
    ("name", "line", "why"),
    [
        ("log.jsonl", '{"step": 1}', "update 1 of the log lacks loss"),
        ("log.jsonl", '{"step": 1, "loss": "?", "accuracy": 0, "window_accuracy": 0}', "loss is '\\?'"),
        ("exam.jsonl", None, "damaged"),
    ],
)
def test_a_run_of_which_no_line_can_be_made_fails_and_stops_no_other(tmp_path, whole, name, line, why):
    first, second = swept(tmp_path).finished
    (tmp_path / "lines.jsonl").unlink()
    path = first / name
    content = path.read_text()
    if line is None:
        row = json.loads(content.splitlines()[0])
        line = json.dumps(row | {"task": [1]})
    path.write_text(f"{line}\n{content}")
    outcome = swept(tmp_path)
    assert outcome.finished == [second]
    assert re.search(why, outcome.failed[first])
    assert numbers(tmp_path) == numbers(whole)[1:]


def test_a_line_that_a_kill_cut_short_is_written_again(tmp_path, whole):
    lines = (whole / "lines.jsonl").read_bytes().splitlines(keepends=True)
    path = tmp_path / "lines.jsonl"
    path.write_bytes(lines[0] + lines[1][:100])
    for planned in tiny_runs():
        sweep.append_line(path, whole / planned.name, "")
    assert path.read_bytes() == b"".join(lines)


def test_a_whole_last_line_is_kept_though_it_lacks_its_end(tmp_path, whole):
    lines = (whole / "lines.jsonl").read_bytes().splitlines(keepends=True)
    path = tmp_path / "lines.jsonl"
    path.write_bytes(lines[0].rstrip())
    sweep.check([], path)
    sweep.append_line(path, whole / tiny_runs()[1].name, "")
    assert path.read_bytes() == b"".join(lines)
    assert lines[0].startswith(sweep.OPENING)


def test_finished_runs_count_though_the_budget_is_used_up(tmp_path, whole):
    lines = tmp_path / "again.jsonl"
    outcome = sweep.sweep([*tiny_runs(), *tiny_runs(seeds=[2])], whole, device="cpu", budget=0, lines=lines)
    assert (len(outcome.finished), len(outcome.left)) == (2, 1)
    assert len(lines.read_text().splitlines()) == 2


@pytest.mark.parametrize("holds", [sweep._alone, locked])
def test_a_run_that_another_process_is_at_is_waited_for_and_comes_in_its_place(tmp_path, whole, monkeypatch, holds):
    monkeypatch.setattr(sweep, "WAITING", 0)
    first, second = tiny_runs()
    waited, ended = [], []
    with contextlib.ExitStack() as other:
        other.enter_context(holds(tmp_path / first.name))

        def wait(busy):
            waited.append(list(busy))
            other.close()

        outcome = swept(tmp_path, on_wait=wait, on_end=lambda planned, fault: ended.append((planned, fault)))
    assert waited == [[first]]
    assert ended == [(second, ""), (first, "")]
    assert outcome.finished == [tmp_path / first.name, tmp_path / second.name]
    assert numbers(tmp_path) == numbers(whole)


def test_what_is_waited_for_is_left_when_the_budget_is_used_up(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "WAITING", 0)
    (planned,) = tiny_runs(seeds=[0])
    with sweep._alone(tmp_path / planned.name):
        outcome = swept(tmp_path, [planned], budget=0.2)
    assert (outcome.left, outcome.failed) == ([tmp_path / planned.name], {})


def test_an_exam_is_one_sweep_s_alone(tmp_path, monkeypatch):
    (planned,) = tiny_runs(seeds=[0], max_steps=2)
    examine = run.examine_unless_done

    def meanwhile(*arguments, **options):
        with pytest.raises(sweep.BusyError):
            sweep.do(planned, tmp_path / planned.name, "cpu")
        examine(*arguments, **options)

    monkeypatch.setattr(run, "examine_unless_done", meanwhile)
    assert swept(tmp_path, [planned]).failed == {}


@pytest.mark.slow
def test_two_processes_share_the_runs_of_the_same_sweep(tmp_path, whole):
    command = [sys.executable, "-m", "tests.sweeping", str(tmp_path)]
    both = [subprocess.Popen(command, cwd=ROOT) for _ in range(2)]
    assert [one.wait() for one in both] == [0, 0]
    assert sorted(numbers(tmp_path), key=str) == sorted(numbers(whole), key=str)
    for planned in tiny_runs():
        assert (tmp_path / planned.name / "exam.jsonl").read_text().count("\n") == 2, "examined once"


def test_the_hash_is_of_all_that_decides_the_numbers_and_of_nothing_else():
    (planned,) = tiny_runs(seeds=[0])
    (saved_often,) = tiny_runs(seeds=[0], checkpoint_every=1)
    assert saved_often.name == planned.name
    others = [
        *tiny_runs(seeds=[1]),
        *tiny_runs(seeds=[0], lr=2e-3),
        *tiny_runs(seeds=[0], heads=2),
        *tiny_runs(seeds=[0], mixer="lstm"),
        renamed(planned, "another"),
    ]
    assert len({identity(one.content) for one in [planned, *others]}) == len(others) + 1
    without = planned.content
    del without["train"]["give_up_after"]
    assert identity(without) == identity(planned.content), "a config of an earlier release"


def test_runs_lie_outside_of_the_work_tree_unless_said_otherwise(monkeypatch, tmp_path):
    monkeypatch.delenv("RELNET_RUNS", raising=False)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert sweep.root() == tmp_path / "relnet" / "runs"
    monkeypatch.delenv("XDG_DATA_HOME")
    assert sweep.root() == Path.home() / ".local" / "share" / "relnet" / "runs"
    monkeypatch.setenv("RELNET_RUNS", "elsewhere")
    assert sweep.root() == Path("elsewhere")


def test_what_cannot_be_swept_is_refused_before_anything_is_done(tmp_path):
    with pytest.raises(ValueError, match="stands twice"):
        swept(tmp_path, tiny_runs(seeds=(0, 0)))
    with pytest.raises(ValueError, match="device 'tpu'"):
        sweep.sweep(tiny_runs(), tmp_path, device="tpu")
    odd = renamed(tiny_runs(heads=3)[0], "three-heads")
    with pytest.raises(ValueError, match=r"three-heads cannot be built: .* not divisible by heads"):
        swept(tmp_path, [*tiny_runs(), odd])
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "lines.jsonl").write_text("a list of mine\n")
    with pytest.raises(ValueError, match=r"lines\.jsonl, line 1 is none of relnet's"):
        swept(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["lines.jsonl"]
    assert (tmp_path / "lines.jsonl").read_text() == "a list of mine\n"


@pytest.mark.parametrize(
    "mine",
    [
        "a note without an end",
        '{"accuracy": 1.0}',
        '{"accuracy": 1.0}\n',
        '{\n  "format": 1\n}',
        "[1, 2]\n",
        "3\n",
        '{"format": 1, "config": "mine"}\n',
        '{"format": 1, "config": {"train": null}}\n',
        '{"format": 1, "config": {"train": {}}, "exam": 3}\n',
    ],
)
def test_a_file_of_somebody_else_is_refused_at_the_start_and_stays_as_it_is(tmp_path, mine):
    path = tmp_path / "lines.jsonl"
    path.write_text(mine)
    with pytest.raises(ValueError, match="none of relnet's"):
        swept(tmp_path)
    assert path.read_text() == mine
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/dev/full")])
def test_what_is_no_file_to_write_lines_to_is_refused_at_the_start(tmp_path, make):
    make(tmp_path / "lines.jsonl")
    with pytest.raises(ValueError, match=r"lines\.jsonl is no regular file"):
        swept(tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


def test_time_left_goes_by_the_nearest_length_that_was_seen():
    short, middle, long = (sweep.PlannedRun(recipes.copying(length, max_steps=10)) for length in (16, 128, 256))
    left = sweep.TimeLeft([short, middle, long])
    for planned, seconds in ((short, 0.17), (middle, 2.5)):
        left.took(planned, step=1, seconds=seconds)
        left.over(planned)
    # 2.5 s at 128, 258 tokens a row.
    assert left.seconds() == pytest.approx(10 * 2.5 * 514 / 258)


def test_the_example_holds():
    result = doctest.testmod(sweep)
    assert result.attempted > 0
    assert result.failed == 0


def test_a_config_with_patience_reloads():
    config = recipes.figure4().runs[-1].config
    assert run.config_from_json(run.config_to_json(config)) == config


def test_numbers_of_a_line_are_those_of_its_folder(whole):
    place = whole / tiny_runs()[1].name
    line = numbers(whole)[1]
    assert line["config"] == json.loads((place / "config.json").read_text())
