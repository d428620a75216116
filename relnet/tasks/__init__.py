"""Tasks: training data, exam items, and how answers are scored. Knows no model."""

from relnet.tasks.copying import Copying
from relnet.tasks.image_decoding import ImageError, image_files, readable_name
from relnet.tasks.images import Images, patches
from relnet.tasks.letters import LETTERS, LetterTask
from relnet.tasks.lookup import DuplicatedNgram, PrefixLookup, SuffixLookup
from relnet.tasks.memory import AssociativeRecall, FlipFlop, InductionHeads, SelectiveCopying
from relnet.tasks.question_answering import ParagraphQuestion, read_squad
from relnet.tasks.scores import Scores, score
from relnet.tasks.task import IGNORE, Batch, Items, Task, TrainingTask
from relnet.tasks.text import Text
from relnet.tasks.text_questions import PhoneBook, Question, TextCopy, TextTask, UniformCopy
from relnet.tasks.token_store import Span
from relnet.tasks.tokenised import Tokenised, Tokeniser
from relnet.tasks.unrepeated import UnrepeatedCopying

# The registry of tasks: what a run's config can hold.
AnyTask = (
    Copying
    | PrefixLookup
    | SuffixLookup
    | DuplicatedNgram
    | UnrepeatedCopying
    | AssociativeRecall
    | SelectiveCopying
    | InductionHeads
    | FlipFlop
    | Text
    | Images
)

__all__ = [
    "IGNORE",
    "LETTERS",
    "AnyTask",
    "AssociativeRecall",
    "Batch",
    "Copying",
    "DuplicatedNgram",
    "FlipFlop",
    "ImageError",
    "Images",
    "InductionHeads",
    "Items",
    "LetterTask",
    "ParagraphQuestion",
    "PhoneBook",
    "PrefixLookup",
    "Question",
    "Scores",
    "SelectiveCopying",
    "Span",
    "SuffixLookup",
    "Task",
    "Text",
    "TextCopy",
    "TextTask",
    "Tokenised",
    "Tokeniser",
    "TrainingTask",
    "UniformCopy",
    "UnrepeatedCopying",
    "image_files",
    "patches",
    "read_squad",
    "readable_name",
    "score",
]
