"""Training: one loop, its log, checkpoints that survive a kill, exact resumption. Knows tasks, but no model."""

from relnet.train.checkpoint import load_weights
from relnet.train.config import SAVING, TrainConfig, TrainResult
from relnet.train.engine import choose_device, is_main_process, num_processes
from relnet.train.folder import write_atomically
from relnet.train.gradients import seconds_per_step
from relnet.train.interrupt import StopTrainingError
from relnet.train.log import ClassValidation, StepRecord, Validation
from relnet.train.loop import train
from relnet.train.penalty import CurvaturePenalty, Penalty

__all__ = [
    "SAVING",
    "ClassValidation",
    "CurvaturePenalty",
    "Penalty",
    "StepRecord",
    "StopTrainingError",
    "TrainConfig",
    "TrainResult",
    "Validation",
    "choose_device",
    "is_main_process",
    "load_weights",
    "num_processes",
    "seconds_per_step",
    "train",
    "write_atomically",
]
