"""Real processes: killed without warning, or two that train together."""

import multiprocessing
import random
import time

import pytest
from safetensors.torch import load_file

from relnet.train.log import read_log, read_result
from tests.assertions import assert_close, assert_same_bits
from tests.launching import launch_two
from tests.train.fakes import tiny_model, train_tiny
from tests.train.script import main

SCRIPT = "tests.train.script"


def start(*arguments):
    """The script in a process forked from one that has imported everything, so that its life is mostly training."""
    lives = multiprocessing.get_context("forkserver")
    lives.set_forkserver_preload([SCRIPT, "torch._dynamo"])
    life = lives.Process(target=main, args=[str(argument) for argument in arguments])
    life.start()
    return life


def assert_same_run(folder, expected, steps):
    for name, tensor in load_file(expected / "model.safetensors").items():
        assert_same_bits(load_file(folder / "model.safetensors")[name], tensor, name)
    logs = [[{**line, "seconds": 0} for line in read_log(run / "log.jsonl")] for run in (folder, expected)]
    assert logs[0] == logs[1]
    assert [line["step"] for line in logs[0]] == list(range(1, steps + 1))


def test_a_run_killed_after_10_of_20_updates_is_resumed_to_the_same_bits(tmp_path):
    train_tiny(tmp_path / "whole")
    killed = start(tmp_path / "run", "--kill", 10)
    killed.join()
    assert killed.exitcode == -9
    assert len(read_log(tmp_path / "run" / "log.jsonl")) == 10
    resumed = start(tmp_path / "run")
    resumed.join()
    assert resumed.exitcode == 0
    assert_same_run(tmp_path / "run", tmp_path / "whole", 20)


def test_a_run_that_goes_on_is_not_resumed_a_second_time(tmp_path):
    folder = tmp_path / "run"
    life = start(folder, "--slow", 0.2)
    try:
        while life.is_alive() and not (folder / "log.jsonl").exists():
            time.sleep(0.05)
        with pytest.raises(ValueError, match="run is in use, a run trains in it"):
            train_tiny(folder, resume=True)
    finally:
        life.kill()
        life.join()
    assert life.exitcode == -9
    assert train_tiny(folder, resume=True).steps == 20


@pytest.mark.slow
def test_a_run_killed_30_times_at_random_moments_is_resumed_to_the_same_bits(tmp_path):
    steps, kills, pause = 4000, 30, 0.003
    start(tmp_path / "whole", "--steps", steps).join()
    began = time.perf_counter()
    start(tmp_path / "short", "--steps", 1).join()
    start_up = time.perf_counter() - began
    chance = random.Random(0)
    reached = []
    for _ in range(kills):
        life = start(tmp_path / "run", "--steps", steps, "--slow", pause)
        # At most about 4000 updates fit into 30 lives, so that none comes to the end.
        time.sleep(chance.uniform(0, start_up + steps * pause / kills))
        life.kill()
        life.join()
        assert life.exitcode == -9, f"a life ended by itself after {reached} updates"
        log = tmp_path / "run" / "log.jsonl"
        reached.append(len(read_log(log)) if log.exists() else 0)
    assert len(set(reached)) > kills // 2, f"hardly any life got further: {reached}"
    last = start(tmp_path / "run", "--steps", steps)
    last.join()
    assert last.exitcode == 0
    assert_same_run(tmp_path / "run", tmp_path / "whole", steps)


def test_two_processes_train_as_one_does(tmp_path):
    done = launch_two(SCRIPT, tmp_path / "two", "--dropout", 0, "--accumulate", 2, "--device", "auto")
    assert done.returncode == 0, done.stderr
    train_tiny(tmp_path / "one", tiny_model(dropout=0.0))
    one, two = (load_file(tmp_path / run / "model.safetensors") for run in ("one", "two"))
    for name, tensor in one.items():
        assert_close(two[name], tensor, name=name)
    logs = [read_log(tmp_path / run / "log.jsonl") for run in ("one", "two")]
    assert [line["step"] for line in logs[1]] == list(range(1, 21))
    for alone, together in zip(*logs, strict=True):
        assert together["loss"] == pytest.approx(alone["loss"], rel=1e-5)
        assert together["grad_norm"] == pytest.approx(alone["grad_norm"], rel=1e-4)
        assert (together["accuracy"], together["samples"]) == (alone["accuracy"], alone["samples"])
    result = read_result(tmp_path / "two")
    assert result is not None
    assert result.steps == 20


@pytest.mark.slow
def test_two_processes_that_were_killed_are_resumed_to_the_same_bits(tmp_path):
    """With dropout, whose random numbers are each process's own."""
    assert launch_two(SCRIPT, tmp_path / "whole").returncode == 0
    assert launch_two(SCRIPT, tmp_path / "run", "--kill", 10).returncode != 0
    assert launch_two(SCRIPT, tmp_path / "run").returncode == 0
    assert_same_run(tmp_path / "run", tmp_path / "whole", 20)
