"""Tasks: training data, exam items, and how answers are scored. Knows no model."""

from relnet.tasks.copying import Copying
from relnet.tasks.scores import Scores, score
from relnet.tasks.task import IGNORE, Batch, Items, Task, TrainingTask
from relnet.tasks.text import Text
from relnet.tasks.token_store import Span

# The registry of tasks: what a run's config can hold.
AnyTask = Copying | Text

__all__ = ["IGNORE", "AnyTask", "Batch", "Copying", "Items", "Scores", "Span", "Task", "Text", "TrainingTask", "score"]
