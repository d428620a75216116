"""A mixer of one's own sits the exam: relnet exam --model examples/own_mixer.py:build (or: make exam)."""

import torch
from torch import nn


class Retention(nn.Module):
    """Attention without a softmax whose weights fade with distance, each head at its own speed (Sun et al. 2023)."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("fade", (1 - 2.0 ** (-2 - 2 * torch.arange(heads)))[:, None, None])

    def forward(self, x: torch.Tensor, state: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        q, k, v = self.project(x).unflatten(-1, (3, len(self.fade), -1)).permute(2, 0, 3, 1, 4)
        place = torch.arange(x.shape[1], device=x.device)[:, None]
        y = (q @ k.mT * (self.fade ** (place - place.T).clamp(min=0)).tril()) @ v
        if state is not None:
            y = y + q @ state * self.fade ** (place + 1)
        kept = (k * self.fade ** (len(place) - 1 - place)).mT @ v
        state = kept if state is None else kept + state * self.fade ** len(place)
        y = nn.functional.normalize(y, dim=-1) * y.shape[-1] ** 0.5
        return self.out(y.transpose(1, 2).flatten(2)), state


def build(width: int) -> nn.Module:
    return Retention(width)
