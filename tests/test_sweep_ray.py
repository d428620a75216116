"""A sweep on a real local Ray with two workers."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from relnet import cli
from relnet.sweep_ray import sweep_on_ray
from relnet.train.folder import locked
from tests.commands.test_sweep import SMALL
from tests.commands.test_sweep import small as small
from tests.launching import ROOT
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


def test_what_is_finished_counts_after_the_budget_and_what_never_begins_is_left(tmp_path, two_workers, monkeypatch):
    monkeypatch.setattr("relnet.sweep_ray.GRACE", 5)
    done, *others = tiny_runs(seeds=(0, 1, 2, 3))
    swept(tmp_path, [done])
    ray = pytest.importorskip("ray")
    # Both workers' CPUs are taken, so that no run can begin.
    taken = ray.remote(lambda: time.sleep(3600)).options(num_cpus=2).remote()
    began = time.monotonic()
    outcome = sweep_on_ray([*others, done], tmp_path, device="cpu", budget=1.0)
    ray.cancel(taken, force=True)
    assert time.monotonic() - began < 60
    assert (outcome.finished, outcome.failed) == ([tmp_path / done.name], {})
    assert outcome.left == [tmp_path / planned.name for planned in others]


def test_runs_that_no_machine_has_room_for_are_refused(tmp_path, two_workers):
    (planned,) = tiny_runs(seeds=[0])
    greedy = replace(planned, gpus=1)
    with pytest.raises(
        ValueError, match=r"asks for 1 CPU and 1 GPU, which no machine of the Ray cluster has: .*--device cpu"
    ):
        sweep_on_ray([greedy], tmp_path)
    assert sweep_on_ray([greedy], tmp_path, device="cpu").finished == [tmp_path / planned.name]
    # It needs nothing now.
    assert sweep_on_ray([greedy], tmp_path).finished == [tmp_path / planned.name]
    with pytest.raises(ValueError, match="asks for 3 CPU and 0 GPU"):
        sweep_on_ray([replace(planned, cpus=3, lengths=(2,))], tmp_path)


def test_a_run_that_another_process_is_at_is_waited_for(tmp_path, two_workers):
    first, second = tiny_runs()
    waited = []
    with contextlib.ExitStack() as other:
        other.enter_context(locked(tmp_path / first.name))

        def wait(busy):
            waited.append(list(busy))
            other.close()

        outcome = sweep_on_ray(tiny_runs(), tmp_path, device="cpu", lines=tmp_path / "lines.jsonl", on_wait=wait)
    assert waited == [[first]]
    assert outcome.finished == [tmp_path / first.name, tmp_path / second.name]
    assert [line["config"]["train"]["seed"] for line in numbers(tmp_path)] == [0, 1]


def test_the_command_hands_its_runs_to_ray(capsys, tmp_path, two_workers, monkeypatch):
    monkeypatch.setattr("relnet.commands.sweep.TELLING", 0)
    monkeypatch.setattr("relnet.sweep_ray.LOOKING", 0.05)
    assert cli.main(["sweep", "figure4", *SMALL, "--on", "ray", "--out", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert "0 of 2 done: " in captured.err
    assert "has begun" in captured.err
    assert "2 of 2 done" in captured.err
    assert re.search(r"[01] of 2 done, [12] training; all runs: about \S+, without exams", captured.err)
    assert "linear-causalrn" in captured.out


CLUSTER = """
import ray, sys
print(ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False).address_info["gcs_address"], flush=True)
sys.stdin.read()
"""


def test_a_cluster_is_found_by_its_address(tmp_path):
    pytest.importorskip("ray")
    with subprocess.Popen(
        [sys.executable, "-c", CLUSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as head:
        address = head.stdout.readline().strip()
        command = [sys.executable, "-m", "relnet", "sweep", "exam-lookup", "--mixers", "lstm", "--length", "8"]
        command += ["--max-steps", "1", "--on", "ray", "--device", "cpu", "--out", str(tmp_path), "--address"]
        subprocess.run([*command, address], cwd=ROOT, check=True)
        head.stdin.close()
    assert len(list(tmp_path.glob("*/result.json"))) == 2
