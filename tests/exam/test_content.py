import enum
import functools
import io
import itertools
import math
import subprocess
import sys
import threading
import types
import weakref
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
import torch

from relnet import exam, nn
from tests.exam.transformers_models import tiny


class Scaled(torch.nn.Module):
    def __init__(self, **plain):
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)
        vars(self).update(plain)


def content(**plain):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return exam.model_content(Scaled(**plain))


class Kind(enum.Enum):
    ONE = 1
    TWO = 2


@dataclass(frozen=True)
class Frozen:
    scale: float


@dataclass(slots=True)
class Slotted:
    scale: float
    __hidden: int = 1


class Callable:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, x):
        return self.scale * x


def scaling(scale):
    return lambda x: x * scale


def weights(value):
    made = torch.nn.Linear(2, 2)
    torch.nn.init.constant_(made.weight, value)
    torch.nn.init.zeros_(made.bias)
    return made


def hooked(scale):
    made = weights(0.0)
    made.register_forward_hook(lambda module, args, output: output + scale)
    return made


# Pairs of which a model can make something different.
PAIRS = {
    "int": lambda: (1, -1),
    "kinds of number": lambda: (1, 1.0),
    "bool": lambda: (1, True),
    "zeros": lambda: (0.0, -0.0),
    "str": lambda: ("one", "None"),
    "None": lambda: (None, "None"),
    "bytes": lambda: (b"a", b"b"),
    "tuple": lambda: ((1, 2), [1, 2]),
    "nesting": lambda: ([[1], 2], [[1, 2]]),
    "dict": lambda: ({"a": 1}, {"a": 2}),
    "keys": lambda: ({"a": 1}, {"b": 1}),
    "set": lambda: ({1, 2}, {1, 3}),
    "other containers": lambda: (deque([1]), OrderedDict(a=1)),
    "defaults of a dict": lambda: (defaultdict(lambda: 1), defaultdict(lambda: 2)),
    "Fraction": lambda: (Fraction(1, 2), Fraction(1, 3)),
    "tensors": lambda: ([torch.ones(2)], [torch.zeros(2)]),
    "dtype": lambda: (torch.float32, torch.float64),
    "dtype of a tensor": lambda: (torch.zeros(2), torch.zeros(2).int()),
    "device": lambda: (torch.device("cpu"), torch.device("meta")),
    "ndarray": lambda: (np.zeros(2), np.ones(2)),
    "ndarray of objects": lambda: (np.array([1, None]), np.array([2, None])),
    "shape": lambda: (np.zeros((1, 2)), np.zeros((2, 1))),
    "np.float32": lambda: (np.float32(1), np.float32(2)),
    "np.float64": lambda: (np.float64(1), 1.0),
    "np.int64": lambda: (np.int64(1), np.int64(2)),
    "np.dtype": lambda: (np.dtype("int8"), np.dtype("int16")),
    "enum": lambda: (Kind.ONE, Kind.TWO),
    "dataclass": lambda: (Frozen(1.0), Frozen(2.0)),
    "slots": lambda: (Slotted(1.0), Slotted(2.0)),
    "hidden slots": lambda: (Slotted(1.0, 1), Slotted(1.0, 2)),
    "namespace": lambda: (types.SimpleNamespace(s=1), types.SimpleNamespace(s=2)),
    "objects in objects": lambda: (types.SimpleNamespace(s=[Frozen(1.0)]), types.SimpleNamespace(s=[Frozen(2.0)])),
    "callable": lambda: (Callable(1), Callable(2)),
    "bound method": lambda: (Callable(1).__call__, Callable(2).__call__),
    "lambda": lambda: (lambda x: x * 2, lambda x: x * 3),
    "names in a lambda": lambda: (lambda x: x.sin(), lambda x: x.cos()),
    "closure": lambda: (scaling(2), scaling(3)),
    "default": lambda: (lambda x, scale=2: x, lambda x, scale=3: x),
    "keyword default": lambda: (lambda x, *, scale=2: x, lambda x, *, scale=3: x),
    "code in code": lambda: (lambda x: (lambda y: y * 2)(x), lambda x: (lambda y: y * 3)(x)),
    "partial": lambda: (functools.partial(torch.clamp, min=0), functools.partial(torch.clamp, min=-1)),
    "functions": lambda: (torch.relu, torch.tanh),
    "functions of Python": lambda: (torch.nn.functional.relu, torch.nn.functional.silu),
    "what a name was taken from": lambda: (
        torch.nn.functional.silu,
        functools.wraps(torch.nn.functional.silu)(lambda x: x),
    ),
    "builtins": lambda: (math.sin, math.cos),
    "ufunc": lambda: (np.sin, np.cos),
    "class": lambda: (Frozen, Slotted),
    "module": lambda: (math, functools),
    "weights in a list": lambda: ([weights(1.0)], [weights(2.0)]),
    "hook": lambda: ([hooked(1.0)], [hooked(2.0)]),
}


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_attributes_are_part_of_a_models_content(pair):
    one, other = (content(_alpha=value) for value in pair())
    assert one is not None
    assert other is not None
    assert one != other
    assert [one, other] == [content(_alpha=value) for value in pair()]


