"""Jelassi et al. 2024, "Repeat After Me" (arXiv 2402.01032).

Theory is judged by the lines of `relnet theory`, trained models by those of `relnet exam` and of runs that copy or look up in the layout
`jelassi2024`: free-running answers, whole strings, the best learning rate of each model, shares as means over seeds. Models are compared
within one size: runs of one width and depth, or lines of one file that `relnet exam` wrote; parts of all sizes count. Where a model was
trained several times on the same, the run that came to 99 % counts, else the one that saw most rows. A model with a state of constant size
counts as recurrent. A model has learned a length that it was trained on if at least 95 % of its answers there are exact.
"""

from collections.abc import Sequence

from relnet.claims.claim import Claim, Finding, claim, graded, untested
from relnet.claims.exams import COPYING, PREFIX, SUFFIX, Exam, exams
from relnet.claims.fields import DUPLICATED
from relnet.claims.lines import Line, Results, Trained, files_of_lines
from relnet.claims.parts import Bounds, Part, every, judged, opposite, some
from relnet.report.verdict import FREE, PASSED, groups, share

FAILED, NEAR = 0.05, 0.9
FEWER = 100


def _theory(results: Results, kind: str) -> list[tuple[str, Line]]:
    return [(file, line) for file, line in results.having("kind") if line["kind"] == kind]


@claim(
    "J1",
    "A depth-2 transformer copies by hashing n-grams, with an error below the chance of a repeated n-gram",
    "section 2",
)
def j1(results: Results) -> Finding:
    """Each length and n is a part, and holds if the hand-set Transformer is wrong on no more uniform strings than have a repeated
    n-gram, and on none of those that were drawn without one."""
    found = [(file, line) for file, line in _theory(results, "error") if line["model"] == "transformer"]
    parts = [line["wrong"] <= line["repeats"] and line["chosen_right"] == line["chosen"] for _, line in found]
    if not found:
        return untested("no lines of relnet theory")
    strings = sum(line["strings"] for _, line in found)
    wrong, repeats = sum(line["wrong"] for _, line in found), sum(line["repeats"] for _, line in found)
    ran = (
        f"weights set by hand, n = {_range(found, 'n')}, lengths {_range(found, 'length')}, {strings:,} uniform strings"
    )
    return Finding(graded(parts), ran, f"{wrong:,} wrong, {repeats:,} with a repeated n-gram", files_of_lines(found))


@claim("J2", "The chance of a repeated n-gram is below L^2 a^-n", "section 2")
def j2(results: Results) -> Finding:
    """Each length and n is a part, and holds if the measured share of uniform strings with a repeat is not above the bound by more
    than three standard errors."""
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
    return Finding(graded(parts), ran, came, files_of_lines(found))


def _range(found: Sequence[tuple[str, Line]], key: str) -> str:
    values = sorted({line[key] for _, line in found})
    return f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,} to {values[-1]:,}"


@claim("J3", "O(log log L) bits of precision suffice", "section 2")
def j3(results: Results) -> Finding:
    """Would need the hand-set Transformer under rounding to k bits, for the k at which it fails by length."""
    return untested("nothing rounds to k bits yet")


@claim("J4", "A state of mem < L log2 a - 1 bits gives an error above 1/2", "section 2")
def j4(results: Results) -> Finding:
    """Each run of a model of constant state that was asked for strings beyond the length that its bits allow is a part, and holds if
    fewer than half of its free-running answers are exact at every such length."""
    found = [
        (file, line) for file, line in _theory(results, "capacity") if line["limit"] is not None and line["examined"]
    ]
    came = "; ".join(
        f"{line['model']}: allowed {line['limit']:,}, asked up to {max(line['examined']):,}, copied {line['copied'] or 0:,}"
        for _, line in found
    )
    # Runs of one name and length may differ in size: beyond the largest of their limits.
    limits: dict[str, int] = {}
    for _, line in found:
        limits[line["model"]] = max(line["limit"], limits.get(line["model"], 0))
    parts = [below for run in results.runs if (below := _fails_beyond(run, limits)) is not None]
    if not parts:
        why = "no model of constant state was asked for more than its state allows"
        return Finding("not tested", came=f"{why}; {came}" if came else why, files=files_of_lines(found))
    return Finding(graded(parts), "trained models of constant state", came, files_of_lines(found))


