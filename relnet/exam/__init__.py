"""The exam: evaluates any subject on a task, teacher-forced and free-running. Trains nothing."""

from relnet.exam.answering import answer_questions
from relnet.exam.cache import ResultCache, model_content
from relnet.exam.decoding import complete, free_running, teacher_forced
from relnet.exam.evaluate import MODES, Row, evaluate
from relnet.exam.own import OwnItems
from relnet.exam.pretrained import TransformersModel, load_pretrained, load_tokeniser, untrained
from relnet.exam.states import state_bytes
from relnet.exam.subject import ModelSubject, Subject
from relnet.exam.user_model import load_own, own_name, own_source

__all__ = [
    "MODES",
    "ModelSubject",
    "OwnItems",
    "ResultCache",
    "Row",
    "Subject",
    "TransformersModel",
    "answer_questions",
    "complete",
    "evaluate",
    "free_running",
    "load_own",
    "load_pretrained",
    "load_tokeniser",
    "model_content",
    "own_name",
    "own_source",
    "state_bytes",
    "teacher_forced",
    "untrained",
]
