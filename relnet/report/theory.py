"""Tables and a figure of what `relnet theory` measured, from its JSON lines: one object a line, told apart by `kind`.

error      hand-set model, n, length: uniform strings that are wrong, that repeat an n-gram, L^2 a^-n; strings without a repeat
longest    hand-set model, n, alphabet: whether a longest string without a repeat is copied
ablation   what is changed, and how many strings are right then
bound      n, kappa: tokens up to which the hand-set CausalRN is proved right
capacity   model: bits of state by length, the longest string they allow, the longest that was copied
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from relnet.report.figures import COLOURS, LINES, check_png, literal, png
from relnet.report.files import write_new
from relnet.report.reading import FORMAT, check_format, read_lines
from relnet.report.verdict import FREE, longest_copied

Row = dict[str, Any]


def read_theory(path: str | Path) -> list[Row]:
    """Read the lines of a file that `relnet theory` wrote; ValueError where there is none or another format."""
    rows = [row for row in read_lines(Path(path)) if "kind" in row]
    if not rows:
        raise ValueError(f"{path} holds nothing that relnet theory wrote")
    for row in rows:
        check_format(Path(path), row)
    return rows


def read_results(folder: str | Path) -> list[Row]:
    """Read the trained models of a folder's *.jsonl (as `relnet report --json` writes them): name, config, examined, copied.

    examined: lengths of free-running exams; copied: the longest up to which 95 % of the strings are exact and end, as in the verdict of
    an exam, None where there is none.
    A folder that is not there has none.
    """
    models = []
    for path in sorted(Path(folder).glob("*.jsonl")):
        for line in read_lines(path):
            if line.get("format") != FORMAT or not {"name", "config", "exam"} <= line.keys():
                continue
            examined = sorted({row["length"] for row in line["exam"] if row["mode"] == FREE and row["items"]})
            copied = longest_copied(line["exam"])
            models.append({"name": line["name"], "config": line["config"], "examined": examined, "copied": copied})
    return models


def theory_tables(rows: Sequence[Row]) -> str:
    """Return what was measured as plain text, one table a kind."""
    parts = []
    for kind, (title, columns) in _TABLES.items():
        lines = [[show(row) for _, show in columns] for row in rows if row["kind"] == kind]
        if lines:
            parts.append(f"{title}\n\n{_aligned([[name for name, _ in columns], *lines])}")
    return "\n\n".join(parts) + "\n"


def _aligned(lines: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    drawn = []
    for line in lines:
        first, *others = (cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        others = [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        drawn.append("  ".join([first, *others]).rstrip())
    return "\n".join(drawn)


def _limit(value: float | None) -> str:
    return "none" if value is None else f"{value:,}"


def _copied(row: Row) -> str:
    if row["always"]:
        return "all without a repeat"
    if not row["examined"]:
        return "not trained here"
    copied = "nothing" if row["copied"] is None else f"{row['copied']:,}"
    return f"{copied} (examined to {max(row['examined']):,})"


_TABLES: dict[str, tuple[str, list[tuple[str, Any]]]] = {
    "error": (
        "Uniform strings: those that are wrong (letters and stopping), and those that repeat an n-gram",
        [
            ("model", lambda row: row["model"]),
            ("n", lambda row: f"{row['n']}"),
            ("length", lambda row: f"{row['length']:,}"),
            ("strings", lambda row: f"{row['strings']:,}"),
            ("with a repeat", lambda row: f"{row['repeats']:,}"),
            ("wrong", lambda row: f"{row['wrong']:,}"),
            ("the same ones", lambda row: "yes" if row["same"] == row["strings"] else f"{row['same']:,}"),
            ("free-running wrong", lambda row: f"{row['wrong_free']:,}"),
            ("wrong letters", lambda row: f"{row['wrong_letters']:,}"),
            ("L^2 a^-n", lambda row: f"{row['bound']:.2g}"),
            ("without a repeat: right", lambda row: f"{row['chosen_right']:,}/{row['chosen']:,}"),
        ],
    ),
    "longest": (
        "The longest strings without a repeated n-gram",
        [
            ("model", lambda row: row["model"]),
            ("n", lambda row: f"{row['n']}"),
            ("alphabet", lambda row: f"{row['alphabet']}"),
            ("length", lambda row: f"{row['length']:,}"),
            ("kappa", lambda row: f"{row['kappa']:,.10g}"),
            ("copied", lambda row: "yes" if row["right"] else "NO"),
        ],
    ),
    "ablation": (
        "The hand-set CausalRN with one thing changed: strings without a repeat",
        [
            ("change", lambda row: row["change"]),
            ("n", lambda row: f"{row['n']}"),
            ("length", lambda row: f"{row['length']:,}"),
            ("right", lambda row: f"{row['right']}/{row['strings']}"),
        ],
    ),
    "bound": (
        "Tokens T (two strings, <BOS>, <SEP>) up to which the hand-set CausalRN is proved right",
        [
            ("n", lambda row: f"{row['n']}"),
            ("d2", lambda row: f"{row['head_width']}"),
            ("kappa", lambda row: f"{row['kappa']:,.10g}"),
            ("T, exact codes", lambda row: f"{row['exact']:,}"),
            ("T, with finite A and h", lambda row: f"{row['tokens']:,}"),
        ],
    ),
    "capacity": (
        "State after <BOS> string <SEP>, the longest string that L log2(a) - 1 allows it, the longest that was copied",
        [
            ("model", lambda row: row["model"]),
            ("length", lambda row: f"{row['length']:,}"),
            ("bits of state", lambda row: f"{row['bits']:,}"),
            ("limit", lambda row: _limit(row["limit"])),
            ("copied", _copied),
        ],
    ),
}


def theory_figure(source: str | Path, path: str | Path) -> Path:
    """Draw the JSON lines of `source` as a PNG and return the file written; an existing file is kept and a new name chosen."""
    path = check_png(path)
    rows = read_theory(source)
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 10.5), layout="constrained", facecolor="white")
    errors, bounds, states = figure.subplots(3)
    _draw_errors(errors, _of(rows, "error"))
    _draw_bounds(bounds, _of(rows, "bound"))
    _draw_states(states, _of(rows, "capacity"))
    for axes in (errors, bounds, states):
        axes.grid(color="#DDDDDD", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.has_data():
            axes.legend(frameon=False, fontsize=9, loc="center left", bbox_to_anchor=(1, 0.5))
    return write_new(path, png(figure))


def _of(rows: Iterable[Row], kind: str) -> list[Row]:
    return [row for row in rows if row["kind"] == kind]


def _draw_errors(axes: Any, rows: list[Row]) -> None:
    for number, n in enumerate(sorted({row["n"] for row in rows})):
        colour = COLOURS[number % len(COLOURS)]
        of_n = sorted((row for row in rows if row["n"] == n), key=lambda row: row["length"])
        lengths = [row["length"] for row in of_n]
        axes.plot(lengths, [row["bound"] for row in of_n], "--", color=colour, label=f"n = {n}: L² a⁻ⁿ")
        axes.plot(
            lengths, [row["repeats"] / row["strings"] for row in of_n], color=colour, label=f"n = {n}: with a repeat"
        )
        for model, marker in (("causalrn", "o"), ("transformer", "x")):
            one = [row for row in of_n if row["model"] == model]
            wrong = [row["wrong"] / row["strings"] for row in one]
            lengths_of_one = [row["length"] for row in one]
            axes.plot(lengths_of_one, wrong, marker, color=colour, fillstyle="none", label=f"n = {n}: {model}, wrong")
    axes.set_xlabel("letters of a uniform string")
    axes.set_ylabel("share of strings")
    axes.set_title("Hand-set models: error = share of strings that repeat an n-gram", fontsize=12)


def _draw_bounds(axes: Any, rows: list[Row]) -> None:
    for number, n in enumerate(sorted({row["n"] for row in rows})):
        of_n = sorted((row["kappa"], row["exact"], row["tokens"]) for row in rows if row["n"] == n)
        kappa, exact, tokens = zip(*of_n, strict=True)
        colour = COLOURS[number % len(COLOURS)]
        axes.loglog(kappa, exact, "--", color=colour, label=f"n = {n}: exact codes")
        axes.loglog(kappa, tokens, "o-", color=colour, label=f"n = {n}: with finite A and h")
    axes.set_xlabel("κ, gain of the keys")
    axes.set_ylabel("tokens T")
    axes.set_title("Up to which length the hand-set CausalRN is proved right", fontsize=12)


def _draw_states(axes: Any, rows: list[Row]) -> None:
    for number, row in enumerate(rows):
        lengths, bits = zip(*row["states"], strict=True)
        style = {"color": COLOURS[number % len(COLOURS)], "linestyle": LINES[number % len(LINES)]}
        axes.loglog(lengths, bits, label=literal(row["model"]), **style)
    if rows:
        lengths = [length for length, _ in rows[0]["states"]]
        least = [max(1.0, length * rows[0]["bits_a_letter"] - 1) for length in lengths]
        axes.loglog(lengths, least, color="black", linewidth=2.5, label="least for error ≤ 1/2")
    axes.set_xlabel("letters of a string")
    axes.set_ylabel("bits of state")
    axes.set_title("What states hold, and the least that copying needs", fontsize=12)
