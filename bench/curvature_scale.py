"""Does the spectral norm hold as J shrinks, which is what a penalty makes it do? Least ratio ||J^T u|| / ||J||_2 over samples, by scale.

Matrices of 10 x 64 normal entries times the scale, float32, n = 10 steps (the rank); a JSON line a seed, scale and method. "absolute test"
is Lanczos on J J^T as the paper's algorithm 1 has it: without reorthogonalisation, and with a new random vector where beta < 1e-5.

    python bench/curvature_scale.py --json results/curvature-scale.jsonl
"""

import argparse
import json
import subprocess
from pathlib import Path

import torch
from torch import Tensor

from relnet.curvature import from_dense, spectral_norm

SCALES = (1.0, 1e-3, 1e-6, 1e-12)
STEPS, SAMPLES, ROWS, COLUMNS = 10, 200, 10, 64
BREAKDOWN = 1e-5


def absolute_test(J: Tensor, v0: Tensor, steps: int) -> Tensor:
    """The top Ritz vector, (B, m)."""
    B, m = v0.shape
    basis, T = J.new_zeros(B, steps, m), J.new_zeros(B, steps, steps)
    v, before, beta = v0 / v0.norm(dim=-1, keepdim=True), torch.zeros_like(v0), J.new_zeros(B)
    for k in range(steps):
        basis[:, k] = v
        w = (J @ (v[:, None] @ J).mT)[..., 0] - beta[:, None] * before
        alpha = (w * v).sum(-1)
        T[:, k, k] = alpha
        w = w - alpha[:, None] * v
        beta = w.norm(dim=-1)
        if k + 1 < steps:
            T[:, k, k + 1] = T[:, k + 1, k] = beta
        before, fresh = v, torch.randn_like(v)
        v = torch.where((beta < BREAKDOWN)[:, None], fresh, w)
        v = v / v.norm(dim=-1, keepdim=True)
    top = torch.linalg.eigh(T)[1][..., -1]
    u = (top[:, None] @ basis)[:, 0]
    return u / u.norm(dim=-1, keepdim=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="append the lines to this file")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    given = parser.parse_args()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False).stdout.strip()
    for scale in SCALES:
        for seed in given.seeds:
            torch.manual_seed(seed)
            J, v0 = scale * torch.randn(SAMPLES, ROWS, COLUMNS), torch.randn(SAMPLES, ROWS)
            vectors = {
                "Golub-Kahan": spectral_norm(from_dense(J), "golub_kahan", STEPS, v0=v0).u,
                "rectangular Lanczos": spectral_norm(from_dense(J), "lanczos", STEPS, v0=v0).u,
                "absolute test": absolute_test(J, v0, STEPS),
            }
            for method, u in vectors.items():
                # In float64: the square of 1e-12 has its place in float32, that of its products' rounding has not.
                exact = J.double()
                found = (u.double()[:, None] @ exact)[:, 0].norm(dim=-1)
                ratio = float((found / torch.linalg.matrix_norm(exact, 2)).min())
                print(f"scale {scale:g} seed {seed} {method}: {ratio:.6f}")
                if given.json:
                    line = {"scale": scale, "seed": seed, "method": method, "least_ratio": ratio, "steps": STEPS}
                    with given.json.open("a") as file:
                        file.write(json.dumps(line | {"commit": commit, "torch": torch.__version__}) + "\n")


if __name__ == "__main__":
    main()
