"""Free-running answers of models that were trained on one task of "Repeat After Me", those of one size together."""

from collections.abc import Iterable, Sequence

from relnet.claims.fields import DUPLICATED
from relnet.claims.lines import Line, Results, files_of_lines
from relnet.claims.parts import Bounds, Part, bounds
from relnet.report import exam_lines
from relnet.report.verdict import FREE, PASSED, best, groups, share, trained_task

RECURRENT = ("lstm", "linear-causalrn", "linear-transformer", "mamba", "mamba2", "rwkv")
COPYING, PREFIX, SUFFIX = "copying", "prefix-lookup", "suffix-lookup"
TASKS = {COPYING: "Copying", PREFIX: "PrefixLookup", SUFFIX: "SuffixLookup"}
# The paper's exam packs its rows and scores whole strings.
LAYOUT = "jelassi2024"


class Exam:
    """What models of one size answered after training on a task: of each, trained length and seed one run, at the model's best rate.

    lines: answers on the task; planted: those of the same runs on strings with an n-gram planted twice; files: where they stand.
    """

    def __init__(self, found: Sequence[tuple[str, Line]], task: str) -> None:
        chosen = _furthest(found)
        self.lines = best([line for _, line in chosen if line["task"].startswith(task)])
        rates = {(line["subject"], line["train_length"], line["lr"]) for line in self.lines}
        used = [(file, line) for file, line in chosen if (line["subject"], line["train_length"], line["lr"]) in rates]
        self.planted = [line for _, line in used if line["task"].startswith(DUPLICATED)]
        self.files = files_of_lines(used)

    @property
    def subjects(self) -> list[str]:
        """Names of the models."""
        return [subject for (subject,) in groups(self.lines, "subject")]

    @property
    def recurrent(self) -> list[str]:
        """Those with a state of constant size."""
        return [name for name in self.subjects if name in RECURRENT]

    @property
    def transformers(self) -> list[str]:
        """Those that are Transformers."""
        return [name for name in self.subjects if name.startswith(("transformer", "gpt", "llama"))]

    @property
    def trained(self) -> list[int]:
        """Lengths that models were trained on, the longest last."""
        return sorted({line["train_length"] for line in self.lines})

    def exact(self, subject: str) -> dict[int, dict[int, float]]:
        """Share of whole strings right, by trained length and length asked."""
        found: dict[int, dict[int, float]] = {}
        own = [line for line in self.lines if line["subject"] == subject]
        for (trained, length), lines in groups(own, "train_length", "length").items():
            measured = share(lines)
            if measured is not None:
                found.setdefault(trained, {})[length] = measured[0]
        return found

    def at_trained(self, subject: str) -> dict[int, float]:
        """Share of whole strings right of the trained length itself, by that."""
        return {trained: shares[trained] for trained, shares in self.exact(subject).items() if trained in shares}

    def longest_learned(self, subject: str, among: Iterable[int]) -> int | None:
        """The longest of these trained lengths that the model learned, None where it learned none."""
        shares = self.at_trained(subject)
        return max((length for length in among if shares.get(length, 0.0) >= PASSED), default=None)

    def learned(self, subject: str, length: int) -> Part:
        """Whether it learned a length that it was trained on: open where it did not, nor did another with at most as many rows."""
        found = self.at_trained(subject).get(length)
        if found is None:
            return None
        if found >= PASSED:
            return True
        enough = [
            rows
            for name in self.subjects
            if self.at_trained(name).get(length, 0.0) >= PASSED and (rows := self._rows(name, length))
        ]
        spent = min((seen for _, seen in self._rows(subject, length)), default=0)
        return False if any(spent >= max(seen for _, seen in rows) for rows in enough) else None

    def samples(self, names: Sequence[str], length: int) -> Bounds | None:
        """The least and the most rows that the best of these models needs to 99 % at this trained length; None: none was trained on it.

        Seeds at which a model never came there do not make it slower than at the others, but leave open how much slower it is.
        """
        found = []
        for rows in filter(None, (self._rows(name, length) for name in names)):
            arrived = [one for one in rows if one[0] is not None]
            found.append((bounds(arrived or rows)[0], bounds(rows)[1]))
        return (min(least for least, _ in found), min(most for _, most in found)) if found else None

    def _rows(self, subject: str, length: int) -> list[tuple[int | None, int]]:
        """Rows to 99 % and rows trained on, one a seed; none of a run that did not aim at 99 %."""
        own = [line for line in self.lines if (line["subject"], line["train_length"]) == (subject, length)]
        counted = [line for line in own if line.get("samples") is not None]
        return list({line["seed"]: (line.get("samples_to_99"), line["samples"]) for line in counted}.values())

    @property
    def ran(self) -> str:
        """What was run, in words."""
        seeds = sorted({line["seed"] for line in self.lines})
        shown = f"{', '.join(self.subjects)}; trained up to {', '.join(map(str, self.trained))}"
        return f"{shown}, seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def exams(results: Results, task: str) -> list[Exam]:
    """The exams of models that were trained on this task, as far as their lines tell, one a size."""
    asked = (task, DUPLICATED) if task == COPYING else (task,)
    sizes: dict[str, list[tuple[str, Line]]] = {}
    for size, file, line in _lines(results, task):
        name, learned = str(line["task"]), trained_task(line)
        of_task = learned is None or (learned.startswith(task) and learned.endswith(LAYOUT))
        if of_task and line["mode"] == FREE and line["items"] and name.startswith(asked) and name.endswith(LAYOUT):
            sizes.setdefault(size, []).append((file, line))
    return [exam for found in sizes.values() if (exam := Exam(found, task)).lines]


def _lines(results: Results, task: str) -> Iterable[tuple[str, str, Line]]:
    """Size, file and line of each answer. What `relnet exam` wrote into one file was made to be compared."""
    for file, line in results.having("subject", "task", "train_length", "lr", "mode", "length", "items"):
        if line["train_length"] is not None:
            yield file, file, line
    for run in results.runs:
        if run.task.get("_type") == TASKS[task]:
            for line in exam_lines(run.line["config"], run.result, run.exam):
                yield f"{run.model.get('width')} {run.model.get('depth')}", run.file, line


def _furthest(found: Sequence[tuple[str, Line]]) -> list[tuple[str, Line]]:
    """Of each model, trained length, rate and seed the lines of the run that came to 99 %, else of the one that saw most rows."""
    trainings: dict[tuple[object, ...], list[tuple[str, Line]]] = {}
    for file, line in found:
        key = (line["subject"], line["train_length"], line["lr"], line["seed"])
        trainings.setdefault(key, []).append((file, line))
    chosen = []
    for lines in trainings.values():
        furthest = max(_went(line) for _, line in lines)
        chosen += [(file, line) for file, line in lines if _went(line) == furthest]
    return chosen


def _went(line: Line) -> tuple[bool, int, int]:
    return line.get("samples_to_99") is not None, line.get("samples") or 0, line.get("parameters") or 0
