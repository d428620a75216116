import dataclasses
import json
import subprocess
import sys

import pytest
import torch

import relnet
from relnet import exam, nn
from relnet.tasks import Copying, ParagraphQuestion, Tokeniser


def model(seed=0, **changes):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.SequenceModel(nn.ModelConfig(29, 16, 1, 40, nn.AttentionConfig(**changes)))


class Counting(exam.ModelSubject):
    """Counts the items that it is really asked."""

    asked = 0

    def logits(self, ids, first=0):
        self.asked += len(ids)
        return super().logits(ids, first)


class Reading(exam.ModelSubject):
    """Counts the prompts that it really reads."""

    read_prompts = 0

    def start(self, prompts):
        self.read_prompts += len(prompts)
        return super().start(prompts)


def ask(cache, subject, **options):
    asked = {"task": Copying(length=4), "lengths": [3, 4], "num": 10, "modes": ["teacher_forced"], **options}
    return exam.evaluate(subject, cache=cache, **asked)


def test_a_known_result_is_not_asked_for_again_by_the_same_model(tmp_path):
    first = ask(exam.ResultCache(tmp_path / "cache.jsonl"), Counting(model(), name="first"))
    again = Counting(model(), name="again")
    rows = ask(exam.ResultCache(tmp_path / "cache.jsonl"), again)
    assert again.asked == 0
    assert [dataclasses.replace(row, subject="first") for row in rows] == first
    assert {row.subject for row in rows} == {"again"}


def test_an_interrupted_exam_goes_on_where_it_was(tmp_path):
    path = tmp_path / "cache.jsonl"
    whole = ask(exam.ResultCache(path), Counting(model()))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[1][:40])
    subject = Counting(model())
    assert ask(exam.ResultCache(path), subject) == whole
    assert subject.asked == 10
    assert len([line for line in path.read_text().splitlines() if line.endswith("}")]) == 2


@pytest.mark.parametrize(
    ("other", "options"),
    [
        (lambda: model(seed=1), {}),
        (lambda: model(heads=2), {}),
        (lambda: model().double(), {}),
        (model, {"task": Copying(length=4, layout="jelassi2024")}),
        (model, {"task": Copying(length=5)}),
        (model, {"seeds": [1]}),
        (model, {"num": 9}),
        (model, {"modes": ["free_running"]}),
        (model, {"lengths": [5]}),
    ],
    ids=["weights", "heads", "dtype", "layout", "task", "seed", "num", "mode", "length"],
)
def test_another_model_or_question_gets_no_known_answer(tmp_path, other, options):
    cache = exam.ResultCache(tmp_path / "cache.jsonl")
    ask(cache, Counting(model()))
    before = len(cache.path.read_text().splitlines())
    rows = ask(cache, Counting(other()), **options)
    assert len(cache.path.read_text().splitlines()) == before + len(rows)


def test_one_weight_and_one_version_make_another_key(monkeypatch):
    one, other = model(), model()
    assert exam.model_content(one) == exam.model_content(other)
    with torch.no_grad():
        other.head.weight[3, 4] = torch.nextafter(other.head.weight[3, 4], torch.tensor(9.0))
    assert exam.model_content(one) != exam.model_content(other)
    key = exam.ResultCache.key("content", task="t", length=3)
    assert key != exam.ResultCache.key("content", task="t", length=4)
    with monkeypatch.context() as changed:
        changed.setattr(relnet, "__version__", "99")
        assert key != exam.ResultCache.key("content", task="t", length=3)
    assert key == exam.ResultCache.key("content", task="t", length=3)
    monkeypatch.setattr(exam.cache, "_code_of_relnet", lambda: "changed")
    assert key != exam.ResultCache.key("content", task="t", length=3)


class Scaled(torch.nn.Module):
    def __init__(self, **plain):
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)
        vars(self).update(plain)


def test_plain_attributes_are_part_of_a_models_content():
    def content(**plain):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return exam.model_content(Scaled(**plain).eval())

    values = [
        1,
        -1,
        1.5,
        "one",
        None,
        True,
        (1, 2),
        {"a": 1},
        {"a": 2},
        [torch.ones(2)],
        [torch.zeros(2)],
        torch.float32,
    ]
    found = [content(alpha=value) for value in values]
    assert len(set(found)) == len(values)
    assert found == [content(alpha=value) for value in values]
    assert content(alpha=object()) == content(alpha=object()), "an address is no content"


@pytest.mark.parametrize("place", ["mixer.py", "package/layers.py", "package/inner/functions.py", "beside.py"])
def test_the_code_of_a_models_classes_is_part_of_its_content(tmp_path, place):
    """Wherever in the file, in its package or beside it the change is made."""
    files = {
        "mixer.py": "import beside\nfrom package.layers import Layer\nclass Mixer(Layer):\n    pass\n",
        "beside.py": "FACTOR = 1\n",
        "package/__init__.py": "",
        "package/layers.py": "import torch\nfrom package.inner.functions import f\nclass Layer(torch.nn.Module):\n    forward = f\n",
        "package/inner/__init__.py": "",
        "package/inner/functions.py": "def f(self, x):\n    return x\n",
    }
    script = (
        "import mixer\nfrom relnet import exam\nprint(exam.own_code(mixer.Mixer()), exam.model_content(mixer.Mixer()))"
    )
    told = []
    for change in ("", "", "\nCHANGED = 1\n"):
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content + (change if name == place else ""))
        done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
        told.append(done.stdout.split())
    assert told[0] == told[1]
    assert told[0][0] != told[2][0]
    assert told[0][1] != told[2][1]
    assert exam.own_code(model()) == "", "relnet's and PyTorch's are told otherwise"


def test_rows_come_back_as_they_were(tmp_path):
    rows = ask(exam.ResultCache(tmp_path / "cache.jsonl"), Counting(model()))
    kept = [json.loads(line)["row"] for line in (tmp_path / "cache.jsonl").read_text().splitlines()]
    assert kept == [json.loads(row.to_json()) for row in rows]
    assert ask(exam.ResultCache(tmp_path / "cache.jsonl"), Counting(model())) == rows


def test_known_answers_to_paragraph_questions_are_kept_by_questions_tokenizer_and_model(tmp_path):
    torch.manual_seed(0)
    shape = nn.ModelConfig(256, 16, 1, None, nn.AttentionConfig(), positions="none")
    reader = Reading(nn.SequenceModel(shape))
    questions = [
        ParagraphQuestion("1", "a cat sat", "Who?", ("cat",)),
        ParagraphQuestion("2", "cats", "Who?", ("cats",)),
    ]

    def ask_questions(questions=questions, bin=20, identity="bytes", **options):
        spell = Tokeniser(lambda text: list(text.encode()), lambda ids: bytes(ids).decode("latin-1"), 256, (), identity)
        cache = exam.ResultCache(tmp_path / "cache.jsonl")
        before = reader.read_prompts
        (row,) = exam.answer_questions(reader, spell, questions, bins=[bin], cache=cache, **options)
        return row, reader.read_prompts - before

    first, _ = ask_questions()
    assert ask_questions() == (first, 0)
    others = [{"questions": questions[:1]}, {"identity": "others"}, {"identity": ""}, {"bin": 9}, {"max_tokens": 5}]
    assert all(ask_questions(**other)[1] > 0 for other in others)
    with torch.no_grad():
        reader.model.head.weight[0] += 1
    assert ask_questions()[1] > 0
