import sys
from pathlib import Path

import pytest
import torch

from relnet import exam, nn, recipes
from relnet.tasks import Copying
from tests.assertions import assert_close

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_mixer.py"
HEAD = "import torch\nfrom torch import nn\n\n"
RECURRENT = """
class Cell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = nn.GRU(width, width, batch_first=True)

    def forward(self, x, state=None):
        return self.cell(x, state)


def build(width):
    return Cell(width)
"""
STATELESS = """
class Mean(nn.Module):
    def forward(self, x):
        return x.cumsum(1) / (1 + torch.arange(x.shape[1]))[:, None]


def build(width):
    return Mean()
"""
WHOLE = """
class Whole(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.embedding, self.cell = nn.Embedding(vocab_size, 8), nn.GRU(8, vocab_size, batch_first=True)

    def forward(self, ids):
        return self.cell(self.embedding(ids))[0]


def build(vocab_size, context):
    return Whole(vocab_size)
"""


def module(answer, *parameters):
    """A mixer that answers so."""
    head = f"class Mine(nn.Module):\n    def forward({', '.join(['self', 'x', *parameters])}):\n"
    return f"{head}        return {answer}\ndef build(width):\n    return Mine()\n"


def built(tmp_path, code, vocab_size=29):
    path = tmp_path / "mine.py"
    path.write_text(HEAD + code)
    return exam.load_own(f"{path}:build", vocab_size, context=64, width=16, depth=2)


def test_the_example_is_short_and_sits_the_exam():
    assert len([line for line in EXAMPLE.read_text().splitlines() if line.strip()]) <= 26
    torch.manual_seed(0)
    subject = exam.ModelSubject(exam.load_own(f"{EXAMPLE}:build", 29, context=64, width=16, depth=2))
    rows = exam.evaluate(subject, Copying(length=4), lengths=[4, 40], num=3)
    assert [row.items for row in rows] == [3, 3, 0, 0]


@pytest.mark.parametrize(
    "code", [EXAMPLE.read_text(), STATELESS, RECURRENT, WHOLE], ids=["example", "stateless", "mixer", "model"]
)
def test_a_users_module_gives_the_same_logits_at_once_and_step_by_step(tmp_path, code):
    torch.manual_seed(0)
    subject = exam.ModelSubject(built(tmp_path, code))
    ids = torch.randint(0, 29, (3, 9), generator=torch.Generator().manual_seed(1))
    whole = subject.logits(ids)
    logits, state = subject.start(ids[:, :4])
    parts = [logits]
    for token in ids[:, 4:].T:
        logits, state = subject.step(token, state)
        parts.append(logits)
    assert_close(torch.stack(parts, dim=1), whole[:, 3:])


def test_what_a_module_without_a_state_is_given_again_counts_as_its_state(tmp_path):
    ids = torch.zeros(1, 10, dtype=torch.int64)
    # Two blocks of inputs of 16 float32; one GRU vector of 16 a block; four heads of 4 x 4 a block; ten int64 tokens.
    example = EXAMPLE.read_text()
    for code, size in (
        (STATELESS, 2 * 10 * 16 * 4),
        (example, 2 * 4 * 4 * 4 * 4),
        (RECURRENT, 2 * 16 * 4),
        (WHOLE, 10 * 8),
    ):
        assert exam.state_bytes(exam.ModelSubject(built(tmp_path, code)), ids) == size


def test_what_the_user_initialised_stays_as_it_is(tmp_path):
    code = "def build(width):\n    layer = nn.Linear(width, width)\n    nn.init.constant_(layer.weight, 3.0)\n    return layer\n"
    model = built(tmp_path, code)
    assert (model.mixers[1].module.weight == 3).all()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def build(width):\n    return nn.Linear(width, 7)\n", r"made \(2, 8, 7\) of x \(2, 8, 16\); the same shape"),
        (
            "def build(vocab_size, context):\n    return nn.Embedding(vocab_size, 5)\n",
            r"\(2, 8, 5\).*logits \(2, 8, 29\) wanted",
        ),
        (
            "def build(width):\n    return nn.LSTM(width, width, batch_first=True, bidirectional=True)\n",
            r"made \(2, 8, 32\)",
        ),
        (
            "class Ahead(nn.Module):\n    def forward(self, x):\n        return x.flip(1)\ndef build(width):\n    return Ahead()\n",
            "later token",
        ),
        ("def build(size):\n    return None\n", r"takes size; write build\(width\)"),
        ("def build(width, size):\n    return None\n", r"takes size, width; write build\(width\)"),
        ("def other(width):\n    return None\n", "has no function 'build'"),
        ("def build(width):\n    pass\n", r"mine\.py:build returned NoneType; a torch\.nn\.Module wanted"),
        ("def build(width)\n", r"mine\.py:build: the file cannot be run: SyntaxError: expected ':'"),
        ("import nowhere_at_all\n", r"cannot be run: ModuleNotFoundError: No module named .* \(line 4\)"),
        ("raise SystemExit(2)\n", r"the file cannot be run: SystemExit: 2 \(line 4\)"),
        ("def build(width):\n    return {}[width]\n", r"it cannot be built: KeyError: 16 \(line 5\)"),
        ("def build(width):\n    raise ValueError('odd')\n", r"it cannot be built: ValueError: odd \(line 5\)"),
        (module("torch.einsum('btw,w->bt', x, x)"), r"the model cannot sit an exam: RuntimeError: .*\(line 6\)"),
        (module("x / 0 * 0"), r"mine\.py:build: the model cannot sit an exam: an output is NaN before any training"),
        (module("nn.functional.dropout(x, 0.5)"), "an answer differs from one time to the next"),
        (module("x, state, 1", "state=None"), r"so it must return two things, \(output, state\)"),
        (module("x", "state=None"), r"so it must return two things"),
        (
            "class Idle(nn.Module):\n    pass\ndef build(vocab_size, context):\n    return Idle()\n",
            "has no parameters that require a gradient",
        ),
        (
            "def build(vocab_size, context):\n    return nn.Embedding(vocab_size, vocab_size).requires_grad_(False)\n",
            "so there is nothing to train",
        ),
    ],
)
def test_a_module_that_cannot_sit_the_exam_is_refused(tmp_path, code, message):
    with pytest.raises(ValueError, match=message):
        built(tmp_path, code)


