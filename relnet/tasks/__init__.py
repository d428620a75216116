"""Tasks: training data, exam items, and how answers are scored. Knows no model."""

from relnet.tasks.scores import Scores
from relnet.tasks.task import IGNORE, Batch, Items, Task

__all__ = ["IGNORE", "Batch", "Items", "Scores", "Task"]
