"""Print what bench/ measured, from its JSON lines, as the tables of results/kernels.md: of each case the newest line.

python bench/kernel_tables.py results/bench.jsonl
"""

import argparse
import json
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def newest(lines: list[Line]) -> list[Line]:
    """The last line of each case, shape, activation, precision and instruction set, in the order in which they first came."""
    found: dict[tuple[str, ...], Line] = {}
    for line in lines:
        found[tuple(str(line.get(key)) for key in ("case", "shape", "activation", "precision", "isa"))] = line
    return list(found.values())


def table(titles: list[str], rows: list[list[str]]) -> None:
    print("| " + " | ".join(titles) + " |")
    print("| --- |" + " ---: |" * (len(titles) - 1))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def relation(line: Line) -> None:
    (batch, length, width), medians = line["shape"], line["medians"]
    print(
        f"B={batch} T={length} D={width}, {line['activation']}, {line['isa']}, {line['threads']} threads ({line['commit'][:7]}):\n"
    )
    eager, attention = medians.get("eager"), medians["attention"]
    pairs, rows = batch * length * (length + 1) / 2, []
    for name, row in medians.items():
        faster = [f"{eager[kind] / row[kind]:,.0f}" if eager else "" for kind in ("forward", "both")]
        memory = "" if row["memory"] is None else f"{row['memory'] / 1e6:,.0f}"
        times = [f"{row['forward']:,.2f}", f"{row['both']:,.2f}"]
        rows.append(
            [
                name,
                *times,
                *faster,
                f"{row['both'] / attention['both']:.2f}",
                f"{1e6 * row['both'] / pairs:,.0f}",
                memory,
            ]
        )
    titles = [
        "",
        "forward, ms",
        "both, ms",
        "eager / it, forward",
        "eager / it, both",
        "it / attention, both",
        "ns a pair, both",
    ]
    table([*titles, "peak growth, MB"], rows)


def others(lines: list[Line]) -> None:
    for line in lines:
        case = line["case"]
        print(f"{case}{', B T D = ' + str(line['shape']) if 'shape' in line else ''} ({line['commit'][:7]}):\n")
        if case == "training step":
            rows = [[name, f"{value:,.0f}"] for name, value in line["milliseconds"].items()]
            ratio = line["milliseconds"]["causalrn"] / line["milliseconds"]["transformer"]
            table(
                [f"{line['length']} letters, {line['batch']} strings, {line['precision']}", "ms"],
                [*rows, ["ratio", f"{ratio:.2f}"]],
            )
        elif case == "relation_mean a pair, ns":
            threads = list(line["figures"][0]["ns"])
            rows = [
                [f"{one['batch']} x {one['length']:,}", *(f"{one['ns'][n]:.1f}" for n in threads)]
                for one in line["figures"]
            ]
            table(["batch x length", *(f"{n} threads" for n in threads)], rows)
        elif case == "decoding":
            table(["", "", ""], [[row["name"].strip(), f"{row['value']:,.2f}", row["unit"]] for row in line["rows"]])
        elif case == "linear_relation step, us":
            table(["", "us"], [[name, f"{value:,.0f}"] for name, value in line["figures"].items()])
        elif case == "linear_relation a token, ns":
            rows = [
                [f"{int(length):,}", name, f"{row['forward']:,.0f}", f"{row['both']:,.0f}"]
                for length, ways in line["figures"].items()
                for name, row in ways.items()
            ]
            table(["tokens", "", "forward", "both"], rows)
        else:
            first = next(iter(line["figures"].values()))["both"]
            rows = [
                [name, f"{row['forward']:,.1f}", f"{row['both']:,.1f}", f"{first / row['both']:.1f}"]
                for name, row in line["figures"].items()
            ]
            table(["", "forward, ms", "both, ms", "times faster, both"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", type=Path)
    given = parser.parse_args()
    lines = newest([json.loads(line) for line in given.lines.read_text().splitlines()])
    for line in lines:
        if line["case"] == "relation_mean":
            relation(line)
    others([line for line in lines if line["case"] != "relation_mean"])


if __name__ == "__main__":
    main()
