"""Error of the spectral norm against products spent, on four spectra and on a trained network's Jacobians and Hessians.

Methods: power iteration, plain Lanczos (on A, or on A A^T where A has no symmetry), rectangular Lanczos, Golub-Kahan; scipy's svds as
the outside reference, with what it spends until it is content. The error is 1 - ||A^T u|| / ||A||_2 of the vector u that a penalty would
use, the mean over samples and starts; the truth is the dense matrix's. Products are those spent to find u.

    python bench/curvature.py --json results/curvature-error.jsonl
"""

import argparse
import datetime
import json
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from scipy.sparse.linalg import LinearOperator, svds
from sklearn.datasets import load_digits
from torch import Tensor, nn

from relnet.curvature import BatchedOperator, extreme_eigs, from_dense, hessian, jacobian, lanczos, spectral_norm
from relnet.curvature.krylov import top_triplet, unit

SPECTRA: dict[str, Callable[[int], Tensor]] = {
    "harmonic": lambda d: 1 / torch.arange(1, d + 1, dtype=torch.float64),
    "geometric": lambda d: 0.9 ** torch.arange(d, dtype=torch.float64),
    "clustered": lambda d: 1 - torch.arange(d, dtype=torch.float64) / (10 * d),
    "uniform": lambda d: torch.linspace(1, 0, d, dtype=torch.float64),
}


def orthogonal(B: int, d: int) -> Tensor:
    return torch.linalg.qr(torch.randn(B, d, d, dtype=torch.float64))[0]


def known(kind: str, spectrum: str, B: int, d: int) -> BatchedOperator:
    """Matrices of a known spectrum: general (3 d / 2, d) for "J", symmetric with alternating signs for "H"."""
    values = SPECTRA[spectrum](d)
    if kind == "J":
        return from_dense(orthogonal(B, 3 * d // 2)[:, :, :d] @ torch.diag(values) @ orthogonal(B, d))
    basis = orthogonal(B, d)
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(d)[:d]
    return from_dense(basis @ torch.diag(values * signs) @ basis.mT, "symmetric")


def trained(B: int) -> dict[str, BatchedOperator]:
    """The logits' and a hidden layer's Jacobian and the loss's Hessian of a digits classifier, one network, float64."""
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images) / 16, torch.tensor(labels)
    body = nn.Sequential(nn.Linear(64, 96), nn.Softplus(8), nn.Linear(96, 96), nn.Softplus(8)).double()
    model = nn.Sequential(body, nn.Linear(96, 10).double())
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(15):
        for batch in torch.randperm(1400).split(128):
            loss = F.cross_entropy(model(x[batch]), y[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    x, y = x[-B:], y[-B:]
    return {
        "J, logits": jacobian(model, x),
        "J, hidden": jacobian(body, x),
        "H, loss": hessian(lambda x: F.cross_entropy(model(x), y, reduction="none"), x),
    }


def plain_lanczos(A: BatchedOperator, iters: int, v0: Tensor) -> Tensor:
    """The Ritz vector of the square part of T."""
    if A.symmetry == "symmetric":
        return extreme_eigs(A, "LM", 1, iters, v0=v0).vectors[:, 0]
    space = lanczos(lambda u: A.matvec(A.rmatvec(u)), v0, iters)
    n = space.projected.shape[2]
    top = torch.linalg.eigh(space.projected[:, :n])[1][..., -1]
    return unit((top[:, None] @ space.basis[:, :n])[:, 0])


def rectangular_lanczos(A: BatchedOperator, iters: int, v0: Tensor) -> Tensor:
    """The left vector of T."""
    if A.symmetry == "symmetric":
        return spectral_norm(A, "lanczos", iters, v0=v0).u
    # Without the certificate of spectral_norm, which spends two products more.
    space = lanczos(lambda u: A.matvec(A.rmatvec(u)), v0, iters)
    return unit((top_triplet(space.projected)[1][:, None] @ space.basis)[:, 0])


def svds_reference(dense: Tensor, v0: Tensor) -> tuple[float, float]:
    """scipy's value (ARPACK) and the products with the matrix or its transpose that it spent."""
    spent = 0

    def counted(matrix: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        def product(v: np.ndarray) -> np.ndarray:
            nonlocal spent
            spent += 1
            return matrix @ v

        return product

    matrix = dense.numpy()
    operator = LinearOperator(matrix.shape, matvec=counted(matrix), rmatvec=counted(matrix.T), dtype=np.float64)
    value = svds(operator, 1, v0=v0.numpy()[: min(matrix.shape)], return_singular_vectors=False)[0]
    return float(value), spent


def measure(A: BatchedOperator, iters: list[int], starts: int) -> list[dict[str, object]]:
    """Return a row for each method and number of steps."""
    with torch.no_grad():
        dense = A.to_dense()
    true = torch.linalg.matrix_norm(dense, 2)
    is_symmetric = A.symmetry == "symmetric"
    methods: dict[str, Callable[[int, Tensor], Tensor]] = {
        "power": lambda n, v0: spectral_norm(A, "power", n, v0=v0).u,
        "plain Lanczos": lambda n, v0: plain_lanczos(A, n, v0),
        "rectangular Lanczos": lambda n, v0: rectangular_lanczos(A, n, v0),
        "Golub-Kahan": lambda n, v0: spectral_norm(A, "golub_kahan", n, v0=v0).u,
    }
    if is_symmetric:
        del methods["Golub-Kahan"]
    rows: list[dict[str, object]] = []
    v0 = [torch.randn(A.shape[:2], dtype=torch.float64) for _ in range(starts)]
    for n in iters:
        for name, method in methods.items():
            ratios = torch.stack([(dense.mT @ method(n, v)[..., None])[..., 0].norm(dim=-1) / true for v in v0])
            rows.append({"method": name, "products": n if is_symmetric else 2 * n, "error": float(1 - ratios.mean())})
    found = torch.tensor([svds_reference(matrix, v) for matrix, v in zip(dense[:8], v0[0], strict=False)])
    error, spent = float((1 - found[:, 0] / true[:8]).abs().mean()), float(found[:, 1].mean())
    rows.append({"method": "svds", "products": spent, "error": error})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, default=50)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--starts", type=int, default=4)
    parser.add_argument("--iters", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="append a JSON line a case to this file")
    given = parser.parse_args()
    torch.manual_seed(given.seed)
    cases = {f"{kind}, {name}": known(kind, name, given.samples, given.size) for kind in "JH" for name in SPECTRA}
    cases |= trained(given.samples)
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    about = {
        "date": datetime.date.today().isoformat(),
        "commit": commit or None,
        "torch": torch.__version__,
        "system": platform.platform(),
    }
    for name, A in cases.items():
        rows = measure(A, given.iters, given.starts)
        *rows_of_ours, reference = rows
        products = sorted({int(str(row["products"])) for row in rows_of_ours})
        print(f"\n{name}, {A.shape[1]} x {A.shape[2]}; mean error after {products} products")
        for method in dict.fromkeys(row["method"] for row in rows_of_ours):
            errors = [row["error"] for row in rows_of_ours if row["method"] == method]
            print(f"{method!s:20} " + " ".join(f"{error:9.1e}" for error in errors))
        print(f"svds                 {reference['error']:9.1e} after {reference['products']:.0f}")
        if given.json:
            with given.json.open("a") as file:
                settings = {key: value for key, value in vars(given).items() if key != "json"}
                file.write(json.dumps({"case": name, "shape": A.shape, **settings, "rows": rows, **about}) + "\n")


if __name__ == "__main__":
    main()