def test_attributes_of_every_name_but_those_of_every_module_are_part_of_a_models_content():
    names = ("alpha", "_alpha", "__alpha", "_parameter", "config")
    assert len({content(**{name: value}) for name in names for value in (1, 2)}) == 2 * len(names)
    assert content(training=True) == content(training=False), "an exam sets it itself"


def test_a_weak_reference_is_told_by_what_it_refers_to():
    held = [torch.ones(2), torch.zeros(2)]
    assert len({content(alpha=weakref.ref(one)) for one in held}) == 2


def test_objects_that_hold_one_another_have_a_content():
    def ring(scale):
        one = types.SimpleNamespace(scale=scale)
        one.other = types.SimpleNamespace(other=one)
        return one

    assert content(alpha=ring(1)) == content(alpha=ring(1)) != content(alpha=ring(2))
    shared = [1]
    assert content(alpha=[shared, shared]) == content(alpha=[[1], [1]])


class Reluctant:
    def __reduce__(self):
        raise ZeroDivisionError


def row_of_objects():
    row = None
    for _ in range(2000):
        row = [row]
    return row


UNKNOWN = {
    "object": object,
    "lock": threading.Lock,
    "stream": lambda: io.TextIOWrapper(io.BytesIO()),
    "random numbers": np.random.default_rng,
    "running generator": lambda: (number for number in range(3)),
    "module without a file": lambda: types.ModuleType("made_up"),
    "what refuses": Reluctant,
    "meta tensor": lambda: torch.ones(2, device="meta"),
    "sparse tensor": lambda: torch.eye(2).to_sparse(),
    "a very long row": row_of_objects,
}


@pytest.mark.parametrize("make", UNKNOWN.values(), ids=UNKNOWN)
@pytest.mark.parametrize(
    "hold", [lambda one: one, lambda one: {"a": types.SimpleNamespace(b=[one])}], ids=["plain", "deep"]
)
def test_what_is_not_understood_leaves_a_model_without_a_content(make, hold):
    assert content(alpha=hold(make())) is None


def sample_models():
    """Models as they are examined: relnet's, those of transformers, one of relnet saved for transformers."""
    for mixer in (nn.CausalRNConfig(heads=2, windows=(2, None)), nn.LinearCausalRNConfig(), nn.LinearAttentionConfig()):
        torch.manual_seed(0)
        yield nn.SequenceModel(nn.ModelConfig(29, 16, 1, 40, mixer, checkpointing=True))
    torch.manual_seed(0)
    yield nn.SequenceModel(nn.ModelConfig(29, 16, 2, 40, (nn.AttentionConfig(2, positions="rope"), nn.LSTMConfig())))
    yield from map(tiny, ("gpt_neox", "llama", "mamba", "gpt2"))


