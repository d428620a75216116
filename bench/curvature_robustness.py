"""Clean accuracy against robustness: penalties by several methods over weights and seeds, on digits or CIFAR-10; a JSON line a run.

Runs whose line stands in the file already are skipped, so the command may be stopped and given again. The weight is to be chosen on the
validation figures, test figures are to be reported.

    python bench/curvature_robustness.py digits --json results/curvature-digits.jsonl --seeds 0 1 2 3 4
    python bench/curvature_robustness.py FOLDER_OF_CIFAR_PARQUET --json results/curvature-cifar.jsonl --epochs 10 --operator jacobian
"""

import argparse
import io
import json
import platform
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from relnet.curvature import HessianRegularizer, JacobianRegularizer, check_model, hessian, jacobian, spectral_norm
from relnet.curvature.attacks import AttackName, evaluate_attacks, masked_at

METHODS = {
    "hutchinson": {"norm": "frobenius"},
    "power": {"method": "power"},
    "lanczos": {},
    "exact": {"method": "exact"},
}
Split = tuple[Tensor, Tensor]


def digits() -> tuple[Split, Split, Split]:
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32).view(-1, 1, 8, 8) / 16, torch.tensor(labels)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order]
    return (x[:1200], y[:1200]), (x[1200:1500], y[1200:1500]), (x[1500:], y[1500:])


def cifar10(folder: Path) -> tuple[Split, Split, Split]:
    import numpy as np
    import pyarrow.parquet
    from PIL import Image

    def read(name: str, count: int) -> Split:
        table = pyarrow.parquet.read_table(folder / name).slice(0, count).to_pydict()
        pixels = [np.asarray(Image.open(io.BytesIO(image["bytes"]))) for image in table["img"]]
        return torch.tensor(np.stack(pixels)).permute(0, 3, 1, 2).float() / 255, torch.tensor(table["label"])

    (x, y), test = read("cifar10-train.parquet", 10_500), read("cifar10-test.parquet", 1000)
    return (x[:10_000], y[:10_000]), (x[10_000:], y[10_000:]), test


def network(channels: int) -> nn.Module:
    """Softplus and group norm: smooth, and no sample sees another."""
    if channels == 1:
        return nn.Sequential(
            nn.Flatten(), nn.Linear(64, 128), nn.Softplus(8), nn.Linear(128, 128), nn.Softplus(8), nn.Linear(128, 10)
        )
    layers: list[nn.Module] = []
    for inside, outside in ((3, 32), (32, 64), (64, 64)):
        layers += [nn.Conv2d(inside, outside, 3, 2, 1), nn.GroupNorm(8, outside), nn.Softplus(8)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 16, 10))


def adversarial(model: nn.Module, x: Tensor, y: Tensor, eps: float, steps: int = 7) -> Tensor:
    """PGD's examples for training on them: the reference from outside."""
    tried = (x + eps * (2 * torch.rand_like(x) - 1)).clamp(0, 1)
    for _ in range(steps):
        tried.requires_grad_()
        (gradient,) = torch.autograd.grad(F.cross_entropy(model(tried), y), tried)
        tried = (tried.detach() + 2.5 * eps / steps * gradient.sign()).clamp(x - eps, x + eps).clamp(0, 1)
    return tried.detach()


def train(given: argparse.Namespace, run: dict[str, object], data: Split) -> tuple[nn.Module, float]:
    """Return the network and the median seconds of a step."""
    method, weight, is_jacobian = str(run["method"]), float(str(run["weight"])), run["operator"] == "jacobian"
    torch.manual_seed(int(str(run["seed"])))
    x, y = data
    model = network(x.shape[1])
    regularizer = None
    if method in METHODS:
        make = JacobianRegularizer if is_jacobian else HessianRegularizer
        solver = METHODS[method] or {"method": "golub_kahan" if is_jacobian else "lanczos"}
        regularizer = make(iters=given.iters, **solver)
    assert not check_model(model, x[:8])
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    batches = [batch for _ in range(given.epochs) for batch in torch.randperm(len(x)).split(given.batch_size)]
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, len(batches))
    seconds = []
    for batch in batches:
        start = time.perf_counter()
        inputs, labels = x[batch], y[batch]
        if method == "pgd":
            inputs = adversarial(model, inputs, labels, weight)
        loss = F.cross_entropy(model(inputs), labels)
        if regularizer:
            f = model if is_jacobian else lambda x, y=labels: F.cross_entropy(model(x), y, reduction="none")
            loss = loss + weight * regularizer(f, inputs)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        seconds.append(time.perf_counter() - start)
    return model, statistics.median(seconds)


