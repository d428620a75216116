"""The relation op's fused Triton kernels (`relation_triton_kernels.py`) for CUDA GPUs: float32 arithmetic, storage float32 or bfloat16.

Rows come centred, in float32, real sources first: what a target sees, causal, masked and windowed, is then a range of sources, and the
targets that see a source are a range of targets. Forward is one kernel. Backward is another, run twice: a row of targets against its
sources for dq, a row of sources against its targets for dp. Each computes x, s and psi' again and keeps a row's sum in registers, so that
nothing is saved, no two programs add to one number, and a call gives the same bits every time.
Time O(B S T D), memory O(B (S + T) D) and at most 2,048 rows of partial sums where a short input is split to fill the GPU.
Source: docs/mathematics.md, sections 2 to 4.
"""

import os
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from relnet.ops.kernel import Kernel, Settings
from relnet.ops.pairs import Pairs
from relnet.ops.prepare import enter, leave, merge_heads, pair_norm, split_heads

INTERPRETER_VARIABLE = "TRITON_INTERPRET"
# exp on the FMA units, not on the special-function unit: docs/mathematics.md, section 4, has the arithmetic of when that pays.
EXP_ON_FMA = False
# Up to this many channels a pair norm keeps exponents within +-112, where the exp of the FMA units is right.
WIDEST_EXP_ON_FMA = 6000
# Rows below which the columns of a row are split among programs, and the columns that are worth a program. By shapes alone: 2,048 warps
# are a quarter of what a large GPU holds at a time.
ENOUGH_ROWS = 2048
LEAST_COLUMNS = 64


def _interpreted() -> bool:
    return os.environ.get(INTERPRETER_VARIABLE, "").lower() in ("1", "true", "yes", "on", "y")


def _missing() -> str | None:
    if find_spec("triton") is None:
        return "Triton is not installed; pip install 'relnet[triton]'"
    if not torch.cuda.is_available() and not _interpreted():
        return f"no CUDA GPU (torch.cuda.is_available() is False); {INTERPRETER_VARIABLE}=1 interprets the kernels on a CPU, slowly"
    return None


def _refuses(source: Tensor) -> str | None:
    if source.dtype not in (torch.float32, torch.bfloat16):
        return f"tensors are {source.dtype}, the kernels compute in float32"
    if source.device.type != "cuda" and not (source.device.type == "cpu" and _interpreted()):
        return f"tensors are on {source.device}; move them to a GPU (.cuda())"
    return None


class Seen(NamedTuple):
    """The columns first <= c < end that each row sees: (B, H, rows) int32, growing with the row."""

    first: Tensor
    end: Tensor


def _seen(pairs: Pairs, rows: int, heads: int) -> tuple[Seen, Seen]:
    """Return what each target sees of the real sources, by their rank, and which targets see each of them."""
    rank = pairs.rank()
    end = rank[:, pairs.offset :] if pairs.causal else rank[:, -1:].expand(-1, pairs.num_targets)
    end = end[:, None]
    first = end - pairs.counts()
    end = end.expand(first.shape).contiguous()
    at = torch.arange(pairs.num_sources, device=pairs.device).expand(*first.shape[:2], -1).contiguous()
    # Targets up to the first that sees as far as the source, and up to the last that still does.
    of_sources = (torch.searchsorted(bound, at, right=True) for bound in (end, first.contiguous()))

    def whole(x: Tensor) -> Tensor:
        return x.int().expand(rows, heads, -1).contiguous()

    return Seen(whole(first), whole(end)), Seen(*map(whole, of_sources))


class _Entered:
    """What both passes start from: rows in heads, centred, in float32, real sources first; and who sees whom."""

    def __init__(self, source: Tensor, target: Tensor, key_mask: Tensor | None, settings: Settings):
        p, q = enter(source, target, key_mask, settings.norm, settings.heads)
        self.settings = settings
        self.order = None if key_mask is None else torch.argsort(~key_mask, dim=-1, stable=True)
        self.p, self.q = self._permuted(p, self.order).contiguous(), q.contiguous()
        pairs = settings.pairs(source, target, key_mask)
        self.by_target, self.by_source = _seen(pairs, source.shape[0], settings.heads)
        self.counts = (self.by_target.end - self.by_target.first).clamp(min=1)[..., None]

    @staticmethod
    def _permuted(x: Tensor, order: Tensor | None) -> Tensor:
        return x if order is None else torch.take_along_dim(x, order[:, None, :, None], dim=2)

    def in_place(self, x: Tensor) -> Tensor:
        """Return rows of sources to where these stand."""
        return self._permuted(x, None if self.order is None else self.order.argsort(dim=-1))

    def sum(self, kernel: str, rows: Tensor, cols: Tensor, seen: Seen, *grad: Tensor, **choices: bool) -> Tensor:
        """Run a kernel over rows (B, H, R, d) and columns (B, H, C, d) and return its sums, (B, H, R, d)."""
        from relnet.ops import relation_triton_kernels as kernels

        batch, heads, num_rows, d = rows.shape
        num_matrices, num_cols = batch * heads, cols.shape[2]
        splits = max(1, min(ENOUGH_ROWS // max(1, num_matrices * num_rows), -(-num_cols // LEAST_COLUMNS)))
        sums = rows.new_empty(splits, *rows.shape)
        normed = pair_norm(self.settings.norm) == "rms"
        with torch.cuda.device_of(rows):
            kernels.launch(
                getattr(kernels, kernel),
                lambda tile: (num_matrices * -(-num_rows // tile["ROWS"]), splits),
                *(rows, cols, *grad, *seen, sums),
                *(num_matrices, num_rows, num_cols, -(-num_cols // splits)),
                # What a tile is chosen by: both lengths to a power of 2, so that decoding does not measure at every token.
                64 * (num_matrices * num_rows).bit_length() + num_cols.bit_length(),
                D=d,
                ACTIVATION=self.settings.activation,
                NORMED=normed,
                EXP_ON_FMA=EXP_ON_FMA and normed and d < WIDEST_EXP_ON_FMA,
                **choices,
            )
        return sums[0] if splits == 1 else sums.sum(0)


def _forward(
    source: Tensor, target: Tensor, key_mask: Tensor | None, settings: Settings, keep: bool
) -> tuple[Tensor, Tensor]:
    entered = _Entered(source, target, key_mask, settings)
    y = entered.sum("sum_over_pairs", entered.q, entered.p, entered.by_target).div_(entered.counts)
    return merge_heads(y).to(source.dtype).contiguous(), source.new_empty(0, dtype=torch.float32)


def _backward(
    grad: Tensor, source: Tensor, target: Tensor, key_mask: Tensor | None, kept: Tensor, settings: Settings
) -> tuple[Tensor, Tensor]:
    entered = _Entered(source, target, key_mask, settings)
    p, q = entered.p, entered.q
    # Divided before the pairs see it, which also copies it into heads.
    g = (split_heads(grad.to(q.dtype), settings.heads) / entered.counts).contiguous()
    grad_q = entered.sum("gradient_over_pairs", q, p, entered.by_target, g, OF_TARGETS=True)
    grad_p = entered.in_place(entered.sum("gradient_over_pairs", p, q, entered.by_source, g, OF_TARGETS=False))
    grad_source, grad_target = (leave(x, settings.norm, source.dtype).contiguous() for x in (grad_p, grad_q))
    return grad_source, grad_target


KERNEL = Kernel(
    name="triton",
    what="fused Triton kernels",
    forward=_forward,
    backward=_backward,
    kept_shape=lambda source, target, settings, keep: (0,),
    missing=_missing,
    refuses=_refuses,
)
