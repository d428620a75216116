"""The page as a whole, and how it gets to the disk."""

import base64
import hashlib
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

from relnet.report.files import replace, taken
from relnet.report.page.curves import clock, length_charts, panels, steps_charts
from relnet.report.page.elements import document, element
from relnet.report.page.gathering import Gathered
from relnet.report.page.grouping import grouped, run_labels
from relnet.report.page.markup import maps, overview, run_details, section, unreadable, words
from relnet.report.verdict import elsewhere

GENERATOR = "relnet report"
# In the first bytes of a page, so many at most.
MARKED = 2000
MARK = f'<meta name="generator" content="{GENERATOR}">'
SCALES = [("linear", "linear"), ("log", "logarithmic")]
SCRIPTS = ("chart.js", "curves.js", "page.js")


def page(found: Gathered, title: str, reruns: Mapping[Path, str] | None = None, refresh: int | None = None) -> str:
    """The page as text.

    reruns: for run folders, the command that makes the run again. refresh: seconds after which an opened page loads itself again.
    """
    runs = found.runs
    groups = grouped(runs)
    labels = run_labels(runs, groups)
    places = [member for group in groups for member in group.members]
    by_task = panels(runs, groups)
    lengths = [*steps_charts(runs, groups), *length_charts(runs, groups, found.sittings)]
    data: dict[str, Any] = {
        "refresh": refresh,
        "curves": [chart for charts in by_task.values() for chart in charts],
        "lengths": lengths,
        "clocks": [clock(run) for run in runs],
        "words": [words(run, label) for run, label in zip(runs, labels, strict=True)],
    }
    sections = [
        section("runs", "Runs", _filter(runs), overview(runs, groups, labels)) if runs else None,
        section("unreadable", "Not readable", unreadable(found.unreadable)) if found.unreadable else None,
        _curves(by_task),
        _lengths(lengths),
        _maps(found, labels),
        section(
            "each",
            "Each run",
            [
                run_details(runs[place], labels[place], place, (reruns or {}).get(runs[place].folder))
                for place in places
            ],
        )
        if runs
        else None,
    ]
    shown = [one for one in sections if one is not None]
    header = element(
        "header",
        element("h1", title),
        element("p", _summary(found), class_="summary"),
        element("nav", [element("a", one[0].text, href=f"#{one.get('id')}") for one in shown], aria_label="Sections"),
        _settings(refresh),
    )
    return document(_whole(title, header, shown, data))


def page_file(path: Path) -> Path:
    """Return the file that a page of this name is written to: of a link, the file that it leads to, there or not.

    FileExistsError where that is a file and no page of relnet report, ValueError where it can be none.
    """
    if path.is_dir():
        raise ValueError(f"{path} is a folder; give the name of a file")
    if path.exists():
        # To look into a device or a pipe might take for ever.
        if not path.is_file():
            raise ValueError(f"{path} is no regular file; give the name of a page, or a new one")
        with path.open("rb") as file:
            if MARK.encode() not in file.read(MARKED):
                raise taken(path)
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    if target.is_symlink():
        raise ValueError(f"{path} is a link that leads back to itself; give another name")
    return target


def write_page(text: str, path: Path) -> None:
    """Write the page, in place of an earlier one, to the file that `page_file` returns, which says what is refused.

    OSError names the file; nothing half-written stays behind, and an earlier page then stays as it was.
    """
    # Names of files need not be valid Unicode.
    replace(page_file(path), text.encode(errors="replace"))


def _whole(title: str, header: Element, sections: list[Element], data: Mapping[str, Any]) -> Element:
    here = Path(__file__).parent
    style = (here / "page.css").read_text("utf-8")
    script = '"use strict";(() => {\n' + "".join((here / name).read_text("utf-8") for name in SCRIPTS) + "})();"
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    # "<" must not stand in the script element that holds the data.
    told = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="generator", content=GENERATOR),
        element("meta", http_equiv="Content-Security-Policy", content=policy),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", style),
    )
    body = element(
        "body",
        element("a", "Skip to the runs", href="#main", class_="skip"),
        header,
        element("main", sections, id="main"),
        element("script", told, id="data", type="application/json"),
        element("script", script),
    )
    return element("html", head, body, lang="en")


