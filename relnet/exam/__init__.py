"""The exam: evaluates any subject on a task, teacher-forced and free-running. Trains nothing."""

from relnet.exam.decoding import complete, free_running, teacher_forced
from relnet.exam.evaluate import MODES, Row, evaluate
from relnet.exam.own import OwnItems
from relnet.exam.subject import ModelSubject, Subject

__all__ = [
    "MODES",
    "ModelSubject",
    "OwnItems",
    "Row",
    "Subject",
    "complete",
    "evaluate",
    "free_running",
    "teacher_forced",
]
