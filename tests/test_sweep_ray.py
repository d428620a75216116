"""A sweep on a real local Ray with two workers."""

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from relnet import cli
from relnet.sweep_ray import sweep_on_ray
from tests.commands.test_sweep import SMALL
from tests.commands.test_sweep import small as small
from tests.sweeping import numbers, swept, tiny_runs

pytestmark = pytest.mark.slow
STEPS = 300


@pytest.fixture(scope="module")
def two_workers():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def kill_who_trains(folder, killed):
    """SIGKILL the worker that holds the lock of the first run that is well under way, once."""
    while not killed:
        for log in folder.glob("*/log.jsonl"):
            if log.read_bytes().count(b"\n") >= 30 and (holder := holder_of(log)):
                os.kill(holder, signal.SIGKILL)
                killed.append(log.parent.name)
                return
        time.sleep(0.01)


def holder_of(path):
    """The process that has the file open."""
    for place in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if place.readlink() == path and int(place.parts[2]) != os.getpid():
                return int(place.parts[2])
        except OSError:
            continue
    return None


def test_every_run_finishes_once_though_a_worker_is_killed(tmp_path, two_workers):
    runs = tiny_runs(seeds=(0, 1, 2), max_steps=STEPS, stop_accuracy=None, checkpoint_every=10)
    folder, killed = tmp_path / "ray", []
    killer = threading.Thread(target=kill_who_trains, args=(folder, killed), daemon=True)
    killer.start()
    outcome = sweep_on_ray(runs, folder, device="cpu", lines=folder / "lines.jsonl")
    killer.join(timeout=5)
    assert killed, "a worker was killed midway"
    assert (len(outcome.finished), outcome.failed, outcome.left) == (3, {}, [])
    found = numbers(folder)
    assert Counter(line["config"]["train"]["seed"] for line in found) == Counter([0, 1, 2])
    for place in outcome.finished:
        assert (place / "log.jsonl").read_text().count("\n") == STEPS
    here = tmp_path / "here"
    swept(here, runs)
    in_order = sorted(found, key=lambda line: line["config"]["train"]["seed"])
    assert in_order == numbers(here)


def test_a_budget_leaves_what_is_not_finished_and_a_fault_is_told(tmp_path, two_workers):
    runs = tiny_runs(seeds=(0, 1), max_steps=100_000, stop_accuracy=None)
    outcome = sweep_on_ray(runs, tmp_path, device="cpu", budget=10.0)
    assert (outcome.finished, outcome.failed, len(outcome.left)) == ([], {}, 2)
    outcome = sweep_on_ray(runs, tmp_path, device="tpu")
    assert all(fault.startswith("ValueError: device 'tpu'") for fault in outcome.failed.values())
    assert len(outcome.failed) == 2


def test_the_command_hands_its_runs_to_ray(capsys, tmp_path, two_workers):
    assert cli.main(["sweep", "figure4", *SMALL, "--on", "ray", "--out", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "2 of 2 done" in captured.err
    assert "linear-causalrn" in captured.out
