"""Real processes: killed without warning, or two that train together."""

import multiprocessing
import os
import random
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from relnet.train import read_result
from relnet.train.log import read_log
from tests.assertions import assert_close, assert_same_bits
from tests.train.fakes import train_tiny
from tests.train.script import main

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
ROOT = Path(__file__).parents[2]


def run_script(*arguments, launcher=()):
    command = [sys.executable, "-m", *launcher, "tests.train.script", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False)


def assert_same_run(folder, expected, steps):
    for name, tensor in load_file(expected / "model.safetensors").items():
        assert_same_bits(load_file(folder / "model.safetensors")[name], tensor, name)
    logs = [[{**line, "seconds": 0} for line in read_log(run / "log.jsonl")] for run in (folder, expected)]
    assert logs[0] == logs[1]
    assert [line["step"] for line in logs[0]] == list(range(1, steps + 1))


def test_a_run_killed_after_10_of_20_updates_is_resumed_to_the_same_bits(tmp_path):
    assert run_script(tmp_path / "whole", 20).returncode == 0
    assert run_script(tmp_path / "run", 20, "kill", 10).returncode == -9
    assert not (tmp_path / "run" / "result.json").exists()
    assert run_script(tmp_path / "run", 20).returncode == 0
    assert_same_run(tmp_path / "run", tmp_path / "whole", 20)


@pytest.mark.slow
def test_a_run_killed_30_times_at_random_moments_is_resumed_to_the_same_bits(tmp_path):
    steps, kills = 2000, 30
    # A server that has imported torch once forks each life, so that most of a life is training, saving and loading.
    lives = multiprocessing.get_context("forkserver")
    lives.set_forkserver_preload(["tests.train.script"])

    def start(folder):
        life = lives.Process(target=main, args=(str(folder), str(steps), "slow", "0.003"))
        life.start()
        return life

    start(tmp_path / "whole").join()
    chance = random.Random(0)
    reached = []
    while len(reached) < kills:
        life = start(tmp_path / "run")
        time.sleep(chance.uniform(0.02, 0.6))
        life.kill()
        life.join()
        assert life.exitcode == -9, f"life {len(reached)} ended by itself after {reached} updates"
        log = tmp_path / "run" / "log.jsonl"
        reached.append(len(read_log(log)) if log.exists() else 0)
    last = start(tmp_path / "run")
    last.join()
    assert last.exitcode == 0
    assert len(set(reached)) > kills // 2, f"hardly any life got further: {reached}"
    assert_same_run(tmp_path / "run", tmp_path / "whole", steps)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_two_processes_train_as_one_does(tmp_path):
    launcher = ["accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1"]
    launcher += ["--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", str(free_port()), "-m"]
    done = run_script(tmp_path / "two", 20, "sure", launcher=launcher)
    assert done.returncode == 0, done.stderr
    train_tiny(tmp_path / "one", dropout=0)
    one, two = (load_file(tmp_path / run / "model.safetensors") for run in ("one", "two"))
    for name, tensor in one.items():
        assert_close(two[name], tensor, name=name)
    logs = [read_log(tmp_path / run / "log.jsonl") for run in ("one", "two")]
    assert [line["step"] for line in logs[1]] == list(range(1, 21))
    for alone, together in zip(*logs, strict=True):
        assert together["loss"] == pytest.approx(alone["loss"], rel=1e-5)
        assert together["grad_norm"] == pytest.approx(alone["grad_norm"], rel=1e-4)
        assert (together["accuracy"], together["samples"]) == (alone["accuracy"], alone["samples"])
    assert read_result(tmp_path / "two").steps == 20
