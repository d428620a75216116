"""The exam: evaluates any subject on a task, teacher-forced and free-running. Trains nothing."""

from relnet.exam.decoding import complete, free_running, teacher_forced
from relnet.exam.evaluate import MODES, Row, evaluate
from relnet.exam.own import OwnItems
from relnet.exam.subject import ModelSubject, Subject
from relnet.exam.text import Reader, TextRow, append_row, evaluate_text, sample_text, state_bytes

__all__ = [
    "MODES",
    "ModelSubject",
    "OwnItems",
    "Reader",
    "Row",
    "Subject",
    "TextRow",
    "append_row",
    "complete",
    "evaluate",
    "evaluate_text",
    "free_running",
    "sample_text",
    "state_bytes",
    "teacher_forced",
]
