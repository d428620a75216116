from pathlib import Path

import pytest
import torch

from relnet.curvature import HessianRegularizer, JacobianRegularizer
from tests.curvature.matrices import network

STATUS = Path("/proc/self/statm")


def resident_bytes():
    return int(STATUS.read_text().split()[1]) * 4096


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="resident memory is read from /proc")
@pytest.mark.parametrize("make", [JacobianRegularizer, HessianRegularizer])
def test_memory_is_flat_over_200_steps(make):
    model = network(300, 50, dtype=torch.float32)
    x = torch.randn(256, 300)
    regularizer = make(iters=3)
    f = model if make is JacobianRegularizer else lambda x: model(x).square().sum(-1)
    optimiser = torch.optim.SGD(model.parameters(), 1e-6)
    for step in range(250):
        if step == 50:
            before = resident_bytes()
        optimiser.zero_grad()
        regularizer(f, x).backward()
        optimiser.step()
    # One graph of a step alone is about 10 MB here.
    assert resident_bytes() - before < 20e6
