"""The fused CPU kernels: every instruction set against the reference, the same bits whatever the threads do, and loading."""

import os
import subprocess
import sys
import threading

import pytest
import torch
from hypothesis import given, settings

from relnet import ops
from relnet.ops import cpu_library, relation_cpu
from tests.assertions import assert_close, assert_same_bits
from tests.ops.backends import needs_cpu
from tests.ops.oracles import make_mask
from tests.ops.test_relation import CASES, assert_equals_reference, calls, draw

pytestmark = [needs_cpu, pytest.mark.usefixtures("isa")]


def run(source, target, grad=None, **arguments):
    source, target = source.detach().requires_grad_(), target.detach().requires_grad_()
    y = ops.relation_mean(source, target, backend="cpu", **arguments)
    return y.detach(), *torch.autograd.grad(y, (source, target), torch.ones_like(y) if grad is None else grad)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_kernels_equal_the_reference(case):
    assert_equals_reference(*case.inputs(torch.float32), "cpu", 2e-6, **case.arguments())


@pytest.mark.parametrize("case", CASES[3:12] + CASES[17:18], ids=str)
def test_bfloat16_is_storage_only(case):
    assert_equals_reference(*case.inputs(torch.bfloat16), "cpu", 4e-3, **case.arguments())


@given(calls())
@settings(max_examples=60, derandomize=True, deadline=None)
def test_any_mask_window_and_shape_gives_the_definition(call):
    rows, T, S, D, arguments, *_ = call
    source, target = draw(0, rows, T, D, dtype=torch.float32), draw(1, rows, S, D, dtype=torch.float32)
    assert_equals_reference(source, target, "cpu", 1e-5, **arguments)


@pytest.mark.parametrize("D", [1, 3, 16, 17, 60, 192, 3072])
@pytest.mark.parametrize("T", [1, 2, 13, 63, 64, 65])
def test_any_width_and_length(T, D):
    if T * D > 200_000:
        T = 20
    norm = "none" if D < 16 else "exact"
    source, target = draw(0, 1, T, D, dtype=torch.float32), draw(1, 1, T, D, dtype=torch.float32)
    assert_equals_reference(source, target, "cpu", 1e-6, norm=norm)


@pytest.mark.slow
@pytest.mark.parametrize("D", [1, 3, 60, 192])
@pytest.mark.parametrize("T", [257, 509, 1000])
def test_any_width_and_length_to_a_thousand(T, D):
    test_any_width_and_length(T, D)


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_errors_at_initial_and_tripled_weights(scale):
    """q and p of a CausalRN's first block as it is initialised, and with weights three times as large."""
    weights = [0.02 * scale * draw(seed, 192, 192, dtype=torch.float32) for seed in (5, 6)]
    x = ops.plain_norm(draw(7, 2, 130, 192, dtype=torch.float32))
    source, target = (x @ weight for weight in weights)
    grad = draw(8, 2, 130, 192, dtype=torch.float32)
    y, dp, dq = run(source, target, grad)
    source, target = source.double().requires_grad_(), target.double().requires_grad_()
    expected = ops.relation_mean(source, target, backend="reference")
    want_dp, want_dq = torch.autograd.grad(expected, (source, target), grad.double())
    assert_close(y, expected, 5e-7)
    assert_close(dp, want_dp, 1e-6)
    assert_close(dq, want_dq, 1e-6)


@pytest.mark.parametrize("activation", ["exp", "relu", "elu", "gelu"])
@pytest.mark.parametrize("size", [1e-6, 1e-3, 0.3, 3.0, 30.0, 300.0])
def test_activations_at_every_size(activation, size):
    source = size * draw(0, 1, 1, 4000, dtype=torch.float32)
    target = torch.zeros_like(source)
    form = {"norm": "none", "activation": activation, "windows": [1]}
    if activation == "exp":
        source = source.clamp(-700, 700)
    y, dp, _ = run(source, target, **form)
    x = source.double().requires_grad_()
    expected = ops.relation_mean(x, target.double(), backend="reference", **form)
    (slope,) = torch.autograd.grad(expected.sum(), x)
    in_range = (expected.abs() < 3e38) & (expected.abs() > 1e-35)
    # exp turns the rounding of an exponent of 88 into 88 of them.
    tolerance = 1e-5 if activation == "exp" else 1e-6
    assert_close(y[in_range], expected[in_range], tolerance)
    assert_close(dp[in_range], slope[in_range], tolerance)
    if activation == "exp":
        assert bool((y[expected > 3.5e38] == torch.inf).all())
        assert bool((y[expected < 1e-39] < 1e-35).all())


def test_scales_that_are_computed_again_give_the_same_gradients(monkeypatch):
    source, target = draw(0, 2, 70, 40, dtype=torch.float32), draw(1, 2, 70, 40, dtype=torch.float32)
    form = {"heads": 2, "windows": [9, None], "key_mask": make_mask("inner", 2, 70)}
    kept = run(source, target, **form)
    monkeypatch.setattr(relation_cpu, "LONGEST_KEPT_SCALES", 10)
    for got, want in zip(run(source, target, **form), kept, strict=True):
        assert_close(got, want, 1e-6)


