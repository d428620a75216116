"""Cui 2024, "An All-MLP Sequence Modeling Architecture That Excels at Copying" (arXiv 2406.16168).

Copying runs are those of width 192 and depth 12, in the layout `cui2024`, trained as in the paper but for what a rule names. Runs that a
rule compares are compared at the seeds that they share: all in the paper's batches of 320 strings under bfloat16 autocast where there are
such runs and none of them broke off, before 99 % and 2,000 updates; else all in batches of 64 in float32.
Updates to 99 % are the mean over seeds; a run that never came there needs more than it did. A phase change takes at most half as many
updates from 20 % to 90 % accuracy as it took to 20 %; a curve that ends before that is settled leaves it open, but for one that is still
below 20 % after 1.5 times the updates that CausalRN took to 90 %: it shows none.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean

from relnet.claims.claim import Claim, Finding, claim, graded, untested
from relnet.claims.data_sets import c12, c13
from relnet.claims.lines import (
    PAPERS_BATCHES,
    PAPERS_STEPS,
    Key,
    Line,
    Results,
    Trained,
    all_of,
    at_seeds,
    files_of,
    files_of_lines,
    needed,
    told_steps,
)
from relnet.claims.parts import Part, every, judged, opposite

LENGTHS = (16, 32, 64, 128, 256)
QUADRATIC = ("causalrn", "transformer")
PAIRS = (("causalrn", "linear-causalrn"), ("transformer", "linear-transformer"))
RATES = (1e-5, 5e-5, 1e-4, 5e-4, 1e-3)
LATER = 1.5
# Linear CausalRN was given up below 50 % after so many updates.
PATIENCE = 1000


def _changes_phase(run: Trained, wait: float) -> Part:
    """Whether it shows a phase change; wait: updates after which a curve that has not left its plateau shows none."""
    first, then, steps = run.when(0.2), run.when(0.9), run.result["steps"]
    if first is None:
        return False if steps >= wait else None
    if then is not None:
        return then - first <= 0.5 * first
    # Its 90 % would lie behind its end.
    return False if steps + 1 - first > 0.5 * first else None


def _phases(found: Mapping[str, Sequence[Trained]], name: str) -> list[Part]:
    """Whether each run of this name shows a phase change, CausalRN's updates to 90 % known."""
    reached = [run.when(0.9) for run in found["causalrn"]]
    known = [step for step in reached if step is not None]
    wait = LATER * max(known) if len(known) == len(reached) else float("inf")
    return [_changes_phase(run, wait) for run in found[name]]


def _shape(run: Trained) -> str:
    first, then = run.when(0.2), run.when(0.9)
    if first is None:
        return f"below 20 % for {run.result['steps']:,} updates"
    return f"20 % at {first:,}, 90 % " + (f"not within {run.result['steps']:,}" if then is None else f"at {then:,}")


def _settings(runs: Iterable[Trained]) -> str:
    by_batches: dict[tuple[int, str], list[Trained]] = {}
    for run in runs:
        by_batches.setdefault(run.batches, []).append(run)
    told = []
    for (strings, precision), alike in by_batches.items():
        lengths = sorted({run.task["length"] for run in alike})
        rates = sorted({run.told["lr"] for run in alike})
        under = "" if precision == "float32" else f" under {precision}"
        told.append(
            f"{', '.join(map(str, lengths))} letters, lr {', '.join(f'{lr:g}' for lr in rates)}, batches of {strings}{under}, "
            f"{at_seeds(alike)}"
        )
    return "; ".join(told)


def _at_128(results: Results, *names: str) -> dict[str, list[Trained]]:
    """Runs at 128 letters to compare, by name."""
    return results.comparable({name: {"name": name, "length": 128} for name in names})