def _fails_beyond(run: Trained, limits: dict[str, int]) -> Part:
    """Whether it gives fewer than half of the strings beyond its limit exactly; None where it was asked for none."""
    limit = limits.get(f"{run.name}, trained at {run.task.get('length')}")
    if limit is None:
        return None
    beyond = [row for row in run.exam if row["mode"] == FREE and row["length"] > limit]
    return every(2 * row["exact"] < row["items"] for row in beyond)


def _told(exact: dict[int, float]) -> str:
    return ", ".join(f"{length}: {100 * value:.4g} %" for length, value in sorted(exact.items()))


def _found(sat: Sequence[Exam], parts: Sequence[Part], came: Sequence[str], what: str, whole: bool = True) -> Finding:
    """What exams of several sizes say; what: stands before what came out."""
    ran = "; ".join(dict.fromkeys(exam.ran for exam in sat))
    files = tuple(dict.fromkeys(file for exam in sat for file in exam.files))
    return Finding(graded(parts, whole), ran, what + "; ".join(came), files)


@claim(
    "J5",
    "At length 300 transformers need about 100 times fewer samples than the best recurrent model; the gap narrows for short strings",
    "section 3, B.1",
)
def j5(results: Results) -> Finding:
    """Each trained length is a part, and holds if the best recurrent model needs more than a hundred times the samples to 99 % that
    the best transformer needs. A model's samples are the mean over seeds; one that came there at no seed needs more than it was
    given, one that came there at some needs at least their mean. It holds as a whole only with length 300. Whether the gap narrows
    is not judged."""
    sat = [exam for exam in exams(results, COPYING) if exam.transformers and exam.recurrent]
    if not sat:
        return untested("no exam of both kinds on copying")
    parts: list[Part] = []
    came, long = [], False
    for exam in sat:
        for length in exam.trained:
            ours, theirs = exam.samples(exam.transformers, length), exam.samples(exam.recurrent, length)
            part = judged(ours, theirs, FEWER) if ours and theirs else None
            parts.append(part)
            long = long or (length == 300 and part is not None)
            came.append(f"{length}: best transformer {_samples(ours)}, best recurrent model {_samples(theirs)}")
    return _found(sat, parts, came, "samples to 99 % at ", whole=long)


def _samples(needed: Bounds | None) -> str:
    if needed is None:
        return "not run"
    least, most = needed
    if most == float("inf"):
        return f"at least {least:,.0f}"
    return f"{least:,.0f}" if least == most else f"{least:,.0f} to {most:,.0f}"


@claim(
    "J6",
    "Trained on <= 50: recurrent models fall to 0 just past it, transformers decay up to 1,000, Hard-ALiBi is near perfect at 1,000",
    "section 3",
)
def j6(results: Results) -> Finding:
    """Each model is judged at the longest trained length of at most 50 that it learned; one that learned none is left out. Three
    parts: each recurrent model is at most 5 % exact at twice that length and beyond; some transformer is above 5 % there; one with
    Hard-ALiBi is at least 90 % exact at the longest length that it was asked, which must be at least 20 times the trained one for
    the whole."""
    parts: list[Part] = []
    sat, came, reach = [], [], 0.0
    for exam in exams(results, COPYING):
        beyond: dict[str, dict[int, float]] = {}
        for name in exam.subjects:
            trained = exam.longest_learned(name, range(51))
            if trained is not None:
                exact = exam.exact(name)[trained]
                beyond[name] = {length: value for length, value in exact.items() if length >= 2 * trained}
                if "hard" in name and beyond[name]:
                    reach = max(reach, max(beyond[name]) / trained)
        if not any(beyond.values()):
            continue
        hard = [found for name, found in beyond.items() if "hard" in name and found]
        parts += [
            every(value <= FAILED for name in exam.recurrent for value in beyond.get(name, {}).values()),
            some(value > FAILED for name in exam.transformers for value in beyond.get(name, {}).values()),
            some(found[max(found)] >= NEAR for found in hard),
        ]
        sat.append(exam)
        came += [f"{name} {_told(found)}" for name, found in beyond.items() if found]
    if not sat:
        return untested("no exam beyond twice the trained length of a model that copies strings of that length")
    return _found(sat, parts, came, "exact at ", whole=reach >= 20)