def test_examined_models_have_one_content_in_every_process_and_before_and_after_an_exam():
    told = []
    for model in sample_models():
        told.append(exam.model_content(model))
        exam.ModelSubject(model).start(torch.ones(1, 3, dtype=torch.int64))
        assert exam.model_content(model) == told[-1]
    assert None not in told
    assert len(set(told)) == len(told)
    script = (
        "from relnet import exam\nfrom tests.exam.test_content import sample_models\n"
        "print([exam.model_content(model) for model in sample_models()])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == str(told)


def test_a_saved_and_loaded_model_has_one_content(tmp_path):
    tiny("gpt_neox").model.save_pretrained(tmp_path)
    told = {exam.model_content(exam.load_pretrained(str(tmp_path))) for _ in range(2)}
    assert len(told) == 1
    assert None not in told


CONSOLE = """
import functools, torch
HALF = 0.5
OFFSETS = {"a": 1}
def shift(x):
    return x + OFFSETS["a"]
class Base(torch.nn.Module):
    scale = 1.0
    @property
    def factor(self):
        return 4.0
    @staticmethod
    def cube(x):
        return x**3
class C(Base):
    def forward(self, x):
        return [shift(self.cube(y) * HALF * 2.0) * self.scale * self.factor for y in x]
"""
CHANGES = [
    ("HALF = 0.5", "HALF = 0.25"),
    ('"a": 1', '"a": 2'),
    ("x + OFFSETS", "x - OFFSETS"),
    ("scale = 1.0", "scale = 1.5"),
    ("return 4.0", "return 5.0"),
    ("x**3", "x**4"),
    ("* 2.0", "* 3.0"),
    ("class C(Base)", "class C(torch.nn.Sequential, Base)"),
    ("self.factor for", "self.scale for"),
]


@pytest.fixture
def typed(monkeypatch):
    """What is typed into a console, as it stands in a module without a file."""

    def run(source):
        module = types.ModuleType("console")
        monkeypatch.setitem(sys.modules, "console", module)
        exec(source, vars(module))
        return module.C()

    return run


@pytest.mark.parametrize(("before", "after"), CHANGES)
def test_classes_of_a_console_are_told_by_all_they_are_made_of(typed, before, after):
    first, again, changed = (typed(source) for source in (CONSOLE, CONSOLE, CONSOLE.replace(before, after)))
    for tell in (exam.model_content, exam.own_code):
        assert tell(first) == tell(again)
        assert tell(first) not in (None, "", tell(changed))


def test_a_console_class_that_uses_what_is_not_understood_has_no_content(typed):
    model = typed(CONSOLE.replace("HALF = 0.5", "import threading; HALF = threading.Lock()"))
    assert exam.model_content(model) is None
    assert exam.own_code(model)


def test_classes_of_one_name_are_told_in_one_order():
    def code(order):
        made = {}
        for factor in order:
            module = types.ModuleType("console")
            source = (
                f"import torch\nclass Layer(torch.nn.Module):\n    def forward(self, x):\n        return {factor} * x\n"
            )
            exec(source, vars(module))
            made[factor] = module.Layer
        return exam.own_code(torch.nn.Sequential(*[made[factor]() for factor in sorted(made)]))

    # A set of classes is in the order of their addresses.
    assert len({code(order) for order in itertools.permutations(range(4))}) == 1


MIXER = """
import torch
from helper import FACTOR
class Mixer(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(width))
    def forward(self, x, state=None):
        total = x.cumsum(1) + (0 if state is None else state)
        return self.gain * total * FACTOR, total[:, -1:]
def build(width):
    return Mixer(width)
"""


def test_another_candidate_in_the_folder_does_not_change_the_code_of_one(tmp_path):
    for name, content in (("a", MIXER), ("b", MIXER + "# other\n"), ("helper", "FACTOR = 0.1\n")):
        (tmp_path / f"{name}.py").write_text(content)

    def code(name):
        return exam.own_code(exam.load_own(f"{tmp_path / name}.py:build", 29, 12, width=8, depth=1))

    alone = code("a")
    other = code("b")
    assert code("a") == alone != other
    (tmp_path / "helper.py").write_text("FACTOR = 0.2\n")
    assert code("a") != alone


def test_a_helper_of_another_folder_is_not_taken_for_a_models_own(tmp_path):
    told = []
    for factor in (1, 2, 1):
        models = []
        for folder, number in (("first", factor), ("second", 7)):
            (tmp_path / folder).mkdir(exist_ok=True)
            layer = (
                "import torch\nclass Layer(torch.nn.Linear):\n    def forward(self, x, state=None):\n"
                f"        return {number} * x, state\n"
            )
            (tmp_path / folder / "helper.py").write_text(layer)
            (tmp_path / folder / "m.py").write_text(
                "import helper\ndef build(width):\n    return helper.Layer(width, width)\n"
            )
            torch.manual_seed(0)
            models.append(exam.load_own(f"{tmp_path / folder / 'm.py'}:build", 29, 12, width=8, depth=1))
        told.append(exam.model_content(models[0]))
    assert None not in told
    assert told[0] == told[2] != told[1]


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
    assert exam.own_code(next(sample_models())) == "", "relnet's and PyTorch's are told otherwise"