def test_a_file_that_is_not_there_is_said(tmp_path):
    for spec in ("nowhere.py:build", "nowhere.py", f"{EXAMPLE}"):
        with pytest.raises(ValueError, match=r"no such file; write --model FILE\.py:FUNCTION"):
            exam.load_own(spec, 29, 64)


AHEAD_LATER = """
class Ahead(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.out = nn.Linear(width, width)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x):
        return self.out(SEEN)


def build(width):
    return Ahead(width)
"""
STATES = """
class Cell(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell, self.out = nn.GRU(width, width, batch_first=True), nn.Linear(width, width)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, state=None):
        y, new = self.cell(x, state)
        return self.out(y), GIVEN


def build(width):
    return Cell(width)
"""


@pytest.mark.parametrize(
    "seen",
    [
        "x.flip(1)",
        "x.roll(-1, 1)",
        "x.mean(1, keepdim=True).expand_as(x)",
        # Far ahead, and in pieces of eight.
        "torch.cat([x[:, 30:], 0 * x[:, :30]], dim=1)",
        "x.unflatten(1, (-1, 8)).mean(2).repeat_interleave(8, 1) if x.shape[1] % 8 == 0 else x",
    ],
)
def test_a_mixer_that_starts_at_zero_and_looks_ahead_is_found_out(tmp_path, seen):
    with pytest.raises(ValueError, match="an output changes with a later token"):
        built(tmp_path, AHEAD_LATER.replace("SEEN", seen))


@pytest.mark.parametrize("seen", ["x.mean(0, keepdim=True).expand_as(x)", "x.flip(0)"])
def test_a_mixer_that_starts_at_zero_and_sees_other_rows_is_found_out(tmp_path, seen):
    with pytest.raises(ValueError, match="an output changes with another row of the batch"):
        built(tmp_path, AHEAD_LATER.replace("SEEN", seen))


def test_a_mixer_that_starts_at_zero_and_does_not_look_ahead_is_taken(tmp_path):
    built(tmp_path, AHEAD_LATER.replace("SEEN", "x.cumsum(1)"))
    built(tmp_path, STATES.replace("GIVEN", "new"))


@pytest.mark.parametrize("given", ["0 * new", "new if state is None else state", "new if x.shape[1] > 1 else state"])
def test_a_state_that_contradicts_reading_at_once_is_found_out(tmp_path, given):
    with pytest.raises(ValueError, match="read in pieces, a text gives other outputs"):
        built(tmp_path, STATES.replace("GIVEN", given))


def test_an_output_that_changes_with_how_much_is_read_is_found_out(tmp_path):
    with pytest.raises(ValueError, match="read in pieces, a text gives other outputs"):
        built(tmp_path, AHEAD_LATER.replace("SEEN", "x.cumsum(1) / x.shape[1]"))


def test_what_a_module_cannot_read_is_found_out_at_the_length_of_the_exam(tmp_path):
    with pytest.raises(ValueError, match=r"RuntimeError: .*\(line 6\)"):
        built(tmp_path, module("x + torch.zeros(1, 20, 16)[:, : x.shape[1]]"))


@pytest.mark.parametrize("take", [exam.check_model, exam.ModelSubject])
def test_a_mixer_alone_is_told_how_it_becomes_a_model(take):
    other = torch.nn.Linear(16, 16)
    other.config = {"vocab_size": 29}
    for alone in (torch.nn.Linear(16, 16), other):
        with pytest.raises(
            ValueError, match=r"^\w+ has no config\.vocab_size.*exam\.load_own\(.*\) makes and checks one$"
        ):
            take(alone)


