"""Jelassi et al. 2024, "Repeat After Me" (arXiv 2402.01032).

Theory is judged by the lines of `relnet theory`, trained models by those of `relnet exam`: free-running, whole strings, the best
learning rate of each model and seed-summed counts. A model with a state of constant size counts as recurrent.
"""

from collections.abc import Sequence

from relnet.claims.claim import Claim, Finding, claim, graded, untested
from relnet.claims.lines import Line, Results
from relnet.report import exam_lines
from relnet.report.verdict import FREE, best, groups, share

RECURRENT = ("lstm", "linear-causalrn", "linear-transformer", "mamba", "mamba2", "rwkv")
FAILED, NEAR, PASSED = 0.05, 0.9, 0.95
FEWER = 100
COPYING, PREFIX, SUFFIX, DUPLICATED = "copying", "prefix-lookup", "suffix-lookup", "duplicated-ngram"


def _theory(results: Results, kind: str) -> list[tuple[str, Line]]:
    return [(file, line) for file, line in results.having("kind") if line["kind"] == kind]


def _files(found: Sequence[tuple[str, Line]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(file for file, _ in found))


@claim(
    "J1",
    "A depth-2 transformer copies by hashing n-grams, with an error below the chance of a repeated n-gram",
    "section 2",
)
def j1(results: Results) -> Finding:
    """Holds if the hand-set Transformer is wrong on no uniform string without a repeated n-gram; in part if it is right on some
    lengths' strings only."""
    found = [(file, line) for file, line in _theory(results, "error") if line["model"] == "transformer"]
    parts = [line["wrong"] <= line["repeats"] and line["chosen_right"] == line["chosen"] for _, line in found]
    if not found:
        return untested("no lines of relnet theory")
    strings = sum(line["strings"] for _, line in found)
    wrong, repeats = sum(line["wrong"] for _, line in found), sum(line["repeats"] for _, line in found)
    ran = (
        f"weights set by hand, n = {_range(found, 'n')}, lengths {_range(found, 'length')}, {strings:,} uniform strings"
    )
    return Finding(graded(parts), ran, f"{wrong:,} wrong, {repeats:,} with a repeated n-gram", _files(found))


@claim("J2", "The chance of a repeated n-gram is below L^2 a^-n", "section 2")
def j2(results: Results) -> Finding:
    """Holds if at no length and n the measured share of uniform strings with a repeat is above the bound by more than three
    standard errors."""
    found = _theory(results, "error")
    if not found:
        return untested("no lines of relnet theory")
    parts, closest = [], 0.0
    for _, line in found:
        measured, strings = line["repeats"] / line["strings"], line["strings"]
        parts.append(measured <= line["bound"] + 3 * (max(measured * (1 - measured), 1 / strings) / strings) ** 0.5)
        # A bound of 1 says nothing.
        closest = max(closest, measured / line["bound"] if line["bound"] < 1 else 0.0)
    ran = f"n = {_range(found, 'n')}, lengths {_range(found, 'length')}"
    came = f"the measured share is at most {closest:.2f} of the bound, where that is below 1"
    return Finding(graded(parts), ran, came, _files(found))


def _range(found: Sequence[tuple[str, Line]], key: str) -> str:
    values = sorted({line[key] for _, line in found})
    return f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,} to {values[-1]:,}"


@claim("J3", "O(log log L) bits of precision suffice", "section 2")
def j3(results: Results) -> Finding:
    """Would need the hand-set Transformer under rounding to k bits, for the k at which it fails by length."""
    return untested("nothing rounds to k bits yet")


@claim("J4", "A state of mem < L log2 a - 1 bits gives an error above 1/2", "section 2")
def j4(results: Results) -> Finding:
    """Each trained model of constant state that was asked for strings beyond the length that its bits allow is a part, and holds if it
    copied 95 % of the strings at no such length."""
    found = [
        (file, line) for file, line in _theory(results, "capacity") if line["limit"] is not None and line["examined"]
    ]
    came = "; ".join(
        f"{line['model']}: allowed {line['limit']:,}, asked up to {max(line['examined']):,}, copied {line['copied'] or 0:,}"
        for _, line in found
    )
    beyond = [(file, line) for file, line in found if max(line["examined"]) > line["limit"]]
    if not beyond:
        why = "no model of constant state was asked for more than its state allows"
        return Finding("not tested", came=f"{why}; {came}" if came else why, files=_files(found))
    parts = [(line["copied"] or 0) <= line["limit"] for _, line in beyond]
    return Finding(graded(parts), "trained models of constant state", came, _files(found))