@claim("C1", "With exp the sum is exactly linear: O(N) training, O(1) state", "eq. 5")
def c1(results: Results) -> Finding:
    """Of three parts: the linear form gives the definition's numbers to 1e-5 (relative, float32); its time a token, forward and
    backward, grows by less than half from the shortest to the longest text that was timed, and its time from each length to the next
    by a power of the tokens below 1.5, nearer to linear than to quadratic; its state has as many bytes after each. The last two want
    two lengths."""
    lines = [
        (file, line)
        for file, line in results.having("case", "error", "training_seconds", "state_bytes")
        if line["case"] == "linear form"
    ]
    if not lines:
        return untested("no lines of bench/exactness.py")
    by_length = {line["length"]: line for _, line in lines}
    first, last = by_length[min(by_length)], by_length[max(by_length)]
    errors = [line["error"] for _, line in lines if line["error"] is not None]
    close = f"error at most {max(errors):.1e}" if errors else "no error measured"
    grows = (last["training_seconds"] / last["length"]) / (first["training_seconds"] / first["length"])
    # Step by step as well: of a short text the call itself is most of the time, which would hide what the longest ones add.
    powers = [
        math.log(longer["training_seconds"] / shorter["training_seconds"])
        / math.log(longer["length"] / shorter["length"])
        for shorter, longer in pairwise(by_length[length] for length in sorted(by_length))
    ]
    states = sorted({line["state_bytes"] for _, line in lines})
    paces = ", ".join(
        f"{1e6 * line['training_seconds'] / length:.2f} at {length:,}" for length, line in sorted(by_length.items())
    )
    came = (
        f"{close}; microseconds a token, forward and backward: {paces} tokens"
        f"{f', growing by a power of at most {max(powers):.2f}' if powers else ''}; "
        f"state of {' to '.join(f'{size:,}' for size in states)} bytes"
    )
    ran = (
        f"linear form against the definition, {first['length']:,} to {last['length']:,} tokens, width {first['width']}"
    )
    linear = [grows < LATER, *(power < 1.5 for power in powers)]
    timed = [every(linear), len(states) == 1] if powers else [None, None]
    return Finding(graded([every(error < 1e-5 for error in errors), *timed]), ran, came, files_of_lines(lines))


@claim("C2", "The stability trick is exact under the sum norm", "appendix A")
def c2(results: Results) -> Finding:
    """Holds if after the sum norm the stabilised sum and the plain one differ by less than 1e-5 (relative, float32)."""
    lines = [
        (file, line)
        for file, line in results.having("case", "error")
        if line["case"] == "stability" and line["error"] is not None
    ]
    if not lines:
        return untested("no lines of bench/exactness.py")
    close = max(line["error"] for _, line in lines)
    ran = "layer with and without the largest exponent taken out, below the sum norm, against float64"
    return Finding(
        graded([close < 1e-5]),
        ran,
        f"relative difference at most {close:.1e}",
        files_of_lines(lines),
    )


@claim("C3", "The sum norm steadies training, L = 128", "figure 2a")
def c3(results: Results) -> Finding:
    """Of two parts: with the sum norm training takes fewer updates to 99 %; with it the loss rises less from update to update, in
    all and in the mean over seeds, over the updates that all runs did, which must be as many as one of the two needs to 99 %."""
    found = _at_128(results, "causalrn", "causalrn-no-sum-norm")
    if not found:
        return untested()
    with_norm, without = found["causalrn"], found["causalrn-no-sum-norm"]
    common = min(run.result["steps"] for run in all_of(found))
    ours, theirs = (fmean(_rises(run, common) for run in runs) for runs in (with_norm, without))
    trained = common >= min(needed(runs)[1] for runs in (with_norm, without))
    parts = [judged(needed(with_norm), needed(without)), ours < theirs if trained else None]
    came = (
        f"updates to 99 %: {told_steps(with_norm)} with it, {told_steps(without)} without; "
        f"rises of the loss over {common:,} updates, in all: {ours:.2f} with it, {theirs:.2f} without"
    )
    return Finding(graded(parts), _settings(all_of(found)), came, files_of(all_of(found)))


def _rises(run: Trained, updates: int) -> float:
    loss = run.line["curve"]["loss"][:updates]
    return sum(max(0.0, after - before) for before, after in pairwise(loss))