@pytest.mark.parametrize("rows", [1, 3])
def test_bits_depend_on_the_threads_asked_for_only(rows, threads):
    source, target = draw(0, rows, 100, 48, dtype=torch.float32), draw(1, rows, 100, 48, dtype=torch.float32)
    exact = None
    for number in (1, 2, 5):
        threads(number)
        first = run(source, target)
        for _ in range(5):
            for got, want in zip(run(source, target), first, strict=True):
                assert_same_bits(got, want)
        exact = exact or first
        for got, want in zip(first, exact, strict=True):
            assert_close(got, want, 1e-6)


@pytest.mark.parametrize(
    ("rows", "length", "heads", "windows", "mask"),
    [
        (1, 700, 1, None, None),
        (1, 130, 3, [2, None, 100], "inner"),
        (3, 200, 1, None, "empty row"),
        (1, 63, 1, None, None),
    ],
)
def test_one_target_is_shared_out_among_threads(rows, length, heads, windows, mask, threads):
    source, target = draw(0, rows, length, 48, dtype=torch.float32), draw(1, rows, 1, 48, dtype=torch.float32)
    form = {"heads": heads, "windows": windows, "key_mask": make_mask(mask, rows, length) if mask else None}
    x, q = source.double().requires_grad_(), target.double().requires_grad_()
    y = ops.relation_mean(x, q, backend="reference", **form)
    expected = (y, *torch.autograd.grad(y.sum(), (x, q)))
    for number in (1, 2, 3, 5):
        threads(number)
        first = run(source, target, **form)
        for got, again, want in zip(first, run(source, target, **form), expected, strict=True):
            assert_same_bits(got, again)
            assert_close(got, want, 1e-6)


def test_calls_from_several_python_threads_give_the_same_bits(threads):
    threads(2)
    source, target = draw(0, 2, 90, 64, dtype=torch.float32), draw(1, 2, 90, 64, dtype=torch.float32)
    expected = run(source, target)
    wrong: list[int] = []

    def call(number: int) -> None:
        for _ in range(5):
            wrong.extend(number for a, b in zip(run(source, target), expected, strict=True) if not torch.equal(a, b))

    workers = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


SCRIPT = """
import os, sys, torch
from relnet import ops
from relnet.ops import cpu_library
torch.set_num_threads(2)
x = torch.randn(2, 60, 32, generator=torch.Generator().manual_seed(0))

def total():
    return ops.relation_mean(x, x, backend="cpu").double().sum().item()

if sys.argv[1] == "fork after use":
    total()
else:
    # PyTorch's threads are there, the library is not loaded.
    torch.randn(300, 300) @ torch.randn(300, 300)
if sys.argv[1].startswith("fork"):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, repr(total()).encode())
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert float(os.read(read, 100)) == total()
print(cpu_library.isa())
"""


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("when", ["fork after use", "fork before use"])
def test_a_forked_child_computes_the_same(isa, when):
    done = python(when, RELNET_ISA=isa)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == isa


def test_an_instruction_set_that_is_not_there_is_refused():
    done = python("plain", RELNET_ISA="mmx")
    assert "'mmx' is unknown or not of this machine; unset RELNET_ISA" in done.stderr
    with pytest.raises(RuntimeError, match="mmx"):
        cpu_library.choose_isa("mmx")


def test_third_derivatives_go_through_the_kernels():
    def penalty_gradient(backend, dtype):
        source = draw(0, 1, 6, 5, dtype=dtype).requires_grad_()
        target = draw(1, 1, 6, 5, dtype=dtype).requires_grad_()
        y = ops.relation_mean(source, target, backend=backend, windows=[4])
        (slope,) = torch.autograd.grad(y.sin().sum(), source, create_graph=True)
        (product,) = torch.autograd.grad((slope * draw(2, 1, 6, 5, dtype=dtype)).sum(), source, create_graph=True)
        return torch.autograd.grad(product.square().sum(), (source, target))

    for got, want in zip(
        penalty_gradient("cpu", torch.float32), penalty_gradient("reference", torch.float64), strict=True
    ):
        assert_close(got, want, 1e-4)


def test_misaligned_and_strided_inputs():
    storage = draw(0, 2 * 30 * 40 + 1, dtype=torch.float32)
    source = storage[1:].view(2, 30, 40)
    target = draw(1, 40, 2, 30, dtype=torch.float32).permute(1, 2, 0)
    mask = make_mask("left", 2, 60)[:, ::2]
    assert_equals_reference(source, target, "cpu", 1e-6, key_mask=mask)


@pytest.mark.slow
def test_a_long_sequence_at_batch_1(isa):
    # Beyond the length to which scales are kept, but for the baseline, which would take minutes there.
    length = 600 if isa == "baseline" else 5000
    source, target = draw(0, 1, length, 64, dtype=torch.float32), draw(1, 1, length, 64, dtype=torch.float32)
    assert_equals_reference(source[:, :2111], target[:, :2111], "cpu", 1e-6)
    y, dp, dq = run(source, target)
    want = ops.relation_mean(source.double(), target[:, -3:].double(), backend="blocked")
    assert_close(y[:, -3:], want, 1e-6)
    assert bool(dp.isfinite().all())
    assert bool(dq.isfinite().all())
