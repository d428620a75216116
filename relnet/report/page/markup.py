"""The page's elements: overview, charts' places, maps, and each run with its settings and the command that makes it again."""

import base64
import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from relnet.report.cells import MISSING, Contents
from relnet.report.page.elements import Content, element
from relnet.report.page.grouping import Group, seed_of, task_of, trained_length
from relnet.report.page.thinning import number
from relnet.report.reading import Run, read_object
from relnet.report.settings import flat
from relnet.report.tables import by_kind, one_line

OUTCOME = (
    "steps",
    "steps_to_accuracy",
    "steps_to_stay",
    "final_accuracy",
    "bits_per_byte",
    "perplexity",
    "test_loss",
    "test_accuracy",
    "device",
    "machine",
    "commit",
)
PNG = b"\x89PNG\r\n\x1a\n"


def sort_key(cell: str) -> float | None:
    """What a cell is sorted by where it is a number, None where it is none: words are sorted as words, missing figures stand last.

    >>> [sort_key(cell) for cell in ("1,337,280", "99.3/100", "1m05s", "2h01m", "-")]
    [1337280.0, 99.3, 65.0, 7260.0, None]
    >>> sort_key("82") < sort_key("1,000") < sort_key(">99")
    True
    """
    if found := re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", cell):
        hours, minutes, seconds = (int(part or 0) for part in found.groups())
        return 3600.0 * hours + 60 * minutes + seconds if cell else None
    if found := re.fullmatch(r"(>?)([\d,]*\.?\d+(?:e[+-]?\d+)?)(/.*)?", cell):
        # Not reached within so many steps: behind every run that reached it.
        return float(found[2].replace(",", "")) + (1e12 if found[1] else 0)
    return None


def status(run: Run) -> tuple[str, str, str]:
    """Kind, sign and words of how far a run is: "reached", "done", "stopped" or "unfinished"."""
    stopped = run.result.get("stopped")
    if stopped == "accuracy":
        return "reached", "✓", "target reached"
    if stopped == "given up":
        return "stopped", "○", "given up"
    if run.result:
        return "done", "●", "all steps done"
    planned = (run.config.get("train") or {}).get("steps")
    return "unfinished", "◐", f"unfinished, {run.steps:,}" + (f" of {planned:,}" if number(planned) else "") + " steps"


def words(run: Run, label: str) -> str:
    """What the page's filter looks into."""
    return f"{label}, {task_of(run)}, seed {seed_of(run)}, {status(run)[2]}"


