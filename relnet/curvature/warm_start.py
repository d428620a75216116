"""Where the solver ended for each sample, kept from one epoch to the next: the network changes little between two visits."""

import torch
from torch import Tensor

from relnet.curvature.krylov import unit
from relnet.curvature.operators import BatchedOperator


class WarmStart:
    """A table of one vector a sample of a data set, num_samples * m numbers on the operator's device, made at the first call.

    noise: length of the random vector that is added to a remembered one, so that a direction that has overtaken it is found.
    ValueError: num_samples < 1, noise <= 0.

    >>> from relnet.curvature import from_dense, spectral_penalty
    >>> A, table, index = from_dense(torch.eye(3).expand(2, 3, 3)), WarmStart(100), torch.tensor([7, 4])
    >>> loss, result = spectral_penalty(A, v0=table.start(A, index))
    >>> table.keep(index, result.u)
    """

    def __init__(self, num_samples: int, noise: float = 0.1) -> None:
        if num_samples < 1 or not noise > 0:
            raise ValueError(f"num_samples={num_samples}, noise={noise}; give at least one sample and noise > 0")
        self.num_samples, self.noise = num_samples, noise
        self._vectors: Tensor | None = None

    def start(self, A: BatchedOperator, index: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Return v0 (B, m) for samples `index` (B,): near what was kept, random where nothing was.

        ValueError: an index of another shape, numbers outside of the data set, or matrices of another size than before.
        """
        B, m, _ = A.shape
        if index.shape != (B,) or index.dtype != torch.long:
            raise ValueError(f"index is {tuple(index.shape)} {index.dtype}; give the samples' numbers, ({B},) int64")
        # On a GPU it is the indexing below that refuses, where asking would wait for the device.
        if index.device.type == "cpu" and not bool(((index >= 0) & (index < self.num_samples)).all()):
            raise ValueError(
                f"index goes from {int(index.min())} to {int(index.max())}; there are {self.num_samples} samples"
            )
        if self._vectors is None:
            self._vectors = torch.zeros(self.num_samples, m, dtype=A.dtype, device=A.device)
        if self._vectors.shape[1] != m:
            raise ValueError(f"vectors of {m} entries, {self._vectors.shape[1]} before; make another WarmStart")
        fresh = unit(torch.randn(B, m, dtype=A.dtype, device=A.device, generator=generator))
        # Indexing itself would count a negative number from the end.
        rows = torch.where(index < 0, self.num_samples, index)
        # A row of zeros is a sample not seen yet; the length of a start is of no account.
        return self._vectors[rows].to(A.dtype) + self.noise * fresh

    def keep(self, index: Tensor, u: Tensor) -> None:
        """Keep the vectors u (B, m) that the solver found for samples `index`; one that is not finite is forgotten."""
        assert self._vectors is not None, "start comes before keep"
        self._vectors[index] = torch.where(u.isfinite().all(-1, keepdim=True), u.detach(), 0.0).to(self._vectors.dtype)
