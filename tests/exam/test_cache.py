import dataclasses
import json
import threading
from types import SimpleNamespace

import pytest
import torch

import relnet
from relnet import exam, nn
from relnet.ops import cpu_library
from relnet.tasks import Copying, ParagraphQuestion, Tokenised, Tokeniser, UniformCopy
from tests.exam.copiers import Copier


def model(seed=0, **changes):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.SequenceModel(nn.ModelConfig(29, 16, 1, 40, nn.AttentionConfig(**changes)))


def of_bytes():
    torch.manual_seed(0)
    return nn.SequenceModel(nn.ModelConfig(256, 16, 1, None, nn.AttentionConfig(), positions="none"))


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


class Sealed(torch.nn.Linear):
    """Holds what no hash can tell from another one's."""

    def __init__(self):
        super().__init__(2, 2)
        self.config, self.lock = nn.ModelConfig(29, 16, 1, 40, nn.AttentionConfig()), threading.Lock()
        self.copier = Copier()

    def forward(self, ids, state=None):
        seen = ids if state is None else torch.cat([state, ids], 1)
        return self.copier.logits(seen)[:, -ids.shape[1] :], seen


def test_a_model_that_cannot_be_told_from_others_is_always_asked(tmp_path):
    cache = exam.ResultCache(tmp_path / "cache.jsonl")
    for _ in range(2):
        subject = Counting(Sealed())
        assert [row.exact for row in ask(cache, subject)] == [10, 10]
        assert subject.asked == 20
    assert not cache.path.exists()


@pytest.mark.parametrize("identity", ["", "bytes"])
def test_a_tokenizer_without_an_identity_gets_no_known_answer(tmp_path, identity):
    reader = Reading(of_bytes())
    for flip in (0, 128):
        # The same letters, and other tokens for them.
        spell = Tokeniser(
            lambda text, flip=flip: [byte ^ flip for byte in text.encode()],
            lambda ids, flip=flip: bytes(token ^ flip for token in ids).decode("latin-1"),
            256,
            (),
            identity and f"{identity} {flip}",
        )
        for _ in range(2):
            before = reader.read_prompts
            asked = {"task": Tokenised(UniformCopy(), spell), "lengths": [3], "num": 4, "modes": ["free_running"]}
            ask(exam.ResultCache(tmp_path / "cache.jsonl"), reader, **asked)
            asked_again = reader.read_prompts - before
        assert (asked_again == 0) == bool(identity)


def test_a_task_that_is_written_by_where_it_lies_gets_no_known_answer(tmp_path):
    class Plain:
        def __init__(self):
            self._task = Copying(length=4)

        def __getattr__(self, name):
            return getattr(self._task, name)

    cache = exam.ResultCache(tmp_path / "cache.jsonl")
    ask(cache, Counting(model()), task=Plain())
    assert not cache.path.exists()


def test_source_and_kernels_are_part_of_relnets_code(tmp_path, monkeypatch):
    package, library = tmp_path / "relnet", tmp_path / "elsewhere" / "librelnet_kernels.so"
    files = [
        package / "__init__.py",
        package / "ops" / "kernels" / "linear.cpp",
        package / "ops" / "kernels" / "simd.h",
        library,
    ]
    for file in files:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("before")
    monkeypatch.setattr(relnet, "__file__", str(files[0]))
    monkeypatch.setattr(cpu_library, "missing", lambda: None)
    monkeypatch.setattr(cpu_library, "library", lambda: SimpleNamespace(_name=str(library)))
    code = exam.cache._code_of_relnet.__wrapped__
    found = [code()]
    for file in files:
        file.write_text("after")
        found.append(code())
    assert len(set(found)) == len(found)
    monkeypatch.setattr(cpu_library, "missing", lambda: "not built")
    assert code() not in found, "then PyTorch computes"


def test_rows_come_back_as_they_were(tmp_path):
    rows = ask(exam.ResultCache(tmp_path / "cache.jsonl"), Counting(model()))
    kept = [json.loads(line)["row"] for line in (tmp_path / "cache.jsonl").read_text().splitlines()]
    assert kept == [json.loads(row.to_json()) for row in rows]
    assert ask(exam.ResultCache(tmp_path / "cache.jsonl"), Counting(model())) == rows


def test_known_answers_to_paragraph_questions_are_kept_by_questions_tokenizer_and_model(tmp_path):
    reader = Reading(of_bytes())
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
