"""A network that learns an energy in which coordinates do not interact, drawn to such by a diagonal Hessian.

The energy is sum_i x_i^2, seen through noise. R^2 of the learnt energy, and the share of the Hessian's squares that lie off the diagonal.
"""

import argparse

import torch
from torch import nn

from relnet.curvature import diagonality_penalty, frobenius_penalty, hessian, targets

PENALTIES = {
    "signed": diagonality_penalty,
    # The paper's target; halved, as the expectation over signs is.
    "rows": lambda A: frobenius_penalty(A, targets.row_sums()) / 2,
    "spectral": lambda A: diagonality_penalty(A, "spectral"),
}


def train(weight: float, size: int, steps: int, seed: int, penalty: str = "signed") -> tuple[float, float]:
    """Return R^2 and the off-diagonal share on fresh samples."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(size, 128), nn.Softplus(), nn.Linear(128, 128), nn.Softplus(), nn.Linear(128, 1))
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        x = torch.randn(128, size)
        energy = x.square().sum(-1, keepdim=True)
        loss = (model(x) - energy - 0.1 * torch.randn_like(energy)).square().mean()
        if weight:
            loss = loss + weight * PENALTIES[penalty](hessian(model, x)) / size
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    x = torch.randn(512, size)
    with torch.no_grad():
        energy, H = x.square().sum(-1, keepdim=True), hessian(model, x).to_dense()
        r2 = 1 - (model(x) - energy).square().mean() / energy.var()
        diagonal = H.diagonal(dim1=1, dim2=2).square().sum()
    return float(r2), float(1 - diagonal / H.square().sum())


def main(arguments: list[str] | None = None) -> dict[float, tuple[float, float]]:
    """Train and measure; return (R^2, off-diagonal share) at each weight."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 30.0])
    parser.add_argument("--penalty", choices=PENALTIES, default="signed")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    found = {}
    for weight in given.weights:
        found[weight] = train(weight, given.size, given.steps, given.seed, given.penalty)
        print(f"weight {weight}: R^2 {found[weight][0]:.3f}, off the diagonal {found[weight][1]:.2e}")
    return found


if __name__ == "__main__":
    main()
