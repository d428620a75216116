"""How well a model tells classes of images apart: all images held out, each as it is, once."""

import json
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import nn

from relnet.exam.subject import evaluating
from relnet.tasks import Images


@dataclass(frozen=True)
class ImageRow:
    """How well a subject classifies: images asked, those whose class was right, and the sum of -ln p of the right classes."""

    task: str
    subject: str
    images: int
    right: int
    nats: float
    format: int = 1

    @property
    def accuracy(self) -> float:
        """The share whose class is right."""
        return self.right / self.images

    @property
    def loss(self) -> float:
        """Mean cross-entropy in nats."""
        return self.nats / self.images

    def to_json(self) -> str:
        """The row as one line of JSON."""
        return json.dumps({**asdict(self), "test_accuracy": self.accuracy, "test_loss": self.loss})


def evaluate_images(model: nn.Module, task: Images, *, name: str, batch_size: int = 128) -> ImageRow:
    """Ask a model for the class of every image held out.

    model: logits (B, classes) = model(patches); it is in evaluation mode meanwhile, on its own device. name: what the row carries.
    batch_size: images at once. ValueError for NaN logits.
    """
    device = next(model.parameters()).device
    right, nats = 0, 0.0
    with evaluating(model), torch.no_grad():
        for first in range(0, task.num_held_out, batch_size):
            batch = task.held_out(first, batch_size).to(device)
            logits = model(batch.inputs).float()
            right += int((logits.argmax(-1) == batch.targets).sum())
            nats += float(F.cross_entropy(logits, batch.targets, reduction="sum"))
    if nats != nats:
        raise ValueError(f"{name}: its logits are NaN; the weights may be damaged or the training may have diverged")
    return ImageRow(task.name, name, task.num_held_out, right, nats)
