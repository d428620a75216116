"""A digits classifier with a Jacobian penalty, beside one without: clean accuracy and accuracy under PGD.

pip install 'relnet[attacks,images]' && python examples/regularise_digits.py
"""

import argparse

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

from relnet.curvature import JacobianRegularizer, check_model
from relnet.curvature.attacks import evaluate_attacks


def train(weight: float, epochs: int, x: torch.Tensor, y: torch.Tensor) -> nn.Module:
    """Return a classifier trained on cross-entropy + weight * mean squared spectral norm of the Jacobian."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 128), nn.Softplus(8), nn.Linear(128, 128), nn.Softplus(8), nn.Linear(128, 10)
    )
    if findings := check_model(model, x[:8]):
        raise ValueError("; ".join(map(str, findings)))
    regularizer = JacobianRegularizer(method="golub_kahan", iters=2)
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(128):
            loss = F.cross_entropy(model(x[batch]), y[batch])
            if weight:
                loss = loss + weight * regularizer(model, x[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return model


def main(arguments: list[str] | None = None) -> dict[float, list[float]]:
    """Train and attack; return the accuracies at each weight."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 0.01])
    parser.add_argument("--samples", type=int, default=300, help="test samples to attack")
    given = parser.parse_args(arguments)
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(labels)
    found = {}
    for weight in given.weights:
        model = train(weight, given.epochs, x[:1400], y[:1400])
        results = evaluate_attacks(
            model, x[-given.samples :], y[-given.samples :], eps=(0, 0.05, 0.1), attacks=("pgd",)
        )
        found[weight] = [result.accuracy for result in results]
        print(f"weight {weight}: " + ", ".join(f"{result.accuracy:.1%} at eps {result.eps}" for result in results))
    return found


if __name__ == "__main__":
    main()
