"""What PyTorch does around a call: missing gradients, watching modes, negated views, autocast in the backward pass; and odd arguments."""

import sys

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

from relnet import ops
from tests.assertions import assert_close, assert_same_bits
from tests.ops.backends import PAIRWISE


def draw(seed: int, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Watching(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Dropped(torch.autograd.Function):
    """Has no gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, *grads):
        return None


@pytest.mark.parametrize("backend", PAIRWISE)
def test_a_gradient_that_is_not_there_is_passed_on(backend):
    source, target = draw(0, 2, 5, 4).requires_grad_(), draw(1, 2, 5, 4).requires_grad_()
    with Watching():
        y = ops.relation_mean(source, target, backend=backend)
    (Dropped.apply(y).sum() + source.sum()).backward()
    assert_same_bits(source.grad, torch.ones_like(source))


def test_the_norm_goes_through_selective_checkpointing():
    def slope(function):
        x = draw(0, 3, 8).requires_grad_()
        return torch.autograd.grad(function(x).sin().sum(), x)[0]

    def contexts():
        return create_selective_checkpoint_contexts(lambda *call, **named: CheckpointPolicy.MUST_SAVE)

    kept = slope(lambda x: checkpoint(ops.plain_norm, x, use_reentrant=False, context_fn=contexts))
    assert_close(kept, slope(ops.plain_norm), 1e-6)


def test_the_gradient_of_the_norm_keeps_its_digits_inside_autocast():
    def slope(casting):
        x = draw(0, 3, 64).requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=casting):
            return torch.autograd.grad((ops.plain_norm(x) * draw(1, 3, 64)).sum(), x)[0]

    assert_same_bits(slope(True), slope(False))


@pytest.mark.parametrize("norm", ["exact", "none", "approximate"])
def test_a_view_of_opposite_values_is_read_as_it_stands(norm):
    source, target, grad = (draw(seed, 2, 5, 4) for seed in range(3))
    results = []
    for opposite in (torch.neg, torch._neg_view):
        p, q = opposite(source), opposite(target)
        y = ops.relation_mean(p, q, norm=norm)
        leaf = source.clone().requires_grad_()
        results.append((y, *torch.autograd.grad(ops.relation_mean(leaf, target, norm=norm), leaf, opposite(grad))))
    for got, want in zip(*results, strict=True):
        assert_close(got, want, 1e-6)


@pytest.mark.parametrize("backend", PAIRWISE)
@pytest.mark.parametrize("window", [sys.maxsize, 2**64 + 1])
def test_a_window_beyond_any_integer_is_no_limit(backend, window):
    source, target = draw(0, 2, 5, 4), draw(1, 2, 5, 4)
    limited = ops.relation_mean(source, target, windows=[window], backend=backend)
    assert_close(limited, ops.relation_mean(source, target, backend=backend), 1e-6)


@pytest.mark.parametrize("backend", PAIRWISE)
def test_relu_passes_the_gradient_of_nan_on(backend):
    source, target = torch.full((1, 1, 4), torch.nan).requires_grad_(), torch.zeros(1, 1, 4)
    y = ops.relation_mean(source, target, norm="none", activation="relu", backend=backend)
    assert_same_bits(torch.autograd.grad(y.sum(), source)[0], torch.ones(1, 1, 4))