@claim("C4", "Only the exact pair norm shows a phase change, near step 200", "figure 2b")
def c4(results: Results) -> Finding:
    """Of three parts: the exact pair norm shows a phase change; neither the approximate one nor none does; the exact one reaches
    90 % between 100 and 400 updates."""
    others = ("causalrn-approximate", "causalrn-no-pair-norm")
    found = _at_128(results, "causalrn", *others)
    if not found:
        return untested()
    parts = [
        every(_phases(found, "causalrn")),
        every(opposite(part) for name in others for part in _phases(found, name)),
        every(map(_near_200, found["causalrn"])),
    ]
    came = "; ".join(f"{name}: {_shape(run)}" for name, runs in found.items() for run in runs)
    return Finding(graded(parts), _settings(all_of(found)), came, files_of(all_of(found)))


def _near_200(run: Trained) -> Part:
    reached = run.when(0.9)
    if reached is None:
        return False if run.result["steps"] >= 400 else None
    return 100 <= reached <= 400


@claim("C5", "exp is fundamentally faster; ReLU and ELU fall gradually", "figure 2c")
def c5(results: Results) -> Finding:
    """Of two parts: ReLU and ELU each take more than 1.5 times exp's updates to 99 %; neither shows a phase change."""
    others = ("causalrn-relu", "causalrn-elu")
    found = _at_128(results, "causalrn", *others)
    if not found:
        return untested()
    parts = [
        every(_later(found, name, "causalrn") for name in others),
        every(opposite(part) for name in others for part in _phases(found, name)),
    ]
    came = "; ".join(
        f"{name}: 99 % at {told_steps([run])}, {_shape(run)}" for name, runs in found.items() for run in runs
    )
    return Finding(graded(parts), _settings(all_of(found)), came, files_of(all_of(found)))


def _later(found: Mapping[Key, Sequence[Trained]], key: Key, first: Key, times: float = LATER) -> Part:
    """Whether runs of this key need more than so many times the first's updates to 99 %."""
    return judged(needed(found[first]), needed(found[key]), times)


@claim("C6", "exp and the pair norm are both indispensable", "abstract")
def c6(results: Results) -> Finding:
    """Each change (ReLU or ELU for exp; the approximate pair norm or none for the exact one) is a part, and holds if 99 % then
    takes more than 1.5 times the updates."""
    changes = ("causalrn-relu", "causalrn-elu", "causalrn-approximate", "causalrn-no-pair-norm")
    found = _at_128(results, "causalrn", *changes)
    if not found:
        return untested()
    came = "updates to 99 %: " + "; ".join(f"{name} {told_steps(runs)}" for name, runs in found.items())
    parts = [_later(found, name, "causalrn") for name in changes]
    return Finding(graded(parts), _settings(all_of(found)), came, files_of(all_of(found)))


@claim(
    "C7", "The curves of CausalRN and Transformer are very similar: a plateau, then a near-vertical fall", "figure 3"
)
def c7(results: Results) -> Finding:
    """At 128 letters, of three parts: CausalRN shows a phase change, the Transformer does, neither takes more than 1.5
    times the other's updates to 99 %."""
    found = _at_128(results, *QUADRATIC)
    if not found:
        return untested()
    alike = every(opposite(_later(found, *pair)) for pair in (QUADRATIC, QUADRATIC[::-1]))
    parts = [*(every(_phases(found, name)) for name in QUADRATIC), alike]
    came = "; ".join(
        f"{name}: {_shape(run)}, 99 % at {told_steps([run])}" for name, runs in found.items() for run in runs
    )
    return Finding(graded(parts), _settings(all_of(found)), came, files_of(all_of(found)))


@claim("C8", "CausalRN reaches 99 % before the Transformer, L = 16 to 256", "figure 4")
def c8(results: Results) -> Finding:
    """Each length is a part, at the learning rate 5e-4 for both, and holds if CausalRN needs fewer updates to 99 %; it holds as a
    whole only if all of 16, 32, 64, 128 and 256 were run. Runs of both at 1e-3, which the paper says is CausalRN's best, stand
    beside them and are not judged."""
    pairs = _pairs(results, [QUADRATIC])
    parts = [_later(pair, "transformer", "causalrn", times=1) for _, pair in pairs]
    found = _compared([QUADRATIC], pairs, parts, whole=len(LENGTHS))
    faster = _pairs(results, [QUADRATIC], lr=1e-3)
    beside = f"; at lr 0.001: {_told_pairs(faster)}" if pairs and faster else ""
    return replace(found, came=found.came + beside)


