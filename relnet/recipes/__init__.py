"""Recipes: functions that return a whole RunConfig. A docstring says the command, the time and the number to expect, as far as known."""

from relnet.recipes.copying import compare_copying, copying, long_copying, paper_copying
from relnet.recipes.exam import LETTER_TASKS, STANDARD, Equal, candidates, paper
from relnet.recipes.figures import figure2, figure3, figure4, figure6, figure7, figure8, heads_lr
from relnet.recipes.images import IMAGE_MODELS, ImageModelName, compare_images, images, paper_images
from relnet.recipes.models import LINEAR_MODELS, MODEL_NAMES, ModelName, model
from relnet.recipes.repeat_after_me import exam_copying, exam_lengths, exam_lookup
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
    "exam_copying",
    "exam_lengths",
    "exam_lookup",
    "figure2",
    "figure3",
    "figure4",
    "figure6",
    "figure7",
    "figure8",
    "heads_lr",
    "images",
    "long_copying",
    "model",
    "paper",
    "paper_copying",
    "paper_images",
    "paper_text",
    "text",
]
