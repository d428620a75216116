"""Cui 2024, "An All-MLP Sequence Modeling Architecture That Excels at Copying" (arXiv 2406.16168).

Copying runs are those at width 192 and depth 12, in float32 and batches of 64 strings; the paper has batches of 320 under bfloat16
autocast. A phase change is a curve that takes at most half as many updates from 20 % to 90 % accuracy as it took to 20 %.
"""

from collections.abc import Sequence
from itertools import pairwise

from relnet.claims.claim import Claim, Finding, claim, graded, untested
from relnet.claims.lines import Results, Trained, at_least, at_seeds, files_of, mean_steps, told_steps

LENGTHS = (16, 32, 64, 128, 256)
QUADRATIC = ("causalrn", "transformer")
PAIRS = (("linear-causalrn", "causalrn"), ("linear-transformer", "transformer"))
LATER = 1.5
EPOCH = 522_243_436


def _changes_phase(run: Trained) -> bool:
    first, then = run.when(0.2), run.when(0.9)
    return first is not None and then is not None and then - first <= 0.5 * first


def _shape(run: Trained) -> str:
    first, then = run.when(0.2), run.when(0.9)
    if first is None:
        return f"below 20 % for {run.result['steps']:,} updates"
    return f"20 % at {first:,}, 90 % " + (f"not within {run.result['steps']:,}" if then is None else f"at {then:,}")


def _settings(runs: Sequence[Trained]) -> str:
    lengths = sorted({run.task["length"] for run in runs})
    rates = sorted({run.told["lr"] for run in runs})
    return f"{', '.join(map(str, lengths))} letters, lr {', '.join(f'{lr:g}' for lr in rates)}, batches of 64, {at_seeds(runs)}"


def _ablations(results: Results, *names: str) -> dict[str, list[Trained]] | None:
    """Runs of figure 2 at 128 letters by name, None where one of them is missing."""
    found = {name: results.copying(name, length=128) for name in ("causalrn", *names)}
    return found if all(found.values()) else None


def _all(found: dict[str, list[Trained]]) -> list[Trained]:
    return [run for runs in found.values() for run in runs]


@claim("C1", "With exp the sum is exactly linear: O(N) training, O(1) state", "eq. 5")
def c1(results: Results) -> Finding:
    """Of three parts: the linear form gives the definition's numbers to 1e-5 (relative, float32); its time a token grows by less
    than half from the shortest to the longest text that was timed; its state has as many bytes after each."""
    lines = [
        (file, line) for file, line in results.having("case", "error", "state_bytes") if line["case"] == "linear form"
    ]
    if not lines:
        return untested("no lines of bench/exactness.py")
    first, last = lines[0][1], lines[-1][1]
    close = max(line["error"] for _, line in lines if line["error"] is not None)
    grows = (last["seconds"] / last["length"]) / (first["seconds"] / first["length"])
    states = sorted({line["state_bytes"] for _, line in lines})
    came = (
        f"error at most {close:.1e}; time a token at {last['length']:,} tokens is {grows:.2f} of that at {first['length']:,}; "
        f"state of {' to '.join(f'{size:,}' for size in states)} bytes"
    )
    ran = (
        f"linear form against the definition, {first['length']:,} to {last['length']:,} tokens, width {first['width']}"
    )
    parts = [close < 1e-5, grows < LATER, len(states) == 1]
    return Finding(graded(parts), ran, came, tuple({file: None for file, _ in lines}))


@claim("C2", "The stability trick is exact under the sum norm", "appendix A")
def c2(results: Results) -> Finding:
    """Holds if after the sum norm the stabilised sum and the plain one differ by less than 1e-5 (relative, float32)."""
    lines = [(file, line) for file, line in results.having("case", "error") if line["case"] == "stability"]
    if not lines:
        return untested("no lines of bench/exactness.py")
    close = max(line["error"] for _, line in lines)
    ran = "layer with and without the largest exponent taken out, below the sum norm, against float64"
    return Finding(
        graded([close < 1e-5]),
        ran,
        f"relative difference at most {close:.1e}",
        tuple({file: None for file, _ in lines}),
    )


@claim("C3", "The sum norm steadies training, L = 128", "figure 2a")
def c3(results: Results) -> Finding:
    """Of two parts: with the sum norm training takes fewer updates to 99 %; with it the loss rises less from update to update, in
    all, over the updates that both did."""
    found = _ablations(results, "causalrn-no-sum-norm")
    if found is None:
        return untested()
    with_norm, without = found["causalrn"], found["causalrn-no-sum-norm"]
    faster = _sooner(with_norm, without)
    common = min(run.result["steps"] for run in _all(found))
    rises = {name: max(_rises(run, common) for run in runs) for name, runs in found.items()}
    steadier = rises["causalrn"] < rises["causalrn-no-sum-norm"]
    came = (
        f"updates to 99 %: {told_steps(with_norm)} with it, {told_steps(without)} without; "
        f"rises of the loss over {common:,} updates, in all: "
        f"{rises['causalrn']:.2f} with it, {rises['causalrn-no-sum-norm']:.2f} without"
    )
    return Finding(graded([faster, steadier]), _settings(_all(found)), came, files_of(_all(found)))


