"""The page as a person meets it: in Chromium, by mouse, by keyboard, by ear, on paper.

`make test` skips these where there is no Chromium; RELNET_BROWSER=required, which .ci/run says where it could install one, lets them fail.
"""

import itertools
import json
import os
import re
import time

import pytest

from relnet.report.page import gather, page, write_page
from tests.report.folders import TASK, TEXT_TASK, exam_row, make_run, result, text_row, update
from tests.report.page.chromium import chromium, program
from tests.report.page.test_data import NASTY, damage, sitting, with_config

pytestmark = pytest.mark.browser

# A PNG of one pixel.
PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
    "0000000a49444154789c63680000008200818d3d3b1f0000000049454e44ae426082"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    executable = program()
    if executable is None:
        words = "no Chromium here, the report page is not tested in one: apt-get install chromium-headless-shell"
        assert os.environ.get("RELNET_BROWSER") != "required", words
        pytest.skip(words)
    with chromium(executable, tmp_path_factory.mktemp("profile")) as tab:
        yield tab


@pytest.fixture
def tab(browser):
    """The browser's tab, as a test wants to find it; what a page complains of fails the test."""
    browser.renew()
    browser.size(1280, 900)
    browser.prefer("light")
    yield browser
    assert browser.complaints == []


def write(folder, path, **options):
    write_page(page(gather([folder]), "Runs", **options), path)
    return path


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """A page of everything there can be: two seeds, an unfinished run, another learning rate, a text, a map, one that is damaged."""
    folder = tmp_path_factory.mktemp("shown")
    runs = folder / "runs"
    for seed in (0, 1):
        rows = [exam_row("free_running", length=length, exact=320 - 2 * length) for length in (8, 16, 32)]
        made = result(steps_to_accuracy=82 + 1000 * seed, num_parameters=1000)
        path = with_config(make_run(runs, "causalrn", folder=f"a{seed}", exam=rows, result=made), seed=seed, lr=1e-3)
        log = [update(step, loss=4.0 / step + seed) for step in range(1, 100)]
        (path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    (path / "maps").mkdir()
    (path / "maps" / "block-1.png").write_bytes(PIXEL)
    with_config(make_run(runs, "transformer", folder="b", log=50, result=None, exam=()), seed=0, lr=1e-3)
    make_run(runs, NASTY, folder="c", exam=(), result=result(steps_to_accuracy=None, num_parameters=200))
    make_run(runs, "text", task=TEXT_TASK, exam=[text_row(sample=NASTY)])
    damage(make_run(runs, "torn"), "torn config")
    return write(runs, folder / "page.html")


def texts(tab, selector):
    return tab.do(f"[...document.querySelectorAll({selector!r})].map(node => node.textContent)")


def choose(tab, name, value):
    tab.do(
        f"{{const c = document.getElementById({name!r}); c.value = {value!r}; c.dispatchEvent(new Event('change'))}}"
    )


def search(tab, words):
    tab.do(f"{{const c = document.getElementById('filter'); c.value = {words!r}; c.dispatchEvent(new Event('input'))}}")


def paths(tab, figure, kind="line"):
    return tab.do(f"[...document.querySelectorAll('#{figure} path.{kind}')].map(path => path.getAttribute('d'))")


def test_the_page_opens_without_a_complaint_and_asks_for_nothing_else(tab, shown):
    tab.open(shown)
    assert tab.do("'ready' in document.documentElement.dataset")
    assert [url for url in tab.requests if not url.startswith("data:")] == [shown.resolve().as_uri()]
    assert texts(tab, "h2") == [
        "Runs",
        "Not readable",
        "Learning curves",
        "By length",
        "Relation maps",
        "Each run",
    ]


def test_every_chart_has_a_line_for_each_group_and_a_band_where_there_are_seeds(tab, shown):
    tab.open(shown)
    figures = tab.do("[...document.querySelectorAll('.chart')].map(node => node.id)")
    assert figures == ["curve-0", "curve-1", "curve-2", "length-0"]
    assert {figure: len(paths(tab, figure)) for figure in figures} == {
        "curve-0": 3,
        "curve-1": 3,
        "curve-2": 1,
        "length-0": 1,
    }
    assert all(
        re.fullmatch(r"M[\d.]+ [\d.]+(L[\d.]+ [\d.]+)+", line) for figure in figures for line in paths(tab, figure)
    )
    assert len(paths(tab, "curve-0", "band")) == 1
    assert paths(tab, "curve-2", "band") == []
    boxes = tab.do("[...document.querySelectorAll('path.line')].map(p => [p.getBBox().width, p.getBBox().height])")
    assert all(width > 50 and height > 5 for width, height in boxes)


def heights(path):
    return [float(point.split()[1]) for point in re.split("[ML]", path.rstrip("Z"))[1:]]


def test_a_band_reaches_from_the_lowest_seed_to_the_highest(tab, shown):
    tab.open(shown)
    mean, (band,) = heights(paths(tab, "curve-0")[0]), map(heights, paths(tab, "curve-0", "band"))
    # The seeds' losses are 4 / step and 1 more: their mean falls from 4.5 to 0.54, half a nat from either edge.
    half = 0.5 * (mean[-1] - mean[0]) / (4 - 4 / 99)
    assert len(band) == 2 * len(mean) == 198
    assert band[:99] == pytest.approx([place - half for place in mean], abs=0.2)
    assert band[99:] == pytest.approx([place + half for place in reversed(mean)], abs=0.2)


def test_a_map_is_seen(tab, shown):
    tab.open(shown)
    tab.do("document.querySelector('.maps img').scrollIntoView()")
    assert (
        tab.do(
            "document.querySelector('.maps img').decode().then(() => document.querySelector('.maps img').naturalWidth)"
        )
        == 1
    )


def column(tab, title):
    """The cells of a column of the first table, and the middle of its title."""
    tab.do(
        "window.head = [...document.querySelectorAll('#runs table th button')]"
        f".find(one => one.textContent.replace('\xa0', ' ') === {title!r})"
    )
    return lambda: tab.do(
        "[...head.closest('table').tBodies[0].rows].map(row => row.cells[head.parentElement.cellIndex].textContent)"
    )


@pytest.mark.parametrize("by", ["mouse", "keyboard"])
def test_a_title_sorts_by_number_with_what_is_missing_last(tab, shown, by):
    tab.open(shown)
    cells = column(tab, "steps to 99 %")
    for direction, wanted in (("ascending", ["82", "1,082", ">99", "-"]), ("descending", [">99", "1,082", "82", "-"])):
        if by == "mouse":
            tab.do("head.click()")
        else:
            tab.do("head.focus()")
            tab.press("Enter")
        assert cells() == wanted
        assert tab.do("head.parentElement.ariaSort") == direction
    assert tab.do("document.querySelectorAll('[aria-sort]').length") == 1
    cells = column(tab, "name")
    tab.do("head.click()")
    assert cells() == sorted(cells())


def contrast(one, other):
    def luminance(colour):
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def colour(tab, name):
    return tab.do(
        f"{{const n = document.createElement('i'); n.style.color = 'var(--{name})'; document.body.append(n);"
        " const c = getComputedStyle(n).color; n.remove(); c}"
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_lines_stand_out_in_light_and_dark(tab, shown, scheme):
    tab.prefer(scheme)
    tab.open(shown)
    paper, card = (colour(tab, name) for name in ("paper", "card"))
    assert (contrast(paper, "rgb(255, 255, 255)") < 1.2) == (scheme == "light")
    assert tab.do("getComputedStyle(document.body).backgroundColor") == paper
    # WCAG 2.2: 4.5 for text, 3 for what is drawn.
    for name, least in [
        *((name, 4.5) for name in ("ink", "soft", "accent", "good", "wait", "bad")),
        *((f"line-{n}", 3) for n in range(7)),
    ]:
        assert contrast(colour(tab, name), card) >= least, name
        assert contrast(colour(tab, name), paper) >= least * 0.95, name


def test_the_theme_that_is_chosen_wins_over_the_systems_and_paper_is_always_light(tab, shown):
    tab.open(shown)
    choose(tab, "theme", "dark")
    assert contrast(tab.do("getComputedStyle(document.body).backgroundColor"), "rgb(0, 0, 0)") < 1.5
    tab.prefer("dark", "print")
    assert tab.do("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert contrast(colour(tab, "ink"), "rgb(255, 255, 255)") > 10
    assert tab.do("[...document.querySelectorAll('.controls, nav, .copy')].every(node => !node.checkVisibility())")
    assert tab.pdf().startswith(b"%PDF")
    choose(tab, "theme", "system")


def test_axes_turn_logarithmic_and_back(tab, shown):
    tab.open(shown)
    straight = paths(tab, "curve-0")
    choose(tab, "y-scale", "log")
    bent = paths(tab, "curve-0")
    assert straight != bent
    choose(tab, "x-scale", "log")
    # 4 / step falls on a straight line where both axes are logarithmic; the mean of the two seeds does not, so ask for one.
    search(tab, "causalrn, seed 0")
    (line,) = paths(tab, "curve-0")
    points = [tuple(map(float, point.split())) for point in re.split("[ML]", line)[1:]]
    (x0, y0), (x1, y1) = points[0], points[-1]
    assert all(abs(y - y0 - (x - x0) * (y1 - y0) / (x1 - x0)) < 0.3 for x, y in points)
    search(tab, "")
    choose(tab, "x-scale", "linear")
    choose(tab, "y-scale", "linear")
    assert paths(tab, "curve-0") == straight


def test_smoothing_is_the_mean_about_each_update(tab, shown):
    tab.open(shown)
    search(tab, "causalrn, seed 0")
    choose(tab, "smooth", "5")
    tab.do("document.querySelector('#curve-0 .plot').focus()")
    for _ in range(4):
        tab.press("ArrowRight")
    told = tab.do("document.querySelector('#curve-0 .plot').ariaValueText")
    step, value = re.search(r"training step (\d+): .* ([\d.]+)$", told).groups()
    near = [4.0 / at for at in range(max(1, int(step) - 2), int(step) + 3)]
    assert float(value) == pytest.approx(sum(near) / len(near), rel=1e-3)
    assert len(paths(tab, "curve-0", "faint")) == 1
    choose(tab, "smooth", "1")
    search(tab, "")


def test_wall_time_takes_the_place_of_steps(tab, shown):
    tab.open(shown)
    choose(tab, "across", "seconds")
    assert "wall time (s)" in texts(tab, "#curve-0 text")
    # 99 updates of a quarter of a second.
    tab.do("document.querySelector('#curve-0 .plot').focus()")
    tab.press("End")
    assert "wall time (s) 24.75:" in tab.do("document.querySelector('#curve-0 .plot').ariaValueText")


def test_pointer_and_arrow_keys_read_the_same_values(tab, shown):
    tab.open(shown)
    tab.do("document.querySelector('#curve-1').scrollIntoView({block: 'center', behavior: 'instant'})")
    left, top, width, height = tab.do(
        "{const b = document.querySelector('#curve-1 .plot').getBoundingClientRect(); [b.left, b.top, b.width, b.height]}"
    )
    tab.point(left + 0.6 * width, top + height / 2)
    tip = tab.do("document.querySelector('#curve-1 .tip').innerText")
    by_mouse = tab.do("document.querySelector('#curve-1 .plot').ariaValueText")
    step = int(re.search(r"training step: (\d+)", tip)[1])
    # The unfinished run has no value beyond its last update, 50.
    assert step > 50
    assert "transformer" not in tip
    assert f"{step}" in tip
    assert re.search(rf"\n?{NASTY[:9]}", tip)
    assert f"causalrn {step}" in by_mouse
    tab.point(5, 5)
    assert tab.do("document.querySelector('#curve-1 .tip').hidden")
    tab.do("document.querySelector('#curve-1 .plot').focus()")
    tab.press("ArrowLeft")
    tab.press("ArrowRight")
    assert f"training step {step}:" in tab.do("document.querySelector('#curve-1 .plot').ariaValueText")


def test_the_values_of_a_chart_are_there_as_a_table(tab, shown):
    tab.open(shown)
    tab.do("document.querySelector('#curve-0 .values').open = true; new Promise(requestAnimationFrame)")
    assert texts(tab, "#curve-0 .values thead th") == [
        "training step",
        "causalrn",
        "transformer",
        NASTY,
    ]
    # Step 1: the mean of the seeds' 4 and 5.
    assert texts(tab, "#curve-0 .values tbody tr:first-child > *")[:3] == ["1", "4.5", "3.267"]
    assert texts(tab, "#curve-0 .values tbody tr:last-child > *")[::2] == ["99", "\u2013"]


def test_the_table_follows_what_is_chosen(tab, shown):
    tab.open(shown)
    tab.do("document.querySelector('#curve-0 .values').open = true; new Promise(requestAnimationFrame)")
    search(tab, "transformer")
    assert texts(tab, "#curve-0 .values thead th") == ["training step", "transformer"]
    assert texts(tab, "#curve-0 .values tbody tr:last-child > *")[0] == "50"


def test_between_its_points_a_line_is_read_as_it_is_drawn(tab, tmp_path):
    for seed, steps in ((0, (1, 5)), (1, (1, 3, 5))):
        path = with_config(make_run(tmp_path, "a", folder=f"a{seed}", log=0), seed=seed)
        log = [update(step, loss=2.0 * step + seed, seconds=1.0) for step in steps]
        (path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in log))
    tab.open(write(tmp_path, tmp_path / "page.html"))
    tab.do("document.querySelector('#curve-0 .values').open = true; new Promise(requestAnimationFrame)")
    assert texts(tab, "#curve-0 .values tbody td") == ["2.5", "6.5", "10.5"]


def test_a_name_in_the_legend_hides_its_line_everywhere(tab, shown):
    tab.open(shown)
    tab.do("[...document.querySelectorAll('#curve-0 .legend button')][1].click()")
    assert [len(paths(tab, figure)) for figure in ("curve-0", "curve-1")] == [2, 2]
    assert tab.do("document.querySelectorAll('#curve-0 .legend button')[1].ariaPressed") == "false"
    tab.do("[...document.querySelectorAll('#curve-1 .legend button')][1].click()")
    assert [len(paths(tab, figure)) for figure in ("curve-0", "curve-1")] == [3, 3]


def test_the_filter_leaves_out_rows_runs_and_lines(tab, shown):
    tab.open(shown)
    search(tab, "unfinished")
    visible = "[...document.querySelectorAll('{}')].filter(node => node.checkVisibility()).length"
    assert tab.do(visible.format("#runs tbody tr")) == 1
    assert tab.do(visible.format("details.run")) == 1
    assert len(paths(tab, "curve-0")) == 1
    assert texts(tab, "#filtered") == ["1 of 5"]
    search(tab, "")
    assert tab.do(visible.format("#runs tbody tr")) == 5


def test_the_filter_leaves_out_lines_by_length_but_no_exam_without_runs(tab, tmp_path):
    for name, seed in (("causalrn", 0), ("causalrn", 1), ("lstm", 0)):
        for length, steps in ((16, 80), (32, 90)):
            rows = [exam_row("free_running", length=asked) for asked in (8, 16)]
            made, task = result(steps_to_accuracy=steps), TASK | {"length": length}
            path = make_run(tmp_path, name, folder=f"{name}-{length}-{seed}", exam=rows, result=made, task=task)
            with_config(path, seed=seed)
    sitting(tmp_path / "exam", "own", task="copying-cui2024")
    tab.open(write(tmp_path, tmp_path / "page.html"))
    names = "[...document.querySelectorAll('#length-{} .legend button')].map(node => node.textContent.trim())"

    def shown():
        return [tab.do(names.format(chart)) for chart in range(3)]

    assert shown() == [["causalrn", "lstm"], ["causalrn", "lstm", "own"], ["causalrn", "lstm"]]
    search(tab, "lstm")
    assert shown() == [["lstm"], ["lstm", "own"], ["lstm"]]
    search(tab, "length 32, seed 1")
    assert shown() == [["causalrn"], ["own"], ["causalrn"]]
    assert "The filter hides a line once none of its runs is shown" in texts(tab, "#lengths .note")[0]
    search(tab, "")


def test_a_screen_reader_is_told_everything(tab, shown):
    tab.open(shown)
    tab("Accessibility.enable")
    nodes = [node for node in tab("Accessibility.getFullAXTree")["nodes"] if not node.get("ignored")]
    tab("Accessibility.disable")
    named = [(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes]
    for role in (
        "slider",
        "button",
        "columnheader",
        "rowheader",
        "combobox",
        "searchbox",
        "link",
        "image",
        "table",
        "navigation",
        "region",
    ):
        names = [name for found, name in named if found == role]
        assert names, role
        assert all(names), role
    charts = [name for role, name in named if role == "slider"]
    assert len(charts) == 4
    assert charts[0].startswith(
        "Chart of Loss (nats) against training step. 3 lines. causalrn from 4.5 at 1 to 0.5404 at 99;"
    )
    levels = tab.do("[...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].map(node => Number(node.tagName[1]))")
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))
    assert tab.do(
        "new Set([...document.querySelectorAll('[id]')].map(n => n.id)).size === document.querySelectorAll('[id]').length"
    )


def test_a_link_in_the_table_opens_its_run_and_the_command_is_there(tab, shown):
    tab.open(shown)
    tab.do("document.querySelector('a[href=\"#run-0\"]').click(); new Promise(done => setTimeout(done, 50))")
    assert tab.do("document.getElementById('run-0').open")


@pytest.mark.parametrize("width", [360, 1280, 2400])
def test_the_page_fits_the_window(tab, shown, width):
    tab.size(width, 900)
    tab.open(shown)
    assert tab.do("document.documentElement.scrollWidth") <= width
    assert tab.do("[...document.querySelectorAll('.plot')].every(p => p.scrollWidth <= p.clientWidth)")


def test_charts_are_drawn_anew_for_another_width(tab, shown):
    tab.open(shown)
    tab.size(700, 900)
    # The first frame tells that the size has changed, the charts are drawn before the second.
    tab.do("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    for drawn, there in tab.do(
        "[...document.querySelectorAll('.plot')].map(one => [one.firstChild.viewBox.baseVal.width, one.clientWidth])"
    ):
        assert drawn == there


def test_a_watched_page_loads_itself_again_and_stays_as_it_was_set(tab, tmp_path):
    make_run(tmp_path / "runs", "a")
    make_run(tmp_path / "runs", "b", log=50, result=None)
    path = write(tmp_path / "runs", tmp_path / "page.html", refresh=1)
    tab.open(path)
    column(tab, "name")
    tab.do("head.click(); head.click()")
    choose(tab, "y-scale", "log")
    began = tab.do("performance.timeOrigin")
    make_run(tmp_path / "runs", "c")
    write(tmp_path / "runs", path)
    limit = time.monotonic() + 30
    while tab.do("performance.timeOrigin") == began or not tab.do("'ready' in document.documentElement.dataset"):
        assert time.monotonic() < limit
        time.sleep(0.1)
    assert column(tab, "name")() == ["c", "b", "a"]
    assert tab.do("document.getElementById('y-scale').value") == "log"
    assert tab.do("document.getElementById('refresh')") is None


def test_a_page_of_a_hundred_runs_opens_within_two_seconds(tab, tmp_path):
    for number in range(100):
        name, length = f"model-{number % 4}", 2 ** (4 + number // 4 % 5)
        path = make_run(tmp_path, name, folder=f"run-{number}", log=0, task=TASK | {"length": length})
        with_config(path, seed=number // 20)
        lines = [update(step, loss=3.0 + step * number % 7) for step in range(1, 601)]
        (path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    path = write(tmp_path, tmp_path / "page.html")
    seconds = []
    for _ in range(3):
        began = time.monotonic()
        tab.open(path)
        # Seen, not only loaded.
        tab.do("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        seconds.append(time.monotonic() - began)
    # Loss and accuracy at five lengths, and steps against length, of four models.
    assert tab.do("document.querySelectorAll('path.line').length") == 44
    assert min(seconds) < 2, seconds
