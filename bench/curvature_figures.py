"""Figures of the curvature results, drawn from their JSON lines alone.

python bench/curvature_figures.py results
"""

import argparse
import json
import statistics
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

NAMES = {
    "none": "none",
    "hutchinson": "Hutchinson",
    "power": "power iteration",
    "lanczos": "Lanczos",
    "exact": "exact",
    "pgd": "PGD training",
}
COLOURS = {
    "none": "black",
    "hutchinson": "#0072B2",
    "power": "#E69F00",
    "lanczos": "#009E73",
    "exact": "#CC79A7",
    "pgd": "#999999",
}
Line = dict[str, Any]


def read(path: Path) -> list[Line]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def of_whole_seeds(lines: list[Line]) -> list[Line]:
    """Without the runs of a seed that has fewer of them than others, so that every method has the same seeds."""
    counts = Counter(line["run"]["seed"] for line in lines)
    return [line for line in lines if counts[line["run"]["seed"]] == max(counts.values())]


def accuracy(line: Line, split: str, eps: float) -> float:
    """The lowest of all attacks."""
    return min(found for _, radius, found in line[split]["attacks"] if radius == eps)


def chosen(lines: list[Line], eps: float, most_lost: float = 0.02) -> list[Line]:
    """Of each seed and method the weight that is most robust on validation data and costs at most `most_lost` of clean accuracy there."""
    best = []
    by_run = defaultdict(list)
    for line in lines:
        by_run[line["run"]["method"], line["run"]["seed"]].append(line)
    clean = {seed: accuracy(runs[0], "validation", 0.0) for (method, seed), runs in by_run.items() if method == "none"}
    for (_, seed), runs in by_run.items():
        good = [run for run in runs if accuracy(run, "validation", 0.0) >= clean[seed] - most_lost]
        if good:
            best.append(max(good, key=lambda run: accuracy(run, "validation", eps)))
    return best


def draw_robustness(axes: Any, lines: list[Line], eps: float) -> None:
    """Clean against robust test accuracy, the mean over seeds of each weight; bars: the range over seeds."""
    for method, name in NAMES.items():
        weights = sorted({line["run"]["weight"] for line in lines if line["run"]["method"] == method})
        points = []
        for weight in weights:
            runs = [line for line in lines if (line["run"]["method"], line["run"]["weight"]) == (method, weight)]
            points.append([[accuracy(run, "test", radius) for run in runs] for radius in (0.0, eps)])
        if not points:
            continue
        clean, robust = ([statistics.mean(point[axis]) for point in points] for axis in (0, 1))
        low = [statistics.mean(point[1]) - min(point[1]) for point in points]
        high = [max(point[1]) - statistics.mean(point[1]) for point in points]
        axes.errorbar(
            clean,
            robust,
            (low, high),
            fmt="o-",
            color=COLOURS[method],
            label=name,
            markersize=4,
            linewidth=1.2,
            capsize=2,
        )
    axes.set_xlabel("clean accuracy")
    axes.set_ylabel(f"accuracy under attack, eps = {eps:.3g}")


def robustness_figure(lines: list[Line], title: str, path: Path) -> None:
    radii = [eps for eps in lines[0]["run"]["eps"] if eps > 0]
    figure = Figure(figsize=(4.6 * len(radii), 4), layout="constrained", facecolor="white")
    for axes, eps in zip(figure.subplots(1, len(radii), squeeze=False)[0], radii, strict=True):
        draw_robustness(axes, lines, eps)
        _plain(axes)
    figure.axes[-1].legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=150)


def table(lines: list[Line]) -> None:
    """Print the chosen weights' test figures, mean and range over seeds."""
    radii = lines[0]["run"]["eps"]
    for eps in radii[1:]:
        print(f"chosen for eps {eps:.3g} on validation data")
        for method in NAMES:
            best = [line for line in chosen(lines, eps) if line["run"]["method"] == method]
            if not best:
                continue
            shown = []
            for radius in (0.0, eps):
                values = [100 * accuracy(line, "test", radius) for line in best]
                shown.append(f"{statistics.mean(values):5.1f} ({min(values):.1f} to {max(values):.1f})")
            weights = sorted({line["run"]["weight"] for line in best})
            masked = sum(eps in line["test"]["masked_at"] for line in best)
            print(
                f"  {method:11} clean {shown[0]}  attacked {shown[1]}  weights {weights}  masked in {masked} of {len(best)}"
            )