def _rises(run: Trained, updates: int) -> float:
    loss = run.line["curve"]["loss"][:updates]
    return sum(max(0.0, after - before) for before, after in pairwise(loss))


@claim("C4", "Only the exact pair norm shows a phase change, near step 200", "figure 2b")
def c4(results: Results) -> Finding:
    """Of three parts: the exact pair norm shows a phase change; neither the approximate one nor none does; it reaches 90 % between
    100 and 400 updates."""
    found = _ablations(results, "causalrn-approximate", "causalrn-no-pair-norm")
    if found is None:
        return untested()
    exact = found["causalrn"]
    others = [*found["causalrn-approximate"], *found["causalrn-no-pair-norm"]]
    near = all(100 <= (run.when(0.9) or 0) <= 400 for run in exact)
    parts = [all(map(_changes_phase, exact)), not any(map(_changes_phase, others)), near]
    came = "; ".join(f"{name}: {_shape(run)}" for name, runs in found.items() for run in runs)
    return Finding(graded(parts), _settings(_all(found)), came, files_of(_all(found)))


@claim("C5", "exp is fundamentally faster; ReLU and ELU fall gradually", "figure 2c")
def c5(results: Results) -> Finding:
    """Of two parts: ReLU and ELU take at least 1.5 times exp's updates to 99 %, or never come there; neither shows a phase change."""
    found = _ablations(results, "causalrn-relu", "causalrn-elu")
    if found is None:
        return untested()
    others = [found["causalrn-relu"], found["causalrn-elu"]]
    parts = [
        all(_later(found["causalrn"], runs) for runs in others),
        not any(_changes_phase(run) for runs in others for run in runs),
    ]
    came = "; ".join(f"{name}: 99 % at {told_steps(runs)}, {_shape(runs[0])}" for name, runs in found.items())
    return Finding(graded(parts), _settings(_all(found)), came, files_of(_all(found)))


def _later(runs: Sequence[Trained], others: Sequence[Trained]) -> bool:
    """Whether the others take at least 1.5 times as many updates to 99 %, those counted that they did in vain."""
    ours = mean_steps(runs)
    return ours is not None and at_least(others) >= LATER * ours


@claim("C6", "exp and the pair norm are both indispensable", "abstract")
def c6(results: Results) -> Finding:
    """Each change (ReLU or ELU for exp; the approximate pair norm or none for the exact one) is a part, and holds if 99 % then
    takes at least 1.5 times the updates or is not reached."""
    names = ("causalrn-relu", "causalrn-elu", "causalrn-approximate", "causalrn-no-pair-norm")
    found = _ablations(results, *names)
    if found is None:
        return untested()
    parts = [_later(found["causalrn"], found[name]) for name in names]
    came = "updates to 99 %: " + "; ".join(f"{name} {told_steps(runs)}" for name, runs in found.items())
    return Finding(graded(parts), _settings(_all(found)), came, files_of(_all(found)))


@claim(
    "C7", "The curves of CausalRN and Transformer are very similar: a plateau, then a near-vertical fall", "figure 3"
)
def c7(results: Results) -> Finding:
    """At 128 letters, of three parts: CausalRN shows a phase change, the Transformer does, their updates to 99 % differ by less
    than a half."""
    found = {name: results.copying(name, length=128) for name in QUADRATIC}
    if not all(found.values()):
        return untested()
    means = [mean_steps(runs) for runs in found.values()]
    known = [mean for mean in means if mean is not None]
    alike = len(known) == 2 and max(known) < LATER * min(known)
    parts = [*(all(map(_changes_phase, runs)) for runs in found.values()), alike]
    came = "; ".join(
        f"{name}: {_shape(run)}, 99 % at {told_steps([run])}" for name, runs in found.items() for run in runs
    )
    return Finding(graded(parts), _settings(_all(found)), came, files_of(_all(found)))


@claim("C8", "CausalRN reaches 99 % before the Transformer, L = 16 to 256", "figure 4")
def c8(results: Results) -> Finding:
    """Each length is a part, at the learning rate 5e-4 for both, and holds if CausalRN's mean number of updates to 99 % is smaller;
    it holds as a whole only if all of 16, 32, 64, 128 and 256 were run."""
    found = _by_length(results, *QUADRATIC)
    parts = [_sooner(found[length]["causalrn"], found[length]["transformer"]) for length in found]
    return _compared(results, found, parts)


