import json
import unicodedata
from collections import Counter

import pytest
import torch

from relnet import exam
from relnet.tasks import ParagraphQuestion, PhoneBook, Tokenised, Tokeniser, read_squad

LETTERS = Tokeniser(lambda text: list(text.encode()), lambda tokens: bytes(tokens).decode(), 256)
# As byte pairs are merged: line ends with what stands before them, and two of them.
MERGED = {256: "\n\n", 257: ".\n", 258: "!\n"}


def merged_decode(tokens):
    return "".join(MERGED.get(token) or chr(token) for token in tokens)


class Knowing:
    """Answers every question with the tokens that it was given, one after another."""

    name, vocab_size, limit = "knowing", 300, None

    def __init__(self, tokens):
        self.tokens, self.asked, self.steps = list(tokens), [], 0

    def start(self, prompts):
        # Each is read once for the size of its state, too.
        self.asked += [bytes(prompt).decode() for prompt in prompts.tolist()]
        return self.say(len(prompts), 0)

    def step(self, tokens, state):
        self.steps += 1
        return self.say(*state)

    def say(self, rows, place):
        logits = torch.zeros(rows, self.vocab_size)
        logits[:, self.tokens[place]] = 1
        return logits, (rows, place + 1)


def questions(*contexts):
    return [ParagraphQuestion(str(n), context, "Who?", ("cat",)) for n, context in enumerate(contexts)]


def test_questions_are_binned_by_the_tokens_of_their_paragraph_bounds_included(tmp_path):
    def paragraph(context, number):
        answer = {"text": "cat", "answer_start": context.index("cat")}
        return {"context": context, "qas": [{"id": str(number), "question": "Who?", "answers": [answer]}]}

    contexts = ["a cat sat", "the cat sat", "a cat and a dog", "the cat and the hat on the mat"]
    path = tmp_path / "squad.json"
    path.write_text(json.dumps({"data": [{"paragraphs": [paragraph(c, n) for n, c in enumerate(contexts)]}]}))
    asked = {"subject": Knowing(b" the Cat!\nand more"), "tokeniser": LETTERS, "questions": read_squad(path)}
    rows = exam.answer_questions(**asked, bins=[9, 11, 12, 30])
    assert [(row.length, row.items, row.exact, row.ended, row.score) for row in rows] == [
        (9, 1, 1, 1, 1.0),
        (11, 1, 1, 1, 1.0),
        (12, 0, 0, 0, None),
        (30, 2, 2, 2, 1.0),
    ]
    assert "no question" in rows[2].note
    asked["subject"] = Knowing(b" cat dog mouse and so on and on and on")
    (row,) = exam.answer_questions(**asked, bins=[30], max_tokens=8)
    assert (row.items, row.exact, row.ended, row.score) == (4, 0, 0, pytest.approx(2 / 3))
    with pytest.raises(ValueError, match="rising numbers"):
        exam.answer_questions(**asked, bins=[30, 9])
    with pytest.raises(ValueError, match="seeds is empty"):
        exam.answer_questions(**asked, bins=[30], seeds=())


@pytest.mark.parametrize("end", [b"\n", [256], [257], [258]], ids=["line", "two lines", "full stop", "exclamation"])
def test_an_answer_ends_at_a_lines_end_whatever_token_writes_it(end):
    spell = Tokeniser(lambda text: list(text.encode()), merged_decode, 300)
    subject = Knowing([*b" cat", *end, *b"Question: what else is there to ask of a cat?"])
    (row,) = exam.answer_questions(subject, spell, questions("a cat"), bins=[30])
    assert (row.exact, row.score, row.ended, row.stopped) == (1, 1.0, 1, 1)
    assert subject.steps == 4


def test_questions_are_drawn_by_seed_from_the_whole_file():
    contexts = [f"a cat {number:03}" for number in range(200)]

    def ask(**options):
        subject = Knowing(b"\n")
        rows = exam.answer_questions(subject, LETTERS, questions(*contexts), bins=[30], num=40, **options)
        return [row.seed for row in rows], [int(prompt[6:9]) for prompt in subject.asked[1:]]

    seeds, first = ask()
    assert seeds == [0]
    assert ask() == (seeds, first)
    assert len(set(first)) == 40
    # Of each quarter of the file about ten.
    assert min(Counter(number // 50 for number in first).values()) >= 4
    seeds, two = ask(seeds=(0, 1))
    assert seeds == [0, 1]
    assert two[:40] == first
    assert set(two[41:]) != set(first)


def test_a_question_that_the_tokenizer_cannot_write_gives_place_to_another_and_is_counted():
    def composed(text):
        return list(unicodedata.normalize("NFC", text).encode())

    spell = Tokeniser(composed, LETTERS.decode, 256)
    held = questions(*["a cat, a cafe\u0301"] * 3, *["a cat"] * 4)
    (row,) = exam.answer_questions(Knowing(b" cat\n"), spell, held, bins=[30], num=4)
    assert (row.items, row.exact) == (4, 4)
    (row,) = exam.answer_questions(Knowing(b" cat\n"), spell, held, bins=[30], num=9)
    assert (row.items, row.note) == (4, "had 3 questions that the tokenizer cannot write")
    (row,) = exam.answer_questions(Knowing(b" cat\n"), spell, held[:3], bins=[30])
    assert (row.items, row.score, row.note) == (0, None, "had 3 questions that the tokenizer cannot write")


@pytest.mark.parametrize("blank", ["", " "])
def test_a_tokenizer_that_writes_a_blank_before_a_line_can_ask_and_stop(blank):
    """As of SentencePiece: a text begins with a blank of its own, which is not decoded at a text's beginning, or is."""
    spell = Tokeniser(
        lambda text: [256, *text.encode()],
        lambda tokens: "".join(blank if token == 256 else chr(token) for token in tokens),
        257,
    )
    assert Tokenised(PhoneBook(), spell).eos == ord("\n")
    (row,) = exam.answer_questions(Knowing256(b" cat\nno"), spell, questions("a cat"), bins=[30])
    assert (row.exact, row.ended) == (1, 1)


class Knowing256(Knowing):
    def start(self, prompts):
        return self.say(len(prompts), 0)


def test_a_tokenizer_that_has_no_line_end_is_refused_by_a_task_that_ends_with_one():
    spell = Tokeniser(lambda text: list(text.replace("\n", "").encode()), LETTERS.decode, 256)
    with pytest.raises(ValueError, match=r"cannot write '\\n', which ends an answer"):
        Tokenised(PhoneBook(), spell)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_tokens": 0}, "max_tokens 0: at least 1"),
        ({"batch_size": 0}, "batch_size 0: at least 1"),
        ({"num": 0}, "num 0: at least 1"),
        ({"bins": [0, 20]}, "bin 0: at least 1"),
        ({"bins": []}, "bins is empty"),
    ],
)
def test_impossible_exams_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        exam.answer_questions(Knowing(b" cat\n"), LETTERS, questions("a cat"), **{"bins": [20], **arguments})


def test_a_tokenizer_of_more_tokens_than_the_model_is_refused_by_the_models_name():
    subject = Knowing(b" cat\n")
    subject.vocab_size = 255
    with pytest.raises(ValueError, match="knowing knows 255 tokens, question-answering needs 256"):
        exam.answer_questions(subject, LETTERS, questions("a cat"), bins=[20])
