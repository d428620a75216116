"""relnet theory."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from relnet import exam, nn, recipes, report, run, theory
from relnet.commands.console import out, status
from relnet.recipes.models import MODEL_NAMES
from relnet.tasks import Copying, DuplicatedNgram, score
from relnet.theory.ablations import NEEDED, NOT_NEEDED
from relnet.train.log import commit, machine, versions

Row = dict[str, Any]
FORMAT = 1
HAND_SET = {"causalrn": theory.CopyingRN, "transformer": theory.CopyingTransformer}
# Longest strings of small alphabets: (n, a).
LONGEST = ((10, 2), (6, 3), (5, 4), (2, 26))
GAINS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0)
# Strings an ablation is asked, and their letters.
ABLATION_STRINGS, ABLATION_LENGTH = 20, 100
STATE_LENGTHS = (16, 64, 256, 1024, 4096)


@dataclass(frozen=True)
class Theory:
    """Check by running it what docs/theory.md proves: hand-set models that copy, what breaks them, what states can hold."""

    out: Path | None = None
    """Folder for theory.jsonl and theory.png; one that was begun is gone on with. Default: a new one under $RELNET_RUNS or ./runs."""
    ngrams: tuple[int, ...] = (3, 4)
    """The n of the hand-set models."""
    lengths: tuple[int, ...] = (20, 50, 100, 200)
    """Letters in the strings."""
    num: int = 100
    """Uniform strings a length, and a tenth as many without a repeat."""
    seed: int = 0
    """Of the strings."""
    results: Path = Path("results")
    """Folder of JSON lines of trained models (relnet report --json), for the lengths that they copy; none is needed."""

    def __call__(self) -> None:
        """Run the command."""
        if not self.ngrams or not self.lengths:
            raise ValueError("ngrams or lengths are empty: give at least one each")
        with run.run_folder(self.out, "theory") as folder:
            folder.mkdir(parents=True, exist_ok=True)
            path, figure = folder / "theory.jsonl", folder / "theory.png"
            if figure.exists():
                raise ValueError(f"{folder} holds a finished relnet theory; take another --out")
            trained = report.read_results(self.results)
            asked = {
                "ngrams": list(self.ngrams),
                "lengths": list(self.lengths),
                "num": self.num,
                "seed": self.seed,
                # Rows are told apart by their places alone, and these decide who is measured.
                "trained": f"{len(trained)} models, SHA-256 {sha256(json.dumps(trained).encode()).hexdigest()[:16]}",
            }
            try:
                done = report.read_theory(path) if path.exists() else []
            except ValueError:
                raise ValueError(f"{path} exists, and nothing is overwritten; give a new name") from None
            # Files of before say nothing of what was asked.
            if strange := [row.get("asked") for row in done if row.get("asked") != asked]:
                raise ValueError(f"{path} was begun with {strange[0]}, and {asked} is asked for; take another --out")
            origin = {
                "format": FORMAT,
                "asked": asked,
                "commit": commit(),
                "machine": machine(torch.device("cpu")),
                "versions": versions(),
            }
            questions = list(self._questions(trained))
            for number, question in enumerate(questions[len(done) :], len(done) + 1):
                status.print(f"{number} of {len(questions)}")
                row = question()
                # Only now: a mistake leaves no file.
                with exam.appending(path) as file:
                    file.write(json.dumps(row | {"seed": self.seed} | origin).encode() + b"\n")
            out.print(report.theory_tables(report.read_theory(path)))
            out.print(f"figure: {report.theory_figure(path, figure)}")
            out.print(f"JSON lines: {path}")

    def _questions(self, trained: list[Row]) -> Iterator[Callable[[], Row]]:
        """What is measured, one row each, always in this order."""
        for name, kind in HAND_SET.items():
            for n in self.ngrams:
                # Made once, for all lengths.
                subject = exam.ModelSubject(kind(n=n).build(), name)
                for length in self.lengths:
                    yield partial(self._errors, subject, n, length)
            for n, alphabet in LONGEST:
                yield partial(_longest, name, kind(n=n, alphabet=alphabet))
        for needed, changes in ((False, NOT_NEEDED), (True, NEEDED)):
            for change, settings in changes.items():
                yield partial(self._ablation, change, needed, theory.CopyingRN(n=max(self.ngrams), **settings))
        for n in self.ngrams:
            for kappa in GAINS:
                yield partial(_bound, theory.CopyingRN(n=n, kappa=kappa))
        yield from self._capacities(trained)

    def _errors(self, subject: exam.ModelSubject, n: int, length: int) -> Row:
        """How a hand-set model does on uniform strings, and on strings without a repeat, teacher-forced and free-running."""
        num_chosen = max(1, self.num // 10)
        strings = theory.uniform_strings(self.num, length, 26, self.seed)
        chosen = theory.strings_without_repeat(num_chosen, length, n, 26, self.seed)
        items = theory.items(torch.cat([strings, chosen]))
        scores = {
            mode: score(decode(subject, items)[0], items.answers, Copying.EOS) for mode, decode in exam.MODES.items()
        }
        right = {mode: one.first_error < 0 for mode, one in scores.items()}
        repeats = theory.repeats(strings, n)
        forced, free = right["teacher_forced"], right["free_running"]
        return {
            "kind": "error",
            "model": subject.name,
            "n": n,
            "alphabet": 26,
            "length": length,
            "strings": self.num,
            "repeats": int(repeats.sum()),
            "wrong": int((~forced[: self.num]).sum()),
            "same": int((repeats == ~forced[: self.num]).sum()),
            "wrong_free": int((~free[: self.num]).sum()),
            "wrong_letters": self.num - int(scores["teacher_forced"].exact[: self.num].sum()),
            "bound": theory.repeat_bound(length, n, 26),
            "chosen": num_chosen,
            "chosen_right": int((forced & free)[self.num :].sum()),
        }

    def _ablation(self, change: str, needed: bool, settings: theory.CopyingRN) -> Row:
        length = min(ABLATION_LENGTH, theory.longest_without_repeat(settings.n, 26))
        strings = theory.strings_without_repeat(ABLATION_STRINGS, length, settings.n, 26, self.seed)
        right = int((theory.first_errors(settings.build(), strings) < 0).sum())
        found = {"n": settings.n, "length": length, "strings": len(strings), "right": right}
        return {"kind": "ablation", "change": change, "needed": needed, **found}

    def _capacities(self, results: list[Row]) -> Iterator[Callable[[], Row]]:
        """The hand-set models, the trained ones, and the papers' models that were not trained."""
        for name, kind in HAND_SET.items():
            settings = kind(n=self.ngrams[0])
            name = f"hand-set {name}, n {settings.n}"
            yield partial(_capacity, name, settings.config, max(self.lengths), always=True)
        known = set()
        for one in results:
            config = run.config_from_json(json.dumps(one["config"]), f"{self.results}: {one['name']}")
            # Strings with a duplicated n-gram are a task of their own.
            if not isinstance(config.task, Copying) or isinstance(config.task, DuplicatedNgram):
                continue
            assert isinstance(config.model, nn.ModelConfig)
            known.add(one["name"])
            trained = config.task.length
            name = f"{one['name']}, trained at {trained}"
            yield partial(_capacity, name, config.model, trained, examined=one["examined"], copied=one["copied"])
        for name in MODEL_NAMES:
            if name not in known:
                yield partial(_capacity, name, recipes.models.model(name, vocab_size=29, context=130), 64)