def structure_figure(lines: list[Line], path: Path) -> None:
    """What is left against R^2, one point a run."""
    figure = Figure(figsize=(9.2, 4), layout="constrained", facecolor="white")
    titles = {"conservative_field": "asymmetry of J", "diagonal_hessian": "share of H off the diagonal"}
    for axes, (task, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        found = {(line["run"]["weight"], line["run"]["penalty"]) for line in lines if line["run"]["task"] == task}
        for number, (weight, penalty) in enumerate(sorted(found)):
            runs = [
                line
                for line in lines
                if (line["run"]["task"], line["run"]["penalty"], line["run"]["weight"]) == (task, penalty, weight)
            ]
            colour = list(COLOURS.values())[number % len(COLOURS)]
            label = penalty if penalty == "none" else f"{penalty}, {weight:g}"
            axes.semilogy(
                [line["r2"] for line in runs],
                [line["left"] for line in runs],
                "o",
                color=colour,
                label=label,
                markersize=4,
            )
        axes.locator_params(axis="x", nbins=5)
        axes.set_xlabel("R²")
        axes.set_ylabel(title)
        axes.legend(frameon=False, fontsize=8)
        _plain(axes)
    figure.savefig(path, dpi=150)


def by_case(lines: list[Line]) -> dict[str, dict[str, dict[float, list[float]]]]:
    """Errors of all seeds by case, method and products."""
    cases: dict[str, dict[str, dict[float, list[float]]]] = {}
    for line in lines:
        of_case = cases.setdefault(line["case"], {})
        for row in line["rows"]:
            of_case.setdefault(row["method"], {}).setdefault(row["products"], []).append(row["error"])
    return cases


def error_table(lines: list[Line]) -> None:
    """Print the means over seeds as rows of a Markdown table, and in how many seeds the orderings that are claimed hold."""
    for case, methods in by_case(lines).items():
        m, d = next(line["shape"][1:] for line in lines if line["case"] == case)
        products = sorted(methods["power"])
        print(f"| **{case}**, {m} x {d}: products | " + " | ".join(f"**{n}**" for n in products) + " |")
        for method, found in methods.items():
            if method != "svds":
                print(f"| {method} | " + " | ".join(f"{statistics.mean(found[n]):.1e}" for n in products) + " |")
        spent = list(methods["svds"])
        error = statistics.mean(error for errors in methods["svds"].values() for error in errors)
        print(f"| svds: {error:.0e} after {min(spent):.0f} to {max(spent):.0f} | | | | |")
        for better, worse in (
            ("rectangular Lanczos", "plain Lanczos"),
            ("rectangular Lanczos", "power"),
            ("Golub-Kahan", "rectangular Lanczos"),
        ):
            if better in methods:
                # Where both are exact to rounding there is no order.
                holds = {
                    n: [a <= b + 1e-12 for a, b in zip(methods[better][n], methods[worse][n], strict=True)]
                    for n in products
                }
                print(f"    {better} <= {worse}: " + ", ".join(f"{n}: {sum(of)}/{len(of)}" for n, of in holds.items()))


def error_figure(lines: list[Line], path: Path) -> None:
    """Mean error against products spent, over all seeds, a panel a case."""
    cases = by_case(lines)
    figure = Figure(figsize=(12, 7.5), layout="constrained", facecolor="white")
    panels = figure.subplots(3, 4).ravel()
    for axes, (case, methods) in zip(panels, cases.items(), strict=False):
        for number, (method, found) in enumerate((name, rows) for name, rows in methods.items() if name != "svds"):
            products = sorted(found)
            # Zero has no logarithm; below a rounding nothing can be told.
            errors = [max(statistics.mean(found[n]), 1e-16) for n in products]
            axes.loglog(products, errors, "o-", color=list(COLOURS.values())[number + 1], label=method, markersize=3)
        axes.set_xticks(products, [f"{n:g}" for n in products])
        axes.minorticks_off()
        axes.set_title(case, fontsize=9)
        axes.set_ylim(1e-17, 1)
        _plain(axes)
    for axes in panels[len(cases) :]:
        axes.set_axis_off()
    handles, labels = panels[0].get_legend_handles_labels()
    panels[-1].legend(handles, labels, frameon=False, loc="center")
    figure.supxlabel("products with A or its transpose", fontsize=10)
    figure.supylabel("1 - ||Aᵀu|| / ||A||", fontsize=10)
    figure.savefig(path, dpi=130)


def scale_figure(lines: list[Line], path: Path) -> None:
    """The least ratio to the true value over samples and seeds, by scale."""
    figure = Figure(figsize=(5, 3.6), layout="constrained", facecolor="white")
    axes = figure.subplots()
    for number, method in enumerate(dict.fromkeys(line["method"] for line in lines)):
        found = defaultdict(list)
        for line in lines:
            if line["method"] == method:
                found[line["scale"]].append(line["least_ratio"])
        scales = sorted(found)
        axes.semilogx(scales, [min(found[s]) for s in scales], "o-", color=list(COLOURS.values())[number], label=method)
    axes.set_xlabel("scale of J")
    axes.set_ylabel("least ||Jᵀu|| / ||J||")
    axes.legend(frameon=False, fontsize=8)
    _plain(axes)
    figure.savefig(path, dpi=150)


def cost_figure(lines: list[Line], path: Path) -> None:
    figure = Figure(figsize=(6, 3.4), layout="constrained", facecolor="white")
    axes = figure.subplots()
    names = [
        f"{line['operator'][0].upper()}, {line['method']}" if line["method"] != "none" else "none" for line in lines
    ]
    bars = axes.barh(names, [line["times_plain"] for line in lines], color="#0072B2")
    axes.bar_label(bars, fmt="%.1f", fontsize=8, padding=2)
    axes.invert_yaxis()
    axes.set_xlabel("seconds a step, multiples of a plain step")
    _plain(axes)
    figure.savefig(path, dpi=150)


def _plain(axes: Any) -> None:
    axes.grid(color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="holds the curvature-*.jsonl and gets a PNG beside each")
    folder = parser.parse_args().folder
    drawers = {
        "error": error_figure,
        "scale": scale_figure,
        "structure": structure_figure,
        "cost": cost_figure,
        "digits": lambda lines, path: robustness_figure(lines, "Digits, Jacobian penalties", path),
        "cifar-jacobian": lambda lines, path: robustness_figure(lines, "CIFAR-10, Jacobian penalties", path),
        "cifar-hessian": lambda lines, path: robustness_figure(lines, "CIFAR-10, Hessian penalties", path),
    }
    for name, draw in drawers.items():
        path = folder / f"curvature-{name}.jsonl"
        if not path.exists():
            continue
        lines = read(path)
        if "attacks" in lines[0].get("test", {}):
            lines = of_whole_seeds(lines)
        draw(lines, path.with_suffix(".png"))
        print(f"drew {path.with_suffix('.png')}")
        if name == "error":
            error_table(lines)
        if "attacks" in lines[0].get("test", {}):
            table(lines)


if __name__ == "__main__":
    main()