@claim(
    "C9",
    "Linear models are always behind their quadratic counterparts; Linear CausalRN does not converge for L >= 128",
    "figure 4",
)
def c9(results: Results) -> Finding:
    """Each pair and length is a part, at the learning rate 5e-4, and holds if the quadratic model needs fewer updates to 99 %;
    Linear CausalRN not at 99 % within 2,000 updates, or given up below 50 % after 1,000 or more, is a further part at 128 and at
    256. It holds as a whole only if both pairs were run at all five lengths."""
    pairs = _pairs(results, PAIRS)
    parts = [_later(pair, slow, fast, times=1) for _, pair in pairs for fast, slow in PAIRS if slow in pair]
    parts += [
        every(map(_does_not_converge, pair["linear-causalrn"]))
        for length, pair in pairs
        if length >= 128 and "linear-causalrn" in pair
    ]
    return _compared(PAIRS, pairs, parts, whole=2 * len(LENGTHS) + 2)


def _does_not_converge(run: Trained) -> Part:
    if run.to_target is not None:
        return run.to_target > PAPERS_STEPS
    steps, given_up = run.result["steps"], run.result.get("stopped") == "given up"
    return True if steps >= (PATIENCE if given_up else PAPERS_STEPS) else None


Pairs = list[tuple[int, dict[str, list[Trained]]]]


def _pairs(results: Results, pairs: Iterable[tuple[str, str]], lr: float = 5e-4) -> Pairs:
    """Runs of each pair of models at each length at which both were run, by name."""
    found = [
        (length, results.comparable({name: {"name": name, "length": length, "lr": lr} for name in pair}))
        for length in LENGTHS
        for pair in pairs
    ]
    return [(length, pair) for length, pair in found if pair]


def _told_pairs(pairs: Pairs) -> str:
    """Updates to 99 % of each model by length."""
    shown: dict[int, list[str]] = {}
    for length, pair in pairs:
        shown.setdefault(length, []).extend(f"{name} {told_steps(runs)}" for name, runs in pair.items())
    return "; ".join(f"{length} letters: {', '.join(told)}" for length, told in shown.items())


def _not_run(wanted: Iterable[tuple[str, str]], pairs: Pairs) -> str:
    """Which pairs of models lack runs to compare, at which lengths."""
    missing = []
    for pair in wanted:
        done = {length for length, found in pairs if found.keys() == {*pair}}
        if left := [f"{length}" for length in LENGTHS if length not in done]:
            missing.append(f"{' and '.join(pair)} at {', '.join(left)} letters")
    return f"; not run side by side: {'; '.join(missing)}" if missing else ""


def _compared(wanted: Iterable[tuple[str, str]], pairs: Pairs, parts: Sequence[Part], whole: int) -> Finding:
    """The finding of C8 and C9; wanted: the pairs of models that the claim speaks of; whole: how many parts it has."""
    if not pairs:
        return untested()
    came = f"updates to 99 %: {_told_pairs(pairs)}{_not_run(wanted, pairs)}"
    runs = [run for _, pair in pairs for run in all_of(pair)]
    return Finding(graded(parts, whole=len(parts) == whole), _settings(runs), came, files_of(runs))