@claim(
    "C9",
    "Linear models are always behind their quadratic counterparts; Linear CausalRN does not converge for L >= 128",
    "figure 4",
)
def c9(results: Results) -> Finding:
    """Each pair and length is a part, and holds if the quadratic model's mean number of updates to 99 % is smaller; Linear CausalRN
    not at 99 % within 2,000 updates, or given up below 50 % after 1,000, is a further part at 128 and at 256. It holds as a whole
    only if all five lengths were run."""
    found = _by_length(results, "causalrn", "linear-causalrn", "transformer", "linear-transformer")
    parts = [_sooner(by_name[fast], by_name[slow]) for by_name in found.values() for slow, fast in PAIRS]
    parts += [
        all(run.to_target is None for run in found[length]["linear-causalrn"])
        for length in (128, 256)
        if length in found
    ]
    return _compared(results, found, parts)


def _by_length(results: Results, *names: str) -> dict[int, dict[str, list[Trained]]]:
    """Copying runs by length and name, at the lengths at which every name was run at the same seeds: only those seeds."""
    found: dict[int, dict[str, list[Trained]]] = {}
    for length in LENGTHS:
        runs = {name: results.copying(name, length=length) for name in names}
        shared = set.intersection(*({run.told["seed"] for run in of_name} for of_name in runs.values()))
        if shared:
            found[length] = {
                name: [run for run in of_name if run.told["seed"] in shared] for name, of_name in runs.items()
            }
    return found


def _sooner(runs: Sequence[Trained], others: Sequence[Trained]) -> bool:
    ours = mean_steps(runs)
    return ours is not None and ours < at_least(others)


def _compared(results: Results, found: dict[int, dict[str, list[Trained]]], parts: Sequence[bool]) -> Finding:
    if not found:
        return untested()
    runs = [run for by_name in found.values() for run in _all(by_name)]
    came = "updates to 99 %: " + "; ".join(
        f"{length} letters: " + ", ".join(f"{name} {told_steps(of_name)}" for name, of_name in by_name.items())
        for length, by_name in found.items()
    )
    return Finding(graded(parts, whole=set(found) == set(LENGTHS)), _settings(runs), came, files_of(runs))


@claim(
    "C10", "Both quadratic models reach 100 % teacher-forced accuracy, which implies 100 % free-running", "appendix D"
)
def c10(results: Results) -> Finding:
    """Of two parts, over CausalRNs and Transformers that reached 99 %: each has every string exact, teacher-forced; each that has
    does so free-running as well. As a whole only with both models at all five lengths."""
    runs = [run for run in results.copying(*QUADRATIC, lr=None) if run.to_target is not None and run.exam]
    if not runs:
        return untested()
    exact = {
        mode: [all(row["exact"] == row["items"] for row in run.exam if row["mode"] == mode) for run in runs]
        for mode in ("teacher_forced", "free_running")
    }
    implied = [free for forced, free in zip(exact["teacher_forced"], exact["free_running"], strict=True) if forced]
    whole = {(run.name, run.task["length"]) for run in runs} == {
        (name, length) for name in QUADRATIC for length in LENGTHS
    }
    items = sum(row["items"] for run in runs for row in run.exam if row["mode"] == "free_running")
    came = (
        f"{sum(exact['teacher_forced'])} of {len(runs)} runs have every string exact teacher-forced; of those, {sum(implied)} free-running "
        f"({items:,} strings asked in all)"
    )
    return Finding(graded([all(exact["teacher_forced"]), all(implied)], whole), _settings(runs), came, files_of(runs))


@claim(
    "C11",
    "One head is best of 1, 2, 4, 8; the best learning rate is 5e-4 for the Transformer, 1e-3 for CausalRN",
    "appendix D",
)
def c11(results: Results) -> Finding:
    """At 16 letters, of four parts, each where it was run: for either model one head takes the fewest updates to 99 % at the
    model's best rate; its best of the rates 1e-5 to 1e-3 with one head is the one named."""
    rates = (1e-5, 5e-5, 1e-4, 5e-4, 1e-3)
    parts, came, used = [], [], []
    for name, named in (("causalrn", 1e-3), ("transformer", 5e-4)):
        by_rate = {lr: results.copying(name, length=16, lr=lr) for lr in rates}
        if all(by_rate.values()):
            best = min(rates, key=lambda lr: _rank(by_rate[lr]))
            parts.append(best == named)
            came.append(f"{name}, one head: " + ", ".join(f"lr {lr:g} {told_steps(by_rate[lr])}" for lr in rates))
            used += _all({str(lr): runs for lr, runs in by_rate.items()})
        by_heads = {
            heads: results.copying(name if heads == 1 else f"{name}-{heads}-heads", length=16, lr=named, heads=heads)
            for heads in (1, 2, 4, 8)
        }
        if all(by_heads.values()):
            parts.append(min(by_heads, key=lambda heads: _rank(by_heads[heads])) == 1)
            came.append(
                f"{name}, lr {named:g}: " + ", ".join(f"{n} heads {told_steps(runs)}" for n, runs in by_heads.items())
            )
            used += [run for runs in by_heads.values() for run in runs]
    if not parts:
        return untested()
    return Finding(graded(parts, whole=len(parts) == 4), _settings(used), "; ".join(came), files_of(used))


