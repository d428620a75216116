"""Cui et al. 2022, Jacobian and Hessian regularisation (arXiv 2212.00311)."""

from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

from relnet.claims.claim import Claim, Finding, claim, graded, untested
from relnet.claims.lines import Line, Results, files_of_lines
from relnet.claims.parts import Part, every

LANCZOS = ("rectangular Lanczos", "Golub-Kahan")
LARGE = 1000
FIT = 0.95
EARLIER = ("hutchinson", "power")


@claim("R1", "Targets beyond zero work: symmetry, diagonality", "the paper's method")
def r1(results: Results) -> Finding:
    """Of two parts for each kind of structure and size of run, each at some weight of some penalty that was run at every seed of the
    runs without one and fits with an R^2 above 0.95 at each: less is left of the forbidden part than without a penalty at every
    seed; in the mean over seeds at most a tenth is."""
    found = [(file, line) for file, line in results.having("run", "r2", "left")]
    kinds: dict[tuple[Any, ...], dict[tuple[str, float], dict[int, Line]]] = {}
    for _, line in found:
        run = line["run"]
        kind = kinds.setdefault((run["task"], run.get("size"), run.get("steps")), {})
        kind.setdefault((run["penalty"], run["weight"]), {})[run["seed"]] = line
    parts: list[Part] = []
    came = []
    for (kind, *_), runs in kinds.items():
        plain = runs.pop(("none", 0.0), {})
        # A weight that has not been run at all seeds yet is not compared.
        whole = {how: lines for how, lines in runs.items() if plain and lines.keys() >= plain.keys()}
        if not whole:
            continue
        fitting = {how: lines for how, lines in whole.items() if all(lines[seed]["r2"] > FIT for seed in plain)}
        before = fmean(line["left"] for line in plain.values())
        left = {how: fmean(lines[seed]["left"] for seed in plain) for how, lines in fitting.items()}
        less = [all(lines[seed]["left"] < line["left"] for seed, line in plain.items()) for lines in fitting.values()]
        parts += [any(less), any(value <= before / 10 for value in left.values())]
        shown = ", ".join(f"{penalty} at {weight:g} {left[penalty, weight]:.1e}" for penalty, weight in left)
        came.append(f"{kind} ({len(plain)} seeds): {before:.1e} without, {shown or 'no fit with'}")
    if not parts:
        return untested("no lines of bench/curvature_structure.py with and without a penalty at the same seeds")
    return Finding(
        graded(parts),
        f"{', '.join(dict.fromkeys(kind for kind, *_ in kinds))}; with and without a penalty",
        "left of the forbidden part: " + "; ".join(came),
        files_of_lines(found),
    )


@claim("R2", "Lanczos is effective and stable on large Jacobians and Hessians", "the paper's solver")
def r2(results: Results) -> Finding:
    """Each spectrum and number of products that both were given is a part, and holds if the better of our two Lanczos forms has at
    most power iteration's error, and no larger error than with fewer products; it holds as a whole only with a matrix of at
    least 1,000 rows or columns."""
    found = [
        (file, line)
        for file, line in results.having("case", "rows", "iters")
        if line["rows"] and "error" in line["rows"][0]
    ]
    if not found:
        return untested("no lines of bench/curvature.py")
    parts, gains = [], []
    for _, line in found:
        power = {row["products"]: row["error"] for row in line["rows"] if row["method"] == "power"}
        ours: dict[int, float] = {}
        for row in line["rows"]:
            if row["method"] in LANCZOS and row["products"] in power:
                ours[row["products"]] = min(row["error"], ours.get(row["products"], row["error"]))
        compared = sorted(ours)
        falling = [True, *(ours[more] <= ours[fewer] for fewer, more in pairwise(compared))]
        parts += [ours[products] <= power[products] and down for products, down in zip(compared, falling, strict=False)]
        gains += [power[products] / ours[products] for products in compared if ours[products] > 0]
    if not parts:
        return untested("no lines of bench/curvature.py with power iteration and Lanczos at equal products")
    ran = (
        f"{len(found)} spectra and networks, {found[0][1]['starts']} starts, {len(parts)} comparisons at equal products"
    )
    # The first is how many matrices there are.
    size = max(max(line["shape"][1:]) for _, line in found)
    came = f"{sum(parts)} of {len(parts)} hold, up to size {size:,}"
    if gains:
        came += f"; power iteration's error is {min(gains):.2g} to {max(gains):.2g} times Lanczos's where above 0"
    return Finding(graded(parts, whole=size >= LARGE), ran, came, files_of_lines(found))


