"""Recipes: functions that return a whole RunConfig. A docstring says the command, the time and the number to expect, as far as known."""

from relnet.recipes.copying import compare_copying, copying, long_copying, paper_copying
from relnet.recipes.exam import LETTER_TASKS, STANDARD, Equal, candidates, paper
from relnet.recipes.images import IMAGE_MODELS, ImageModelName, compare_images, images, paper_images
from relnet.recipes.models import LINEAR_MODELS, MODEL_NAMES, ModelName, model
from relnet.recipes.text import compare_text, paper_text, text

__all__ = [
    "IMAGE_MODELS",
    "LETTER_TASKS",
    "LINEAR_MODELS",
    "MODEL_NAMES",
    "STANDARD",
    "Equal",
    "ImageModelName",
    "ModelName",
    "candidates",
    "compare_copying",
    "compare_images",
    "compare_text",
    "copying",
    "images",
    "long_copying",
    "model",
    "paper",
    "paper_copying",
    "paper_images",
    "paper_text",
    "text",
]