@claim("J7", "Duplicated n-grams: unchanged up to n = 4, worse from 5", "section 3, B.2")
def j7(results: Results) -> Finding:
    """Of two parts, for each transformer at the longest trained length that it learned and was asked with n-grams planted: with an
    n-gram planted twice it is at most 5 points worse than without for every n up to 4; it is more than 5 points worse for some n
    from 5. Both want an n of either kind."""
    parts: list[Part] = []
    sat, came = [], []
    for exam in exams(results, COPYING):
        for name in exam.transformers:
            plain = exam.at_trained(name)
            by_trained = {trained: found for trained, found in _planted(exam, name).items() if trained in plain}
            if not by_trained:
                continue
            learned = exam.longest_learned(name, by_trained)
            trained = max(by_trained) if learned is None else learned
            found = by_trained[trained]
            sat.append(exam)
            came.append(f"{name}, {100 * plain[trained]:.4g} % of strings drawn at random: {_told(found)}")
            short, long = ([value for n, value in found.items() if (n <= 4) == small] for small in (True, False))
            if learned is not None and short and long:
                parts += [min(short) >= plain[trained] - FAILED, min(long) < plain[trained] - FAILED]
    if not parts:
        return untested("; ".join(came) or "no exam with planted n-grams")
    return _found(sat, parts, came, "exact by n: ")


def _planted(exam: Exam, name: str) -> dict[int, dict[int, float]]:
    """Share of whole strings right with an n-gram planted twice, by trained length and n, of strings of the trained length."""
    found: dict[int, dict[int, float]] = {}
    own = [line for line in exam.planted if line["subject"] == name and line["length"] == line["train_length"]]
    for (task, trained), lines in groups(own, "task", "train_length").items():
        measured = share(lines)
        if measured is not None:
            n = int(task.removeprefix(f"{DUPLICATED}-").partition("-")[0])
            found.setdefault(trained, {})[n] = measured[0]
    return found


@claim("J8", "Suffix lookup is poor for recurrent models; prefix lookup is perfect and length-general", "section 3")
def j8(results: Results) -> Finding:
    """Of two parts: no recurrent model has learned suffix lookup at the longest trained length that some model learned; some
    recurrent model has learned prefix lookup at some trained length and is at 95 % or more at twice the length. That a model has not
    learned is open where no other did with at most as many rows."""
    suffix = [exam for exam in exams(results, SUFFIX) if exam.recurrent]
    prefix = [exam for exam in exams(results, PREFIX) if exam.recurrent]
    if not suffix and not prefix:
        return untested("no exam of recurrent models on lookup")
    came = []
    for exam in suffix:
        shares = {name: exam.at_trained(name) for name in exam.subjects}
        came += [f"suffix lookup, {name}: {_told(found)}" for name, found in shares.items()]
    for exam in prefix:
        for name in exam.recurrent:
            came += [f"prefix lookup, {name}: {_told(lengths)}" for lengths in exam.exact(name).values()]
    parts = [
        [_fails_suffix(exam) for exam in suffix],
        [
            some(
                _passes_prefix(exam, name, trained, shares)
                for name in exam.recurrent
                for trained, shares in exam.exact(name).items()
            )
            for exam in prefix
        ],
    ]
    whole = all(any(part is not None for part in of_task) for of_task in parts)
    return _found([*suffix, *prefix], [part for of_task in parts for part in of_task], came, "", whole)


def _fails_suffix(exam: Exam) -> Part:
    learned = [exam.longest_learned(name, exam.trained) for name in exam.subjects]
    longest = max((length for length in learned if length is not None), default=None)
    if longest is None:
        return None
    asked = [name for name in exam.recurrent if longest in exam.at_trained(name)]
    return every(opposite(exam.learned(name, longest)) for name in asked)


def _passes_prefix(exam: Exam, name: str, trained: int, shares: dict[int, float]) -> Part:
    """Whether a model trained on up to so many letters learned it and is right at twice the length."""
    learned = exam.learned(name, trained)
    # What was not learned yet says nothing of longer strings.
    if not learned or 2 * trained not in shares:
        return None if learned else learned
    return shares[2 * trained] >= PASSED


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
