"""Cui et al. 2022, Jacobian and Hessian regularisation (arXiv 2212.00311)."""

from itertools import pairwise
from statistics import fmean, stdev

from relnet.claims.claim import Claim, Finding, claim, graded, untested
from relnet.claims.lines import Line, Results

LANCZOS = ("rectangular Lanczos", "Golub-Kahan")
LARGE = 1000
FIT = 0.95
EARLIER = ("hutchinson", "power")


@claim("R1", "Targets beyond zero work: symmetry, diagonality", "the paper's method")
def r1(results: Results) -> Finding:
    """Of two parts for each kind of structure, each at some weight of some penalty with which every seed fits with an R^2 above
    0.95: less is left of the forbidden part than without a penalty in every seed; in the mean over seeds at most a tenth is."""
    found = [(file, line) for file, line in results.having("run", "r2", "left")]
    kinds: dict[str, dict[tuple[str, float], list[Line]]] = {}
    for _, line in found:
        run = line["run"]
        kinds.setdefault(run["task"], {}).setdefault((run["penalty"], run["weight"]), []).append(line)
    parts, came = [], []
    for kind, runs in kinds.items():
        plain = runs.pop(("none", 0.0), [])
        fitting = {how: lines for how, lines in runs.items() if min(line["r2"] for line in lines) > FIT}
        if not plain or not runs:
            continue
        before = fmean(line["left"] for line in plain)
        left = {how: fmean(line["left"] for line in lines) for how, lines in fitting.items()}
        alone = {line["run"]["seed"]: line["left"] for line in plain}
        less = [all(line["left"] < alone.get(line["run"]["seed"], 0.0) for line in lines) for lines in fitting.values()]
        parts += [any(less), any(value <= before / 10 for value in left.values())]
        shown = ", ".join(f"{penalty} at {weight:g} {left[penalty, weight]:.1e}" for penalty, weight in left)
        came.append(f"{kind} ({len(plain)} seeds): {before:.1e} without, {shown or 'no fit with'}")
    if not parts:
        return untested("no lines of bench/curvature_structure.py")
    files = tuple(dict.fromkeys(file for file, _ in found))
    return Finding(
        graded(parts),
        f"{', '.join(kinds)}; with and without a penalty",
        "left of the forbidden part: " + "; ".join(came),
        files,
    )


@claim("R2", "Lanczos is effective and stable on large Jacobians and Hessians", "the paper's solver")
def r2(results: Results) -> Finding:
    """Each spectrum and number of products is a part, and holds if the better of our two Lanczos forms has at most power
    iteration's error, and no larger error than with fewer products; it holds as a whole only with a matrix of at least 1,000 rows
    or columns."""
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
        ours = {
            products: min(
                row["error"] for row in line["rows"] if row["method"] in LANCZOS and row["products"] == products
            )
            for products in power
        }
        errors = [ours[products] for products in sorted(ours)]
        falling = [True, *(after <= before for before, after in pairwise(errors))]
        parts += [
            ours[products] <= power[products] and down for products, down in zip(sorted(ours), falling, strict=True)
        ]
        gains += [power[products] / ours[products] for products in ours if ours[products] > 0]
    ran = (
        f"{len(found)} spectra and networks, {found[0][1]['starts']} starts, {len(parts)} comparisons at equal products"
    )
    size = max(max(line["shape"]) for _, line in found)
    times = f"{min(gains):.2g} to {max(gains):.2g}"
    came = f"{sum(parts)} of {len(parts)} hold, up to size {size:,}; power iteration's error is {times} times Lanczos's where above 0"
    return Finding(graded(parts, whole=size >= LARGE), ran, came, tuple(dict.fromkeys(file for file, _ in found)))


@claim(
    "R3",
    "Better than earlier methods (Hutchinson, power iteration) on a wide range of tasks",
    "the paper's experiments",
)
def r3(results: Results) -> Finding:
    """Each data set and operator is a part, and holds if Lanczos's accuracy under the worst attack at the largest radius, mean over
    seeds, each method at the weight that is best on the validation split, exceeds Hutchinson's and power iteration's by more than
    two standard errors; it holds as a whole only with a second data set."""
    found = [(file, line) for file, line in results.having("run", "validation", "test") if "operator" in line["run"]]
    tasks: dict[tuple[str, str], list[Line]] = {}
    for _, line in found:
        tasks.setdefault((line["run"]["data"], line["run"]["operator"]), []).append(line)
    parts, came = [], []
    for (data, operator), lines in tasks.items():
        scores = {method: _at_best_weight(lines, method) for method in (*EARLIER, "lanczos")}
        if not all(scores.values()):
            continue
        parts.append(all(_above(scores["lanczos"], scores[method]) for method in EARLIER))
        shown = ", ".join(f"{method} {100 * fmean(values):.1f} %" for method, values in scores.items())
        came.append(f"{data}, {operator}: {shown} ({len(scores['lanczos'])} seeds)")
    if not parts:
        return untested("no lines of bench/curvature_robustness.py with all three methods")
    sets = {data for data, _ in tasks}
    ran = f"small networks on {', '.join(sorted(sets))}, attacked; weights chosen on a validation split"
    files = tuple(dict.fromkeys(file for file, _ in found))
    return Finding(
        graded(parts, whole=len(sets) > 1), ran, "accuracy under the worst attack: " + "; ".join(came), files
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


def _above(ours: list[float], theirs: list[float]) -> bool:
    if min(len(ours), len(theirs)) < 2:
        return False
    error = (stdev(ours) ** 2 / len(ours) + stdev(theirs) ** 2 / len(theirs)) ** 0.5
    return fmean(ours) - fmean(theirs) > 2 * error


CURVATURE: tuple[Claim, ...] = (r1, r2, r3)
