"""Tasks: training data, exam items, and how answers are scored. Knows no model."""

from relnet.tasks.copying import Copying
from relnet.tasks.scores import Scores, score
from relnet.tasks.task import IGNORE, Batch, Items, Task

__all__ = ["IGNORE", "Batch", "Copying", "Items", "Scores", "Task", "score"]
