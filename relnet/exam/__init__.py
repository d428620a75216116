"""The exam: evaluates any subject on a task, teacher-forced and free-running. Trains nothing."""

from relnet.exam.answering import answer_questions
from relnet.exam.cache import ResultCache
from relnet.exam.content import model_content, own_code
from relnet.exam.decoding import NaNLogitsError, complete, free_running, teacher_forced
from relnet.exam.evaluate import MODES, Row, evaluate, unasked
from relnet.exam.images import ImageRow, evaluate_images
from relnet.exam.lines import append_row, appending
from relnet.exam.own import OwnItems
from relnet.exam.pretrained import TransformersModel, load_pretrained, load_tokeniser, untrained
from relnet.exam.retrieval import Retrieval, retrieval
from relnet.exam.soundness import check_model
from relnet.exam.states import state_bytes
from relnet.exam.subject import ModelSubject, Subject
from relnet.exam.text import Reader, TextRow, evaluate_text, sample_text
from relnet.exam.user_model import load_own, own_name, own_source

__all__ = [
    "MODES",
    "ImageRow",
    "ModelSubject",
    "NaNLogitsError",
    "OwnItems",
    "Reader",
    "ResultCache",
    "Retrieval",
    "Row",
    "Subject",
    "TextRow",
    "TransformersModel",
    "answer_questions",
    "append_row",
    "appending",
    "check_model",
    "complete",
    "evaluate",
    "evaluate_images",
    "evaluate_text",
    "free_running",
    "load_own",
    "load_pretrained",
    "load_tokeniser",
    "model_content",
    "own_code",
    "own_name",
    "own_source",
    "retrieval",
    "sample_text",
    "state_bytes",
    "teacher_forced",
    "unasked",
    "untrained",
]