def _longest(name: str, settings: theory.CopyingRN | theory.CopyingTransformer) -> Row:
    string = theory.de_bruijn(settings.n, settings.alphabet)
    right = int(theory.first_errors(settings.build(), string[None])[0]) < 0
    found = {"n": settings.n, "alphabet": settings.alphabet, "length": len(string), "kappa": settings.kappa}
    return {"kind": "longest", "model": name, **found, "right": right}


def _bound(settings: theory.CopyingRN) -> Row:
    return {
        "kind": "bound",
        "n": settings.n,
        "head_width": settings.widths[1],
        "kappa": settings.kappa,
        "exact": theory.most_tokens_rn(settings, eta=0.0),
        "tokens": theory.most_tokens_rn(settings),
    }


def _capacity(
    name: str,
    config: nn.ModelConfig,
    length: int,
    examined: list[int] | None = None,
    copied: int | None = None,
    always: bool = False,
) -> Row:
    # Learned positions are no part of a state, but end it: without them every length can be measured.
    free = nn.ModelConfig(
        config.vocab_size, config.width, config.depth, None, config.mixer, mlp=config.mlp, positions="none"
    )
    model = nn.SequenceModel(free).eval()
    limit = theory.longest_string_of(model)
    # Linear in the number of tokens, or constant: 4,096 tokens are worked out, not run.
    short, long, further = (theory.state_bits(model, tokens) for tokens in (16, 32, 80))
    assert further == short + 4 * (long - short)
    states = {one: short + (long - short) * (one + 2 - 16) // 16 for one in (*STATE_LENGTHS, length)}
    return {
        "kind": "capacity",
        "model": name,
        "length": length,
        "bits": states[length],
        "bits_a_letter": math.log2(26),
        "states": sorted(states.items()),
        "limit": None if math.isinf(limit) else limit,
        "examined": examined or [],
        "copied": copied,
        "always": always,
    }