class _Exam:
    """Lines of exams on one task."""

    def __init__(self, results: Results, task: str) -> None:
        found = [
            (file, line)
            for file, line in results.having("subject", "task", "train_length", "lr", "mode", "length", "items")
            if line["mode"] == FREE and line["items"] and line["task"].startswith(task)
        ]
        for run in results.runs:
            lines = exam_lines(run.line["config"], run.result, run.exam)
            # The paper's exam packs its rows and scores whole strings.
            named = [line for line in lines if line["task"].startswith(task) and line["task"].endswith("jelassi2024")]
            found += [(run.file, line) for line in named if line["mode"] == FREE]
        self.files = _files(found)
        self.lines = best([line for _, line in found])

    @property
    def subjects(self) -> list[str]:
        return [subject for (subject,) in groups(self.lines, "subject")]

    @property
    def recurrent(self) -> list[str]:
        return [name for name in self.subjects if name in RECURRENT]

    @property
    def transformers(self) -> list[str]:
        return [name for name in self.subjects if name.startswith(("transformer", "gpt", "llama"))]

    def exact(self, subject: str) -> dict[int, dict[int, float]]:
        """Share of whole strings right, by trained length and length asked."""
        found: dict[int, dict[int, float]] = {}
        for (trained, length), lines in groups(
            [line for line in self.lines if line["subject"] == subject], "train_length", "length"
        ).items():
            measured = share(lines)
            if measured is not None and trained is not None:
                found.setdefault(trained, {})[length] = measured[0]
        return found

    def samples(self, subject: str) -> dict[int, float | None]:
        """Rows trained on until 99 % by trained length, the mean over seeds; None where one never came there."""
        found: dict[int, float | None] = {}
        for (trained,), lines in groups(
            [line for line in self.lines if line["subject"] == subject], "train_length"
        ).items():
            seen = [line["samples_to_99"] for line in lines]
            found[trained] = None if None in seen else sum(seen) / len(seen)
        return found

    @property
    def ran(self) -> str:
        lengths = sorted({line["train_length"] for line in self.lines if line["train_length"]})
        seeds = sorted({line["seed"] for line in self.lines})
        shown = f"{', '.join(self.subjects)}; trained up to {', '.join(map(str, lengths))}"
        return f"{shown}, seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _told(exact: dict[int, float]) -> str:
    return ", ".join(f"{length}: {100 * value:.4g} %" for length, value in sorted(exact.items()))


@claim(
    "J5",
    "At length 300 transformers need about 100 times fewer samples than the best recurrent model; the gap narrows for short strings",
    "section 3, B.1",
)
def j5(results: Results) -> Finding:
    """Each trained length that some model learned to 99 % is a part, and holds if the best transformer needs at most a hundredth of the
    samples for that which the best recurrent model needs, or was given in vain. It holds as a whole only with length 300."""
    exam = _Exam(results, COPYING)
    if not exam.transformers or not exam.recurrent:
        return untested("no exam of both kinds on copying")
    parts, came = [], []
    for length in sorted({line["train_length"] for line in exam.lines if line["train_length"]}):
        ours, theirs = (
            [found for name in names if (found := exam.samples(name).get(length)) is not None]
            for names in (exam.transformers, exam.recurrent)
        )
        given = max(
            (
                line["samples"]
                for line in exam.lines
                if line["train_length"] == length and line["subject"] in exam.recurrent
            ),
            default=0,
        )
        # Where none came there, more samples are wanted, not a verdict.
        if ours or theirs:
            parts.append(bool(ours) and min(theirs, default=given) >= FEWER * min(ours))
        shown = [f"{min(numbers):,.0f}" if numbers else "not reached" for numbers in (ours, theirs)]
        came.append(f"{length}: best transformer {shown[0]}, best recurrent model {shown[1]}")
    lengths = {line["train_length"] for line in exam.lines}
    return Finding(graded(parts, whole=300 in lengths), exam.ran, "samples to 99 % at " + "; ".join(came), exam.files)


@claim(
    "J6",
    "Trained on <= 50: recurrent models fall to 0 just past it, transformers decay up to 1,000, Hard-ALiBi is near perfect at 1,000",
    "section 3",
)
def j6(results: Results) -> Finding:
    """Three parts, of models that copy 95 % of the strings of their trained length, by the longest such length: each recurrent model is
    at most 5 % exact at twice that length and beyond; some transformer is above 5 % there; one with Hard-ALiBi is at least 90 % exact at
    the longest length asked, which must be at least 20 times the trained one for the whole."""
    exam = _Exam(results, COPYING)
    beyond: dict[str, dict[int, float]] = {}
    for name in exam.subjects:
        by_trained = exam.exact(name)
        if by_trained and _trained(exam, name) >= PASSED:
            trained = max(by_trained)
            beyond[name] = {length: value for length, value in by_trained[trained].items() if length >= 2 * trained}
    recurrent = [value for name in exam.recurrent for value in beyond.get(name, {}).values()]
    others = [value for name in exam.transformers for value in beyond.get(name, {}).values()]
    hard = [found for name, found in beyond.items() if "hard" in name and found]
    parts = []
    if recurrent:
        parts.append(max(recurrent) <= FAILED)
    if others:
        parts.append(max(others) > FAILED)
    parts += [found[max(found)] >= NEAR for found in hard]
    if not parts:
        return untested("no exam beyond twice the trained length of a model that copies strings of that length")
    reach = max(line["length"] / line["train_length"] for line in exam.lines if line["train_length"])
    came = "; ".join(f"{name} {_told(found)}" for name, found in beyond.items() if found)
    return Finding(
        graded(parts, whole=bool(recurrent and others and hard) and reach >= 20),
        exam.ran,
        f"exact at {came}",
        exam.files,
    )


