from pathlib import Path

import pytest
import torch

from relnet import exam
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
        ("def other(width):\n    return None\n", "has no function 'build'"),
    ],
)
def test_a_module_that_cannot_sit_the_exam_is_refused(tmp_path, code, message):
    with pytest.raises(ValueError, match=message):
        built(tmp_path, code)


def test_a_file_that_is_not_there_is_said(tmp_path):
    for spec in ("nowhere.py:build", "nowhere.py", f"{EXAMPLE}"):
        with pytest.raises(ValueError, match=r"no such file; write --model FILE\.py:FUNCTION"):
            exam.load_own(spec, 29, 64)
