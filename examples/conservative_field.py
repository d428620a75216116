"""A network that learns a force field, and is drawn towards conservative ones by a symmetric Jacobian.

The field is the gradient of sum_i sin(x_i), seen through noise. Printed: R^2 of the learnt field, and how asymmetric its Jacobian is.
"""

import argparse

import torch
from torch import nn

from relnet.curvature import jacobian, symmetry_penalty


def train(weight: float, size: int, steps: int, seed: int, norm: str = "frobenius") -> tuple[float, float]:
    """Return R^2 and ||J - J^T||_F^2 / ||J||_F^2 on fresh samples."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(size, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, size))
    optimiser = torch.optim.Adam(model.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        x = torch.randn(128, size)
        loss = (model(x) - x.cos() - 0.1 * torch.randn_like(x)).square().mean()
        if weight:
            loss = loss + weight * symmetry_penalty(jacobian(model, x), norm) / size**2
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    x = torch.randn(512, size)
    with torch.no_grad():
        field, J = x.cos(), jacobian(model, x).to_dense()
        r2 = 1 - (model(x) - field).square().mean() / (field - field.mean(0)).square().mean()
        asymmetry = (J - J.mT).square().sum() / J.square().sum()
    return float(r2), float(asymmetry)


def main(arguments: list[str] | None = None) -> dict[float, tuple[float, float]]:
    """Train and measure; return (R^2, asymmetry) at each weight."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 30.0])
    parser.add_argument("--norm", choices=("frobenius", "spectral"), default="frobenius")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    found = {}
    for weight in given.weights:
        found[weight] = train(weight, given.size, given.steps, given.seed, given.norm)
        print(f"weight {weight}: R^2 {found[weight][0]:.3f}, asymmetry {found[weight][1]:.2e}")
    return found


if __name__ == "__main__":
    main()