def measure(
    given: argparse.Namespace, model: nn.Module, split: Split, attacks: Sequence[AttackName]
) -> dict[str, object]:
    x, y = (part[: given.attacked] for part in split)
    results = evaluate_attacks(
        model, x, y, eps=given.eps, attacks=attacks, restarts=given.restarts, queries=given.queries
    )
    A = (
        jacobian(model, x)
        if given.operator == "jacobian"
        else hessian(lambda x: F.cross_entropy(model(x), y, reduction="none"), x)
    )
    return {
        "attacks": [[result.attack, result.eps, result.accuracy] for result in results],
        "zero_gradients": results[0].zero_gradients,
        "masked_at": masked_at(results),
        "sigma": float(spectral_norm(A, iters=16).sigma.mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help='"digits", or a folder with cifar10-train.parquet and cifar10-test.parquet')
    parser.add_argument("--json", type=Path, required=True, help="file of finished runs; grows by a line a run")
    parser.add_argument("--operator", choices=("jacobian", "hessian"), default="jacobian")
    parser.add_argument("--methods", nargs="+", choices=("none", "pgd", *METHODS), default=["none", "pgd", *METHODS])
    parser.add_argument("--weights", type=float, nargs="+", default=[0.003, 0.01, 0.03, 0.1])
    parser.add_argument("--train-eps", type=float, nargs="+", default=[0.03, 0.06, 0.1], help="of PGD training")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--iters", type=int, default=4, help="solver steps")
    parser.add_argument("--eps", type=float, nargs="+", default=[0.0, 0.05, 0.1], help="of the attacks")
    parser.add_argument("--attacked", type=int, default=300, help="samples attacked, of validation and of test data")
    parser.add_argument("--restarts", type=int, default=2)
    parser.add_argument("--queries", type=int, default=300)
    given = parser.parse_args()
    training, validation, test = digits() if given.data == "digits" else cifar10(Path(given.data))
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    done = [json.loads(line)["run"] for line in given.json.read_text().splitlines()] if given.json.exists() else []
    data = "digits" if given.data == "digits" else "cifar10"
    names = ("operator", "epochs", "iters", "batch_size", "eps", "attacked", "restarts", "queries")
    settings = {"data": data, **{name: getattr(given, name) for name in names}}
    about = {
        "commit": commit,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "system": platform.platform(),
    }
    for seed in given.seeds:
        for method in given.methods:
            for weight in {"none": [0.0], "pgd": given.train_eps}.get(method, given.weights):
                run = {**settings, "method": method, "weight": weight, "seed": seed}
                if run in done:
                    continue
                start = time.perf_counter()
                model, step = train(given, run, training)
                found = {
                    # Square, which needs no gradient and most of the time, only tells whether PGD can be trusted.
                    "validation": measure(given, model, validation, ["pgd"]),
                    "test": measure(given, model, test, ["pgd", "square"]),
                }
                line = {
                    "run": run,
                    "seconds_a_step": step,
                    "seconds": time.perf_counter() - start,
                    **found,
                    **about,
                }
                with given.json.open("a") as file:
                    file.write(json.dumps(line) + "\n")
                print(
                    f"{method} {weight} seed {seed}: {found['test']['attacks']} {step * 1e3:.1f} ms a step", flush=True
                )


if __name__ == "__main__":
    main()