@claim("J7", "Duplicated n-grams: unchanged up to n = 4, worse from 5", "section 3, B.2")
def j7(results: Results) -> Finding:
    """Of two parts, for each transformer that copies 95 % of the strings of its trained length: with an n-gram planted twice it is
    at most 5 points worse than there for every n up to 4; it is more than 5 points worse for some n from 5."""
    copying, planted = _Exam(results, COPYING), _Exam(results, DUPLICATED)
    parts, came = [], []
    for name in planted.transformers:
        plain = _trained(copying, name)
        found = {
            int(line_task.removeprefix(f"{DUPLICATED}-").partition("-")[0]): measured[0]
            for (line_task,), lines in groups(
                [line for line in planted.lines if line["subject"] == name], "task"
            ).items()
            if (measured := share(lines)) is not None
        }
        short, long = ([value for n, value in found.items() if (n <= 4) == small] for small in (True, False))
        came.append(f"{name}, {100 * plain:.4g} % of strings drawn at random: {_told(found)}")
        if plain >= PASSED and short and long:
            parts += [min(short) >= plain - FAILED, min(long) < plain - FAILED]
    if not parts:
        return untested("; ".join(came) or "no exam with planted n-grams")
    return Finding(
        graded(parts),
        planted.ran,
        "exact by n: " + "; ".join(came),
        tuple(dict.fromkeys(copying.files + planted.files)),
    )


@claim("J8", "Suffix lookup is poor for recurrent models; prefix lookup is perfect and length-general", "section 3")
def j8(results: Results) -> Finding:
    """Of two parts, where run, at the trained length: every recurrent model is below 95 % on suffix lookup and below the best
    transformer; some recurrent model is at 95 % or more on prefix lookup, there and at twice the length."""
    suffix, prefix = _Exam(results, SUFFIX), _Exam(results, PREFIX)
    parts, came = [], []
    at = {name: _trained(suffix, name) for name in suffix.subjects}
    if suffix.recurrent and suffix.transformers:
        recurrent = max(at[name] for name in suffix.recurrent)
        parts.append(recurrent < min(PASSED, max(at[name] for name in suffix.transformers)))
        came.append("suffix lookup, exact: " + ", ".join(f"{name} {100 * value:.4g} %" for name, value in at.items()))
    if prefix.recurrent:
        found = {name: prefix.exact(name) for name in prefix.recurrent}
        good = [
            all(value >= PASSED for length, value in by_length.items() if length in (trained, 2 * trained))
            for by_trained in found.values()
            for trained, by_length in by_trained.items()
        ]
        parts.append(any(good))
        came += [
            f"prefix lookup, {name}: {_told(lengths)}"
            for name, by_trained in found.items()
            for lengths in by_trained.values()
        ]
    if not parts:
        return untested("no exam of recurrent models on lookup")
    return Finding(
        graded(parts, whole=len(parts) == 2),
        suffix.ran if suffix.lines else prefix.ran,
        "; ".join(came),
        tuple(dict.fromkeys(suffix.files + prefix.files)),
    )


def _trained(exam: _Exam, subject: str) -> float:
    found = exam.exact(subject)
    return max((by_length.get(trained, 0.0) for trained, by_length in found.items()), default=0.0)


PRETRAINED = "needs the pretrained Pythia and Mamba models"


@claim("J9", "Copying C4 text: the smallest Pythia beats the largest Mamba by far", "section 4")
def j9(results: Results) -> Finding:
    """Would need `relnet exam --hf` of Pythia and Mamba on text-copy."""
    return untested(PRETRAINED)


@claim("J10", "Shuffling the words hurts both, Mamba more; the largest Mamba is at 0 at 300", "section 4")
def j10(results: Results) -> Finding:
    """Would need `relnet exam --hf` of Pythia and Mamba on shuffled-copy."""
    return untested(PRETRAINED)


@claim("J11", "Uniform strings: the smallest Pythia above the largest Mamba, Pythia 1.4B almost 100 %", "B.2")
def j11(results: Results) -> Finding:
    """Would need `relnet exam --hf` of Pythia and Mamba on uniform-copy."""
    return untested(PRETRAINED)


@claim("J12", "SQuAD: alike on short paragraphs, Mamba falls faster with length; the phone book likewise", "section 4")
def j12(results: Results) -> Finding:
    """Would need `relnet exam --hf` of Pythia and Mamba on question-answering and phone-book."""
    return untested(PRETRAINED)


@claim("J13", "Mamba often has the lower perplexity at a size", "section 4")
def j13(results: Results) -> Finding:
    """Would need the perplexity of Pythia and Mamba on one text."""
    return untested(PRETRAINED)


REPEAT_AFTER_ME: tuple[Claim, ...] = (j1, j2, j3, j4, j5, j6, j7, j8, j9, j10, j11, j12, j13)
