"""The Triton backend without a GPU: when it is chosen, what it refuses, its ranges; the kernels interpreted, and compiled ahead."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from relnet import ops
from relnet.ops import relation, relation_triton
from relnet.ops.pairs import Pairs
from tests.assertions import assert_same_bits
from tests.ops.oracles import MASKS, make_mask

ROOT = Path(__file__).parents[2]
X = torch.zeros(1, 3, 4)

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")


def run(*command: str, interpret: bool = True, timeout: int = 600) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_INTERPRET": "1"} if interpret else {}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    return done.stdout


def run_tests(*arguments: str, timeout: int = 600) -> None:
    # The interpreter computes in NumPy, which warns of what IEEE arithmetic gives: inf and NaN.
    options = ("-p", "no:xdist", "-p", "no:cacheprovider", "-W", "ignore::RuntimeWarning")
    run(sys.executable, "-m", "pytest", *options, *arguments, timeout=timeout)


@needs_triton
def test_the_interpreted_kernels_equal_the_reference():
    run_tests("tests/ops/interpreted_triton.py", "-m", "not slow")


@needs_triton
def test_the_interpreted_kernels_follow_the_rules():
    rules = "of_0_and_no_gradient or keeps_the_last or one_channel or not_finite"
    run_tests("tests/ops/test_relation_rules.py", "-k", f"triton and ({rules})")


# Each a process of its own, a few minutes on one core.
EVERY_RULE = {
    "shapes": ("tests/ops/interpreted_triton.py", "-m", "slow"),
    "rules of exp and relu": ("tests/ops/test_relation_rules.py", "-k", "triton and (exp or relu)"),
    "other rules": ("tests/ops/test_relation_rules.py", "-k", "triton and not exp and not relu"),
    "heads": ("tests/ops/test_relation.py", "-k", "may_as_well_not_be_there"),
}


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("chosen", EVERY_RULE.values(), ids=EVERY_RULE.keys())
def test_the_interpreted_kernels_follow_every_rule(chosen):
    run_tests(*chosen, timeout=1800)


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize(
    "choice",
    [
        ("--arch", "80", "--width", "192", "--activation", "exp", "relu"),
        ("--arch", "90", "--width", "64", "192", "--activation", "exp", "elu"),
        ("--arch", "90", "--width", "192", "--exp-on-fma", "--activation", "exp"),
        ("--arch", "90", "--width", "1", "3072", "--activation", "gelu"),
    ],
    ids=" ".join,
)
def test_every_kernel_and_tile_compiles_ahead_and_spills_next_to_nothing(tmp_path, choice):
    lines = tmp_path / "aot.jsonl"
    run(sys.executable, "bench/aot.py", *choice, "--json", str(lines), interpret=False, timeout=1800)
    found = [json.loads(line) for line in lines.read_text().splitlines()]
    assert {str(case["arch"]) for case in found} == {choice[1]}
    assert {case["kernel"] for case in found} == {"sum_over_pairs", "gradient_over_pairs dq", "gradient_over_pairs dp"}
    # A few bytes of gelu's largest tiles, which are tried beside smaller ones.
    assert [case for case in found if case["spilled_bytes"] > (64 if case["activation"] == "gelu" else 0)] == []


def pretend_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(relation_triton, "find_spec", lambda name: object())
    return SimpleNamespace(device=torch.device("cuda", 0), dtype=torch.float32)


def pretend_none(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


def test_auto_takes_it_for_tensors_on_a_gpu_that_it_computes(monkeypatch):
    tensor = pretend_a_gpu(monkeypatch)
    assert relation._choose(tensor, "exp", "exact", None, "auto")[0] == "triton"
    assert relation._choose(tensor, "relu", "none", [2], "auto")[0] == "triton"
    assert relation._choose(tensor, "exp", "none", None, "auto")[0] == "linear"
    tensor.dtype = torch.float64
    name, why = relation._choose(tensor, "exp", "exact", None, "auto")
    assert name == "blocked"
    assert "triton: tensors are torch.float64, the kernels compute in float32" in why


def test_a_machine_without_it_is_told_why(monkeypatch):
    pretend_none(monkeypatch)
    monkeypatch.setattr(relation_triton, "find_spec", lambda name: None)
    assert "triton: Triton is not installed; pip install 'relnet[triton]'" in ops.explain()
    with pytest.raises(ValueError, match=r"backend 'triton' cannot be used: Triton is not installed"):
        ops.relation_mean(X, X, backend="triton")


def test_a_machine_without_a_gpu_is_told_why(monkeypatch):
    pretend_none(monkeypatch)
    monkeypatch.setattr(relation_triton, "find_spec", lambda name: object())
    assert "triton: no CUDA GPU (torch.cuda.is_available() is False)" in ops.explain()
    with pytest.raises(ValueError, match=r"no CUDA GPU .*TRITON_INTERPRET=1.*use backend='auto'"):
        ops.relation_mean(X, X, backend="triton")


def test_cpu_tensors_are_refused_where_there_is_a_gpu(monkeypatch):
    pretend_none(monkeypatch)
    pretend_a_gpu(monkeypatch)
    with pytest.raises(ValueError, match=r"tensors are on cpu; move them to a GPU"):
        ops.relation_mean(X, X, backend="triton")


def test_importing_and_asking_load_no_kernel():
    asking = "ops.explain(torch.zeros(1, 3, 4), torch.zeros(1, 3, 4)); ops.explain()"
    loaded = "assert 'relnet.ops.relation_triton_kernels' not in sys.modules"
    run(sys.executable, "-c", f"import sys, torch; from relnet import ops; {asking}; {loaded}", interpret=False)


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize(
    ("S", "causal", "windows"), [(9, True, (2, 0, 4)), (5, True, ()), (12, False, ()), (1, True, (3, 3, 3))]
)
def test_ranges_hold_the_valid_pairs_seen_from_either_side(kind, S, causal, windows):
    mask = make_mask(kind, 2, 9)
    pairs = Pairs(S, 9, causal, mask, windows, torch.device("cpu"))
    by_target, by_source = relation_triton._seen(pairs, 2, 3)
    invalid = pairs.invalid_by_head()
    valid = torch.ones(2, 3, S, 9, dtype=torch.bool) if invalid is None else ~invalid.expand(2, 3, S, 9)
    order = torch.arange(9).expand(2, 9) if mask is None else torch.argsort(~mask, dim=-1, stable=True)
    packed = torch.take_along_dim(valid, order[:, None, None, :], dim=-1)
    for seen, expected in ((by_target, packed), (by_source, packed.transpose(-1, -2))):
        at = torch.arange(expected.shape[-1])
        assert_same_bits((at >= seen.first[..., None]) & (at < seen.end[..., None]), expected)
        assert bool((seen.first.diff() >= 0).all())
        assert bool((seen.end.diff() >= 0).all())


@needs_triton
@pytest.mark.slow
def test_the_gpu_script_runs_dry(tmp_path):
    lines = tmp_path / "gpu.jsonl"
    run("bash", "bench/gpu.sh", "--python", sys.executable, "--dry-run", "--json", str(lines), interpret=False)
    found = [json.loads(line) for line in lines.read_text().splitlines()]
    assert {line["case"] for line in found} == {"surroundings", "correctness", "relation_mean"}
    assert all(line["passed"] for line in found if line["case"] == "correctness")


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_the_gpu_script_is_clean():
    run("shellcheck", "bench/gpu.sh")