def last_written(run: Run) -> str | None:
    """When the log of a run folder was last written, None where there is none."""
    try:
        return datetime.fromtimestamp((run.folder / "log.jsonl").stat().st_mtime, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except OSError:
        return None


def overview(runs: Sequence[Run], groups: Sequence[Group], labels: Sequence[str]) -> list[Element]:
    """The tables: one of the runs with an exam, one of those on a text, one of those on images."""
    names = {member: group.label for group in groups for member in group.members}
    made = []
    placed = list(names)
    for draw, kind in by_kind([runs[place] for place in placed]):
        numbers = [placed[place] for place in kind]
        chosen = [_at_trained_length(runs[place]) for place in numbers]
        # Names may meet, places do not.
        lines = draw([str(place) for place in numbers], chosen).lines
        contents = draw([labels[place] for place in numbers], chosen)
        made.append(_table(dataclasses.replace(contents, lines=lines), runs, names, labels))
    return made


def _at_trained_length(run: Run) -> Run:
    """The run with its exam of the trained length alone, where it has one: a run is a line of the table, charts have the other lengths."""
    trained = trained_length(run)
    rows = [row for row in run.exam if row["length"] == trained]
    return dataclasses.replace(run, exam=rows) if rows else run


def _table(contents: Contents, runs: Sequence[Run], shown: Mapping[int, str], labels: Sequence[str]) -> Element:
    tasks = {task_of(runs[int(place)]) for place, *_ in contents.lines}
    several = len(tasks) > 1
    names, *figures = map(one_line, contents.titles)
    heads = [_head(title, "words") for title in [names, *(["task"] if several else []), "status"]]
    heads += [_head(title, "number") for title in ["seed", *figures]]
    rows = []
    for place, *cells in contents.lines:
        run, name = runs[int(place)], shown[int(place)]
        kind, sign, told = status(run)
        seed = seed_of(run)
        link = element("a", name, href=f"#run-{place}", aria_label=labels[int(place)])
        line = [element("th", link, scope="row", data_sort=name)]
        line += [element("td", task_of(run), class_="task")] if several else []
        mark = element("span", sign, aria_hidden="true")
        line.append(element("td", mark, f" {told}", class_=f"status {kind}", data_sort=told))
        line += [_cell(cell) for cell in [MISSING if seed is None else str(seed), *cells]]
        rows.append(element("tr", line, data_run=place))
    caption = element("caption", "Several tasks" if several else f"Task: {tasks.pop()}")
    head, body = element("thead", element("tr", heads)), element("tbody", rows)
    table = element("table", caption, head, body, class_="sortable")
    notes = element("details", element("summary", "What the columns say"), element("ul", _items(contents.notes)))
    return element("div", _scrolled("Table of runs", table), notes)


def _head(title: str, kind: str) -> Element:
    return element("th", element("button", title.replace(" %", "\xa0%"), type="button"), scope="col", class_=kind)


def _scrolled(name: str, table: Element) -> Element:
    """A table that may be wider than the page: with the keyboard, too, one can move in it."""
    return element("div", table, class_="wide", tabindex="0", role="group", aria_label=name)


def _cell(cell: str) -> Element:
    key = sort_key(cell)
    return element("td", cell, class_="number", data_sort=None if key is None else f"{key:.10g}")


def _items(texts: Iterable[str]) -> list[Element]:
    return [element("li", text) for text in texts]


def unreadable(found: Sequence[tuple[Path, str]]) -> Element:
    """The runs that could not be read."""
    rows = [
        element(
            "tr",
            element("th", str(place), scope="row"),
            element("td", element("span", "✕", aria_hidden="true"), f" {why}"),
        )
        for place, why in found
    ]
    heads = element("tr", element("th", "place", scope="col"), element("th", "what is wrong", scope="col"))
    caption = element("caption", "Damaged, or not a run of this relnet")
    table = element("table", caption, element("thead", heads), element("tbody", rows), class_="damaged")
    return _scrolled("Table of what could not be read", table)


def maps(run: Run) -> list[tuple[str, Element]]:
    """The relation maps that `relnet inspect` wrote into a run's folder: name and image, or words where a file is no PNG."""
    made = []
    for path in sorted((run.folder / "maps").glob("*.png")):
        try:
            content = path.read_bytes()
        except OSError as error:
            content = str(error).encode()
        if content.startswith(PNG):
            source = f"data:image/png;base64,{base64.b64encode(content).decode()}"
            made.append(
                (path.stem, element("img", src=source, alt=f"Relation map {path.stem} of {run.name}", loading="lazy"))
            )
        else:
            made.append((path.stem, element("p", f"{path.name} is damaged: no PNG", class_="unreadable")))
    return made


def _candidate(run: Run) -> list[tuple[str, str]]:
    """The model of a training of relnet exam, which has no config."""
    try:
        model = read_object(run.folder / "candidate.json").get("identity")
    except (ValueError, OSError):
        return []
    return [("model", str(model))] if model else []


def run_details(run: Run, label: str, place: int, rerun: str | None) -> Element:
    """One run: what made it, what came out, its settings."""
    kind, sign, words = status(run)
    facts: list[tuple[str, Any]] = [("status", words), ("folder", str(run.folder)), ("last written", last_written(run))]
    for name in OUTCOME:
        facts.append((name.replace("_", " "), run.result.get(name)))
    versions = run.result.get("versions")
    if isinstance(versions, dict):
        facts.append(("versions", ", ".join(f"{name} {version}" for name, version in versions.items())))
    told = [
        (name, f"{value:g}" if isinstance(value, float) else str(value)) for name, value in facts if value is not None
    ]
    settings = [*_candidate(run), *flat(run.config or run.result.get("settings") or {})]
    return element(
        "details",
        element(
            "summary",
            element("span", element("b", label), element("span", f" {task_of(run)}", class_="task"), class_="name"),
            element("span", element("span", sign, aria_hidden="true"), f" {words}", class_=f"status {kind}"),
        ),
        _command("To make it again" if run.result else "To go on with it", rerun),
        _command("It was made by", run.command),
        [_sample(row) for row in run.text],
        element(
            "div",
            _facts("What came out", told),
            _facts("Settings", settings),
            class_="columns",
        ),
        id=f"run-{place}",
        class_="run",
    )


def _command(title: str, command: str | None) -> Element | None:
    if not command:
        return None
    copy = element("button", "Copy", type="button", class_="copy", aria_label=f"Copy the command: {title}")
    return element("div", element("h3", title), element("pre", element("code", command)), copy, class_="command")


def _sample(row: Mapping[str, Any]) -> Element:
    told = [element("b", str(row["prompt"])), str(row["sample"])]
    return element(
        "figure",
        element("figcaption", "What the model writes (in bold: what it was given)"),
        element("blockquote", told),
    )


def _facts(title: str, pairs: Sequence[tuple[str, str]]) -> Element | None:
    if not pairs:
        return None
    rows = [element("tr", element("th", name, scope="row"), element("td", value)) for name, value in pairs]
    return element("table", element("caption", title), element("tbody", rows), class_="facts")


def section(name: str, title: str, *content: Content) -> Element:
    """A section with its heading."""
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, *content, id=name, aria_labelledby=f"{name}-title")
