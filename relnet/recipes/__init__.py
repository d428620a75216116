"""Recipes: functions that return a whole RunConfig. A docstring says the command, the time and the number to expect, as far as known."""

from relnet.recipes.copying import compare_copying, copying, long_copying, paper_copying
from relnet.recipes.exam import LETTER_TASKS, STANDARD, Equal, candidates, paper
from relnet.recipes.models import LINEAR_MODELS, MODEL_NAMES, ModelName, model
from relnet.recipes.text import compare_text, paper_text, text

__all__ = [
    "LETTER_TASKS",
    "LINEAR_MODELS",
    "MODEL_NAMES",
    "STANDARD",
    "Equal",
    "ModelName",
    "candidates",
    "compare_copying",
    "compare_text",
    "copying",
    "long_copying",
    "model",
    "paper",
    "paper_copying",
    "paper_text",
    "text",
]
