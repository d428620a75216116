"""Training: one loop, its log, checkpoints that survive a kill, exact resumption. Knows tasks, but no model."""

from relnet.train.checkpoint import load_weights, save_weights
from relnet.train.config import TrainConfig, TrainResult
from relnet.train.engine import choose_device
from relnet.train.log import StepRecord, read_result
from relnet.train.loop import train
from relnet.train.meter import Meter
from relnet.train.optim import learning_rate

__all__ = [
    "Meter",
    "StepRecord",
    "TrainConfig",
    "TrainResult",
    "choose_device",
    "learning_rate",
    "load_weights",
    "read_result",
    "save_weights",
    "train",
]
