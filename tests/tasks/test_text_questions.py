import json

import numpy as np
import pytest

from relnet.tasks import PhoneBook, TextCopy, Tokenised, Tokeniser, UniformCopy, read_squad
from relnet.tasks.question_answering import exact_match, f1
from tests.tasks import solvers

WORDS = " ".join(f"word{number}" for number in range(300))
CASES = {
    "natural": (TextCopy(WORDS), 20, solvers.third_copy),
    "shuffled": (TextCopy(WORDS, "shuffled"), 20, solvers.third_copy),
    "uniform": (UniformCopy(), 15, solvers.third_copy),
    "phone book": (PhoneBook(), 25, solvers.phone_book),
    "shortest phone book": (PhoneBook(), 3, solvers.phone_book),
}
TASKS = pytest.mark.parametrize(("task", "length", "solve"), CASES.values(), ids=CASES)
BYTES = Tokeniser(lambda text: list(text.encode()), lambda tokens: bytes(tokens).decode(errors="replace"), 256)


def check_items(task, length, solve, num):
    for question in task.questions(num, length, seed=0):
        assert list(solve(question.prompt)) == [question.answer]
        assert task.stop not in question.answer


@TASKS
def test_each_of_500_questions_has_one_right_answer(task, length, solve):
    check_items(task, length, solve, 500)


@pytest.mark.slow
@TASKS
def test_each_of_100_000_questions_has_one_right_answer(task, length, solve):
    check_items(task, length, solve, 100_000)


@TASKS
def test_a_question_is_the_same_in_any_batch_and_another_by_seed(task, length, solve):
    whole = task.questions(30, length, seed=1, index=5)
    assert task.questions(2, length, seed=1, index=9) == whole[4:6]
    assert task.questions(30, length, seed=2, index=5) != whole
    assert len(set(whole)) > 25


def test_a_shuffled_passage_holds_the_words_of_the_natural_one_in_another_order():
    (natural,), (shuffled,) = (
        TextCopy(WORDS, order).questions(1, length=20, seed=0) for order in ("natural", "shuffled")
    )
    natural, shuffled = (question.prompt.split("\n\n")[0].split() for question in (natural, shuffled))
    assert natural != shuffled
    assert sorted(natural) == sorted(shuffled)
    assert [int(word[4:]) for word in natural] == list(range(int(natural[0][4:]), int(natural[0][4:]) + 20))


def test_a_guesser_of_phone_numbers_scores_chance():
    answers = "".join(question.answer.strip() for question in PhoneBook().questions(1000, 3, seed=0))
    guesses = np.random.default_rng(0).integers(0, 10, len(answers))
    right = np.mean([int(a) == g for a, g in zip(answers, guesses, strict=True)])
    assert abs(right - 0.1) < 4 * (0.09 / len(answers)) ** 0.5


def test_what_cannot_be_asked_is_refused(tmp_path):
    with pytest.raises(ValueError, match="the text has 3 words, too few for length 4"):
        TextCopy("one two three").questions(1, 4, seed=0)
    with pytest.raises(ValueError, match="length 1: at least 2 words"):
        UniformCopy().questions(1, 1, seed=0)
    for length in (2, 1601):
        with pytest.raises(ValueError, match=f"length {length}: a phone book has 3 to 1600"):
            PhoneBook().questions(1, length, seed=0)
    with pytest.raises(ValueError, match="'sorted': known ones are natural, shuffled"):
        TextCopy("a b", "sorted")
    with pytest.raises(ValueError, match="no text file to copy from"):
        TextCopy.read(tmp_path / "none.txt")


@TASKS
def test_prompt_and_answer_are_tokenised_apart_and_stop_where_the_stop_text_begins(task, length, solve):
    tokenised = Tokenised(task, Tokeniser(BYTES.encode, BYTES.decode, 256, prefix=(7,)))
    (question,) = task.questions(1, length, seed=3, index=8)
    items = tokenised.items(1, length, seed=3, index=8)
    assert items.prompts[0].tolist() == [7, *question.prompt.encode()]
    assert items.answers[0].tolist() == [*question.answer.encode(), ord("\n")]


def test_a_tokenizer_without_needed_symbols_is_refused_by_name():
    def without(lost):
        return Tokeniser(lambda text: list(text.translate(dict.fromkeys(map(ord, lost))).encode()), BYTES.decode, 256)

    with pytest.raises(ValueError, match="cannot write '7'"):
        Tokenised(PhoneBook(), without("7")).items(20, 3, seed=0)
    with pytest.raises(ValueError, match=r"cannot write .* which ends an answer"):
        Tokenised(PhoneBook(), without("\n"))


SQUAD = {
    "data": [
        {
            "paragraphs": [
                {
                    "context": "The cat sat on the mat.",
                    "qas": [
                        {"id": "q1", "question": "Who sat?", "answers": [{"text": "The cat", "answer_start": 0}] * 2},
                        {"id": "q2", "question": "Who flew?", "answers": [], "is_impossible": True},
                    ],
                }
            ]
        }
    ]
}


def written(tmp_path, content):
    path = tmp_path / "squad.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_squad_file_is_read(tmp_path, mark):
    (question,) = read_squad(written(tmp_path, mark + json.dumps(SQUAD)))
    assert (question.id, question.answers) == ("q1", ("The cat",))
    assert question.prompt == "The cat sat on the mat.\n\nQuestion: Who sat?\nAnswer:"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p.pop("context"), r"data\[0\].paragraphs\[0\]: an object with 'context' wanted"),
        (lambda p: p.update(context=3), r"paragraphs\[0\].context is 3: str wanted"),
        (lambda p: p["qas"][0].pop("id"), r"qas\[0\]: an object with 'id'"),
        (lambda p: p["qas"][0].update(answers=[]), r"qas\[0\].answers is empty"),
        (
            lambda p: p["qas"][0].update(answers=[{"text": "cat", "answer_start": 0}]),
            r"answers\[0\]: 'cat' does not stand at 0",
        ),
        (
            lambda p: p["qas"][0].update(answers=[{"text": "cat", "answer_start": 4 - len(p["context"])}]),
            r"answers\[0\]: 'cat' does not stand at -19",
        ),
        (lambda p: p["qas"].pop(0), "no question with an answer"),
        (lambda p: p.update(qas={}), r"qas is \{\}: list wanted"),
    ],
)
def test_a_malformed_squad_file_is_refused_naming_the_place(tmp_path, change, message):
    content = json.loads(json.dumps(SQUAD))
    change(content["data"][0]["paragraphs"][0])
    with pytest.raises(ValueError, match=message):
        read_squad(written(tmp_path, content))


def test_a_file_that_is_no_json_is_refused(tmp_path):
    for path in (written(tmp_path, "{"), tmp_path / "none.json"):
        with pytest.raises(ValueError, match="is no SQuAD file"):
            read_squad(path)


def test_the_scores_of_squad():
    assert exact_match(" A mat!", ["the Mat"]) == 1
    assert exact_match("mats", ["mat"]) == 0
    assert f1("on the mat", ["mat", "a red mat"]) == pytest.approx(2 / 3)
    assert f1("", ["mat"]) == 0.0
    assert f1("the", ["a"]) == 1.0, "nothing is left of either"


def test_a_text_is_split_into_words_once():
    class Counting(str):
        splits = 0

        def split(self, *args):
            Counting.splits += 1
            return super().split(*args)

    task = TextCopy(Counting(WORDS))
    for index in range(5):
        task.questions(2, length=20, seed=0, index=index)
    assert Counting.splits == 1
    assert task == TextCopy(WORDS)
    assert repr(task) == repr(TextCopy(WORDS))