def _summary(found: Gathered) -> str:
    unfinished = sum(not run.result for run in found.runs)
    told = [f"{len(found.runs)} run{'s' if len(found.runs) != 1 else ''}"]
    told += [f"{unfinished} unfinished"] if unfinished else []
    told += [f"{len(found.unreadable)} not readable"] if found.unreadable else []
    return f"{', '.join(told)}. Written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC by relnet report."


def _settings(refresh: int | None) -> Element:
    theme = _choice("theme", "Colours", [("system", "as the system"), ("light", "light"), ("dark", "dark")])
    pause = element(
        "label", element("input", type="checkbox", id="refresh", checked=True), f" load again every {refresh} s"
    )
    return element("div", theme, pause if refresh else None, class_="controls")


def _choice(name: str, title: str, options: list[tuple[str, str]]) -> Element:
    made = [element("option", text, value=value) for value, text in options]
    return element("label", f"{title} ", element("select", made, id=name))


def _filter(runs: list[Any]) -> Element | None:
    if len(runs) < 2:
        return None
    box = element("input", type="search", id="filter", placeholder="causalrn, length 16, seed 0", autocomplete="off")
    count = element("output", id="filtered", for_="filter")
    return element("div", element("label", "Show runs with ", box), count, class_="controls")


def _figure(name: str, caption: str) -> Element:
    return element("figure", element("figcaption", caption), id=name, class_="chart")


def _curves(by_task: Mapping[str, list[dict[str, Any]]]) -> Element | None:
    if not by_task:
        return None
    controls = element(
        "div",
        _choice("across", "Horizontal axis", [("step", "steps"), ("seconds", "wall time")]),
        _choice("x-scale", "its scale", SCALES),
        _choice("y-scale", "Vertical scale", SCALES),
        _choice("smooth", "Smoothing", [("1", "none"), *((str(n), f"mean of {n} updates") for n in (5, 20, 50, 200))]),
        class_="controls",
        role="group",
        aria_label="Settings of the learning curves",
    )
    note = element(
        "p",
        "Runs that differ in their seed only are one line, their mean, in a band from the lowest to the highest; "
        "where one has ended the others go on. Names below a chart hide and show lines; the pointer, or the arrow keys, read values.",
        class_="note",
    )
    parts, number = [], 0
    for task, charts in by_task.items():
        figures = []
        for chart in charts:
            figures.append(_figure(f"curve-{number}", f"{chart['measure']} ({chart['unit']})"))
            number += 1
        parts += [element("h3", task), element("div", figures, class_="pair")]
    return section("curves", "Learning curves", note, controls, parts)


def _lengths(charts: list[dict[str, Any]]) -> Element | None:
    if not charts:
        return None
    controls = element(
        "div",
        _choice("mode", "Answers", [("free_running", "free-running"), ("teacher_forced", "teacher-forced")]),
        _choice("part", "Counted", [("exact", "whole strings"), ("letters", "letters")]),
        _choice("length-scale", "Horizontal scale", SCALES),
        _choice("steps-scale", "Scale of steps", SCALES) if any("target" in chart for chart in charts) else None,
        class_="controls",
        role="group",
        aria_label="Settings of the length curves",
    )
    note = element(
        "p",
        "Right answers against the length asked: bands are 95 % intervals (Student's over seeds, Wilson's of one seed's counts), an "
        "upright line marks the trained length. Steps to a target against the trained length: the mean of the seeds that reached it, in "
        "a band from the least to the most. The filter hides a line once none of its runs is shown; lines of exams without runs stay.",
        class_="note",
    )
    figures = []
    for place, chart in enumerate(charts):
        if "target" in chart:
            caption = f"{chart['task']}: steps to {chart['target']:g} %"
        else:
            on = f"{chart['on']} up to " if elsewhere(chart["task"], chart["on"]) else ""
            trained = "" if chart["trained"] is None else f", trained on {on}{chart['trained']}"
            missing = "".join(f"; {label}: {words}" for label, words in chart["lost"].items())
            caption = f"{chart['task']}{trained}: right answers{missing}"
        figures.append(_figure(f"length-{place}", caption))
    return section("lengths", "By length", note, controls, element("div", figures, class_="pair"))


def _maps(found: Gathered, labels: list[str]) -> Element | None:
    parts = []
    for run, label in zip(found.runs, labels, strict=True):
        if images := maps(run):
            parts.append(element("h3", label))
            shown = [element("figure", image, element("figcaption", name)) for name, image in images]
            parts.append(element("div", shown, class_="maps"))
    return section("maps", "Relation maps", parts) if parts else None