@pytest.mark.parametrize("kind", [nn.CausalRNConfig, nn.LinearCausalRNConfig, nn.LSTMConfig, nn.AttentionConfig])
def test_a_check_leaves_a_model_as_it_was(kind):
    torch.manual_seed(0)
    model = nn.SequenceModel(nn.ModelConfig(29, 16, 2, 64, kind()))
    model.blocks[0].eval()
    content, drawn = exam.model_content(model), torch.get_rng_state()
    exam.check_model(model, 64)
    assert exam.model_content(model) == content
    assert torch.equal(torch.get_rng_state(), drawn)
    assert model.training
    assert not model.blocks[0].training


def test_a_recurrence_that_amplifies_rounding_is_not_taken_for_one_that_looks_ahead(tmp_path):
    # By a Fourier transform, which rounds at every position by what stands at the largest.
    code = """
class Growing(nn.Module):
    def forward(self, x):
        size, place = x.shape[1], torch.arange(x.shape[1])
        kernel = 1.2 ** place.to(x.dtype)
        turned = torch.fft.rfft(x, n=2 * size, dim=1) * torch.fft.rfft(kernel, n=2 * size)[:, None]
        return torch.fft.irfft(turned, n=2 * size, dim=1)[:, :size]


def build(width):
    return Growing()
"""
    built(tmp_path, code)


def test_a_file_may_use_dataclasses_and_what_stands_beside_it(tmp_path):
    text = """from __future__ import annotations

from dataclasses import dataclass

import helper
from torch import nn


@dataclass
class Settings:
    width: int


def build(width):
    import late

    return nn.Linear(Settings(width).width, helper.SIZE * late.SIZE)
"""
    for folder, size in (("one", 16), ("two", 8)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "mine.py").write_text(text)
        (tmp_path / folder / "helper.py").write_text(f"SIZE = {size}\n")
        (tmp_path / folder / "late.py").write_text(f"SIZE = {16 // size}\n")
    path = list(sys.path)
    for folder in ("one", "two", "one"):
        exam.load_own(f"{tmp_path / folder / 'mine.py'}:build", 29, 64, width=16, depth=1)
    assert sys.path == path


def test_parameters_with_defaults_may_stand_beside_the_forms(tmp_path):
    layer = "    return nn.Linear(width, width)\n"
    for parameters in ("width, heads=4", "width=8", "width, *rest, **options"):
        assert built(tmp_path, f"def build({parameters}):\n{layer}").mixers[0].module.in_features == 16
    whole = WHOLE.replace("build(vocab_size, context)", "build(vocab_size, context, width=8)")
    assert isinstance(built(tmp_path, whole).model.module, torch.nn.Module)


def test_modules_that_would_have_one_name_get_one_each(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "m.py").write_text(f"{HEAD}{STATELESS}\n\nother = build\n")
    one, other, again = (f"{tmp_path / name}" for name in ("a/m.py:build", "a/m.py:other", "b/m.py:build"))

    def names(*specs, **given):
        return [candidate.name for candidate in recipes.candidates(specs=specs, width=16, depth=1, **given)]

    assert names(one) == ["m"]
    assert names(one, other) == ["m:build", "m:other"]
    assert names(one, again) == ["a.m:build", "b.m:build"]
    (tmp_path / "lstm.py").write_text(HEAD + STATELESS)
    assert names(f"{tmp_path / 'lstm.py'}:build", mixers=("lstm",)) == ["lstm", "lstm:build"]


COUNTED_BY_NUMBERS = """
def build(width):
    assert width % 16 == 0
    layer = nn.Linear(width, width)
    layer.scale = float(layer.weight.detach().abs().max())
    return layer
"""


@pytest.mark.parametrize("code", [EXAMPLE.read_text(), COUNTED_BY_NUMBERS], ids=["example", "numbers"])
def test_a_users_module_takes_part_with_as_many_parameters_as_the_first(tmp_path, code):
    (tmp_path / "mine.py").write_text(HEAD + code)
    spec = f"{tmp_path / 'mine.py'}:build"
    first, own = recipes.candidates(("causalrn",), specs=(spec,), width=32, depth=2, equal="parameters")
    sizes = [candidate.build(29, 64).num_parameters for candidate in (first, own)]
    assert abs(sizes[1] / sizes[0] - 1) < 0.3
    with pytest.raises(ValueError, match="width 2: for equal parameters"):
        recipes.candidates(("causalrn",), specs=(spec,), width=2, depth=2, equal="parameters")


def test_a_module_of_no_width_at_all_is_told_why(tmp_path):
    (tmp_path / "mine.py").write_text(HEAD + "def build(width):\n    raise TypeError('never')\n")
    with pytest.raises(ValueError, match="TypeError: never"):
        recipes.candidates(("causalrn",), specs=(f"{tmp_path / 'mine.py'}:build",), width=16, equal="parameters")