@claim(
    "C10", "Both quadratic models reach 100 % teacher-forced accuracy, which implies 100 % free-running", "appendix D"
)
def c10(results: Results) -> Finding:
    """Of two parts, over CausalRNs and Transformers of any rate that reached 99 % and were asked for strings of their trained
    length: each has every string exact, teacher-forced; each that has does so free-running as well. As a whole only with both
    models asked both ways at all five lengths."""
    runs = [
        run
        for length in LENGTHS
        for name in QUADRATIC
        for run in all_of(results.comparable({name: {"name": name, "length": length, "lr": None}}))
        if run.to_target is not None
    ]
    forced = [(run, exact) for run in runs if (exact := _exact(run, "teacher_forced")) is not None]
    free = [(run, exact) for run, right in forced if right and (exact := _exact(run, "free_running")) is not None]
    if not forced:
        return untested()
    whole = {(run.name, run.task["length"]) for run, _ in free} == {
        (name, length) for name in QUADRATIC for length in LENGTHS
    }
    asked = sum(row["items"] for run, _ in free for row in _rows(run, "free_running"))
    came = (
        f"{sum(exact for _, exact in forced)} of {len(forced)} runs have every string exact teacher-forced; of those, "
        f"{sum(exact for _, exact in free)} free-running ({asked:,} strings asked in all)"
    )
    parts = [every(exact for _, exact in forced), every(exact for _, exact in free)]
    used = [run for run, _ in forced]
    return Finding(graded(parts, whole), _settings(used), came, files_of(used))


def _rows(run: Trained, mode: str) -> list[Line]:
    """What the run was asked of its trained length in this mode."""
    return [row for row in run.exam if row["mode"] == mode and row["length"] == run.task["length"]]


def _exact(run: Trained, mode: str) -> Part:
    return every(row["exact"] == row["items"] for row in _rows(run, mode))


@claim(
    "C11",
    "One head is best of 1, 2, 4, 8; the best learning rate is 5e-4 for the Transformer, 1e-3 for CausalRN",
    "appendix D",
)
def c11(results: Results) -> Finding:
    """At 16 letters, of four parts: for either model one head takes fewer updates to 99 % than 2, 4 and 8 at the rate that is named
    for it; with one head, of the rates 1e-5 to 1e-3, the one named takes fewer than each other."""
    parts: list[Part] = []
    came, used = [], []
    for name, named in (("causalrn", 1e-3), ("transformer", 5e-4)):
        by_rate = results.comparable({lr: {"name": name, "length": 16, "lr": lr} for lr in RATES})
        parts.append(_fewest(by_rate, named))
        if by_rate:
            came.append(f"{name}, one head: " + ", ".join(f"lr {lr:g} {told_steps(by_rate[lr])}" for lr in RATES))
        by_heads = results.comparable(
            {
                heads: {
                    "name": name if heads == 1 else f"{name}-{heads}-heads",
                    "length": 16,
                    "lr": named,
                    "heads": heads,
                }
                for heads in (1, 2, 4, 8)
            }
        )
        parts.append(_fewest(by_heads, 1))
        if by_heads:
            told = ", ".join(f"{heads} heads {told_steps(runs)}" for heads, runs in by_heads.items())
            came.append(f"{name}, lr {named:g}: {told}")
        used += [run for found in (by_rate, by_heads) for runs in found.values() for run in runs]
    if not used:
        return untested()
    return Finding(graded(parts), _settings(used), "; ".join(came), files_of(used))


def _fewest(found: Mapping[Key, Sequence[Trained]], named: Key) -> Part:
    """Whether the named one takes fewer updates to 99 % than each other."""
    return every(_later(found, key, named, times=1) for key in found if key != named)


@claim("C14", "Heat maps pick the main object", "figure 8")
def c14(results: Results) -> Finding:
    """A judgement of pictures, for which there is no rule over data."""
    return untested("no measurement")


@claim("C15", "A run takes at most 1.5 hours on an A100", "appendix D")
def c15(results: Results) -> Finding:
    """Holds if every copying run of the paper's size (width 192, depth 12, 2,000 updates of 320 strings under bfloat16) on an A100
    took at most 1.5 hours."""
    runs = [
        run
        for run in results.runs
        if "A100" in run.result["machine"]
        and run.copies
        and run.batches == PAPERS_BATCHES
        and run.result["steps"] == PAPERS_STEPS
    ]
    if not runs:
        return untested("no A100")
    hours = max(run.result["wall_seconds"] / 3600 for run in runs)
    return Finding(graded([hours <= 1.5]), f"{len(runs)} runs", f"at most {hours:.2f} hours", files_of(runs))


CAUSALRN: tuple[Claim, ...] = (c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15)