@claim(
    "R3",
    "Better than earlier methods (Hutchinson, power iteration) on a wide range of tasks",
    "the paper's experiments",
)
def r3(results: Results) -> Finding:
    """Each data set and operator, in runs alike in all but method, weight and seed, is a part, and holds if Lanczos's accuracy under
    the worst attack at the largest radius, mean over seeds, each method at the weight that is best on the validation split, exceeds
    Hutchinson's and power iteration's by more than two standard errors; with one seed it is open. It holds as a whole only with a
    second data set."""
    found = [
        (file, line)
        for file, line in results.having("run", "validation", "test")
        if "operator" in line["run"] and line["validation"]["attacks"] and line["test"]["attacks"]
    ]
    tasks: dict[str, list[Line]] = {}
    for _, line in found:
        alike = {**line["run"], "method": None, "weight": None, "seed": None}
        tasks.setdefault(repr(sorted(alike.items())), []).append(line)
    parts: list[Part] = []
    came, sets = [], set()
    for lines in tasks.values():
        data, operator = lines[0]["run"]["data"], lines[0]["run"]["operator"]
        scores = {method: _at_best_weight(lines, method) for method in (*EARLIER, "lanczos")}
        if not all(scores.values()):
            continue
        parts.append(every(_above(scores["lanczos"], scores[method]) for method in EARLIER))
        sets.add(data)
        shown = ", ".join(f"{method} {100 * fmean(values):.1f} %" for method, values in scores.items())
        came.append(f"{data}, {operator}: {shown} ({len(scores['lanczos'])} seeds)")
    if not parts:
        return untested("no lines of bench/curvature_robustness.py with all three methods")
    ran = f"small networks on {', '.join(sorted(sets))}, attacked; weights chosen on a validation split"
    return Finding(
        graded(parts, whole=len(sets) > 1),
        ran,
        "accuracy under the worst attack: " + "; ".join(came),
        files_of_lines(found),
    )


def _worst(line: Line, split: str) -> float:
    radius = max(eps for _, eps, _ in line[split]["attacks"])
    return min(accuracy for _, eps, accuracy in line[split]["attacks"] if eps == radius)


def _at_best_weight(lines: list[Line], method: str) -> list[float]:
    """Test accuracies, one a seed, at the weight whose mean on the validation split is highest."""
    by_weight: dict[float, list[Line]] = {}
    for line in lines:
        if line["run"]["method"] == method:
            by_weight.setdefault(line["run"]["weight"], []).append(line)
    if not by_weight:
        return []
    # A weight that has not been run at all seeds yet is not compared.
    most = max(map(len, by_weight.values()))
    whole = [of_weight for of_weight in by_weight.values() if len(of_weight) == most]
    chosen = max(whole, key=lambda of_weight: fmean(_worst(line, "validation") for line in of_weight))
    return [_worst(line, "test") for line in chosen]


def _above(ours: list[float], theirs: list[float]) -> Part:
    if min(len(ours), len(theirs)) < 2:
        return None
    error = (stdev(ours) ** 2 / len(ours) + stdev(theirs) ** 2 / len(theirs)) ** 0.5
    return fmean(ours) - fmean(theirs) > 2 * error


CURVATURE: tuple[Claim, ...] = (r1, r2, r3)