def _rank(runs: Sequence[Trained]) -> float:
    mean = mean_steps(runs)
    return float("inf") if mean is None else mean


@claim(
    "C12",
    "Linear CausalRN converges like Transformer and Linear Transformer on WikiText-103 characters, and spells well",
    "figure 6",
)
def c12(results: Results) -> Finding:
    """Holds if Linear CausalRN's bits per byte are at most 5 % above the better Transformer's after one epoch of WikiText-103; in
    part if so on less or another text."""
    names = ("linear-causalrn", "transformer", "linear-transformer")
    runs = {
        run.name: run
        for run in results.runs
        if run.task.get("_type") == "Text" and run.name in names and run.result["bits_per_byte"]
    }
    if len(runs) < len(names):
        return untested()
    bits = {name: runs[name].result["bits_per_byte"] for name in names}
    tokens = min(run.result["steps"] * run.told["batch_size"] * run.task["context"] for run in runs.values())
    alike = bits["linear-causalrn"] <= 1.05 * min(bits["transformer"], bits["linear-transformer"])
    model = runs["linear-causalrn"].model
    ran = f"width {model['width']}, {model['depth']} blocks, {tokens:,} bytes read, {at_seeds(runs.values())}"
    came = "bits per byte of the whole validation text: " + ", ".join(
        f"{name} {value:.3f}" for name, value in bits.items()
    )
    return Finding(graded([alike], whole=tokens >= EPOCH // 2), ran, came, files_of(runs.values()))


@claim(
    "C13", "Linear BiRN converges like Transformer and Linear Transformer on CIFAR-5m, loss and accuracy", "figure 7"
)
def c13(results: Results) -> Finding:
    """Each set of images is a part, and holds if Linear BiRN's accuracy on the images held out is at most 1 point below the better
    Transformer's (of a model's runs, the latest). It holds as a whole only on CIFAR-5m."""
    names = ("linear-birn", "transformer", "linear-transformer")
    by_data: dict[str, dict[str, Trained]] = {}
    for run in results.runs:
        if run.task.get("_type") == "Images" and run.name in names and run.line.get("images"):
            data = ", ".join(one.rpartition("/")[2] for one in run.task["data"])
            by_data.setdefault(data, {})[run.name] = run
    parts, came, used = [], [], []
    for data, runs in by_data.items():
        if len(runs) < len(names):
            continue
        right = {name: runs[name].line["images"][-1]["test_accuracy"] for name in names}
        parts.append(right["linear-birn"] >= max(right["transformer"], right["linear-transformer"]) - 0.01)
        seen = runs["linear-birn"].result["steps"] * runs["linear-birn"].told["batch_size"]
        came.append(
            f"{data}, {seen:,} images seen: "
            + ", ".join(f"{name} {100 * value:.1f} %" for name, value in right.items())
        )
        used += list(runs.values())
    if not parts:
        return untested()
    model = used[0].model
    ran = f"width {model['width']}, {model['depth']} blocks, {at_seeds(used)}"
    return Finding(
        graded(parts, whole="cifar5m" in " ".join(by_data)),
        ran,
        "accuracy on images held out: " + "; ".join(came),
        files_of(used),
    )


@claim("C14", "Heat maps pick the main object", "figure 8")
def c14(results: Results) -> Finding:
    """A judgement of pictures, for which there is no rule over data."""
    return untested("no measurement")


@claim("C15", "A run takes at most 1.5 hours on an A100", "appendix D")
def c15(results: Results) -> Finding:
    """Holds if every copying run with batches of 320, 2,000 updates long, on an A100, took at most 1.5 hours."""
    runs = [run for run in results.runs if "A100" in run.result["machine"] and run.told["batch_size"] == 320]
    if not runs:
        return untested("no A100")
    hours = max(run.result["wall_seconds"] / 3600 for run in runs)
    return Finding(graded([hours <= 1.5]), f"{len(runs)} runs", f"at most {hours:.2f} hours", files_of(runs))


CAUSALRN: tuple[Claim, ...] = (c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15)
