"""What goes into a page, before a browser sees it."""

import json
import re
from html.parser import HTMLParser

import pytest

from relnet.report import table
from relnet.report.page import gather, page
from relnet.report.page.curves import clock, length_charts, panels, steps_charts
from relnet.report.page.grouping import grouped, run_labels
from relnet.report.page.thinning import thinned
from relnet.report.reading import read_runs
from tests.report.folders import TASK, TEXT_TASK, exam_row, make_run, result, text_row, update

NASTY = "</script><script>alert(1)</script><img src=x onerror=alert(2)> & \"'"


def with_config(path, **train):
    """Another seed, learning rate, ... in the run's config."""
    config = json.loads((path / "config.json").read_text())
    config["train"] |= train
    (path / "config.json").write_text(json.dumps(config))
    return path


def data_of(text):
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.S)[1])


class Tags(HTMLParser):
    """Every start tag of a page with its attributes, and its text outside of scripts."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text, self._inside = [], "", ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside not in ("script", "style"):
            self.text += data


@pytest.mark.parametrize("length", [1, 2, 499, 501, 5000, 12345])
def test_a_thinned_curve_keeps_its_extremes_its_ends_and_its_mean(length):
    values = [(37 * step % 101) / 100 + step / length for step in range(length)]
    values[length // 3] = 50.0
    values[length // 2] = -50.0
    curve = thinned(range(1, length + 1), values)
    assert len(curve["step"]) <= 502
    assert curve["step"] == sorted(set(curve["step"]))
    assert (min(curve["y"]), max(curve["y"])) == (min(values), max(values))
    assert (curve["step"][0], curve["step"][-1]) == (1, length)
    assert curve["y"] == [float(f"{values[step - 1]:.5g}") for step in curve["step"]]
    if "mean" in curve:
        assert sum(curve["mean"]) / len(curve["mean"]) == pytest.approx(sum(values) / length, rel=0.05)


def test_what_is_no_number_is_a_gap_and_the_page_stays_sound_json(tmp_path):
    path = make_run(tmp_path, "a", log=0)
    lines = [update(1), update(2, loss=float("nan")), update(3, loss=1e400), update(4, loss=-1e301)]
    (path / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = page(gather([path]), "title")
    assert data_of(text)["curves"][0]["lines"][0]["runs"][0]["y"] == [3.267, None, None, None]


def test_runs_that_differ_in_their_seed_only_are_one_line(tmp_path):
    for seed in (0, 1):
        with_config(make_run(tmp_path, "causalrn", folder=f"a{seed}"), seed=seed, lr=1e-3, checkpoint_every=seed)
    with_config(make_run(tmp_path, "causalrn", folder="b"), seed=0, lr=1e-4)
    with_config(make_run(tmp_path, "lstm", folder="c"), seed=0, lr=1e-4)
    with_config(make_run(tmp_path, "lstm", folder="d", task=TASK | {"length": 8}), seed=0, lr=1e-4)
    runs = read_runs([tmp_path])
    groups = grouped(runs)
    assert [(group.label, group.members) for group in groups] == [
        ("lstm", (4,)),
        ("causalrn, lr 0.001", (0, 1)),
        ("causalrn, lr 0.0001", (2,)),
        ("lstm", (3,)),
    ]
    assert run_labels(runs, groups) == [
        "causalrn, lr 0.001, seed 0",
        "causalrn, lr 0.001, seed 1",
        "causalrn, lr 0.0001",
        "lstm",
        "lstm",
    ]
    (_, (loss, accuracy)) = list(panels(runs, groups).items())[1]
    assert [len(line["runs"]) for line in loss["lines"]] == [2, 1, 1]
    assert accuracy["targets"] == [99.0]


def test_what_only_one_of_two_runs_has_tells_them_apart(tmp_path):
    for folder, more in (("a", {}), ("a2", {"penalty": None}), ("b", {"penalty": {"jacobian_weight": 0.1}})):
        path = make_run(tmp_path, "causalrn", folder=folder)
        config = json.loads((path / "config.json").read_text()) | more
        (path / "config.json").write_text(json.dumps(config))
    assert [group.label for group in grouped(read_runs([tmp_path]))] == [
        "causalrn",
        "causalrn, jacobian_weight 0.1",
    ]


def test_the_same_run_twice_is_told_apart_by_its_folder(tmp_path):
    for folder in ("a", "b"):
        with_config(make_run(tmp_path, "causalrn", folder=folder), seed=0)
    runs = read_runs([tmp_path])
    assert run_labels(runs, grouped(runs)) == [f"causalrn, seed 0 ({tmp_path / folder})" for folder in ("a", "b")]


def test_texts_have_their_validation_for_accuracy(tmp_path):
    path = make_run(tmp_path, "a", task=TEXT_TASK, log=4, exam=[text_row()])
    with open(path / "log.jsonl", "a") as file:
        file.write(json.dumps(update(5, bits_per_byte=3.5)) + "\n")
    (charts,) = panels(runs := read_runs([path]), grouped(runs)).values()
    assert [chart["measure"] for chart in charts] == ["Loss", "Validation"]
    assert charts[1]["lines"][0]["runs"] == [{"run": 0, "step": [5], "y": [3.5]}]


def test_a_penalty_has_a_chart_of_its_own(tmp_path):
    path = make_run(tmp_path, "a", log=0)
    (path / "log.jsonl").write_text("".join(json.dumps(update(step, penalty=0.5)) + "\n" for step in (1, 2)))
    (charts,) = panels(runs := read_runs([path]), grouped(runs)).values()
    assert [(chart["measure"], chart["targets"]) for chart in charts] == [
        ("Loss", []),
        ("Accuracy", [99.0]),
        ("Penalty", []),
    ]


def test_the_clock_of_a_run_adds_up_its_updates(tmp_path):
    (run,) = read_runs([make_run(tmp_path, "a", log=200)])
    told = clock(run)
    assert told["seconds"] == [0.25 * step for step in told["step"]]
    assert (told["step"][0], told["step"][-1]) == (1, 200)


def test_accuracy_against_length_takes_all_seeds_of_a_group(tmp_path):
    for seed, exact in ((0, 100), (1, 200)):
        rows = [exam_row("free_running", length=length, items=400, exact=exact) for length in (16, 32)]
        with_config(make_run(tmp_path, "a", folder=f"a{seed}", exam=rows), seed=seed)
    runs = read_runs([tmp_path])
    (chart,) = length_charts(runs, grouped(runs), {})
    assert (chart["task"], chart["trained"]) == ("copying-cui2024", 16)
    (line,) = chart["lines"]
    # Student's t, one degree of freedom: 37.5 % and 12.7062 * 12.5 % about it, cut to [0, 100].
    assert line["free_running.exact"] == [[16, 37.5, 0.0, 100.0], [32, 37.5, 0.0, 100.0]]
    assert line["teacher_forced.exact"] == []


def test_steps_to_the_target_against_length_take_the_seeds_that_reached_it(tmp_path):
    for length, seed, steps in ((16, 0, 80), (16, 1, 100), (32, 0, 200), (32, 1, None), (64, 0, None)):
        task, made = TASK | {"length": length}, result(steps_to_accuracy=steps)
        path = make_run(tmp_path, "causalrn", folder=f"{length}-{seed}", task=task, result=made)
        with_config(path, seed=seed)
    with_config(make_run(tmp_path, "lstm", folder="x", stop_accuracy=0.5), seed=0)
    runs = read_runs([tmp_path])
    (chart,) = steps_charts(runs, grouped(runs))
    assert (chart["task"], chart["target"]) == ("Copying, any length, layout cui2024", 99.0)
    assert chart["lines"] == [
        {
            "label": "causalrn",
            "runs": [0, 1, 2, 3],
            "steps": [[16, 90, 80, 100, ""], [32, 200, 200, 200, "1 of 2 runs"]],
        }
    ]


def test_one_length_is_no_curve(tmp_path):
    runs = read_runs([make_run(tmp_path, "a")])
    assert length_charts(runs, grouped(runs), {}) == []


def sitting(tmp_path, subject="own", **changes):
    lines = [
        exam_row("free_running", subject=subject, length=length, train_length=16, lr=0.002, steps=9) | changes
        for length in (8, 16, 32)
    ]
    tmp_path.mkdir(parents=True, exist_ok=True)
    (tmp_path / "exam.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


@pytest.mark.parametrize("given", ["", "exam.jsonl"])
def test_the_lines_of_an_exam_of_candidates_are_read_without_any_run(tmp_path, given):
    found = gather([sitting(tmp_path / "exam") / given])
    assert (found.runs, found.unreadable) == ([], [])
    assert {place: len(lines) for place, lines in found.sittings.items()} == {tmp_path / "exam": 3}
    (chart,) = data_of(page(found, "title"))["lengths"]
    assert [point[0] for point in chart["lines"][0]["free_running.exact"]] == [8, 16, 32]


def test_a_chart_against_length_is_of_one_trained_task_and_says_where_seeds_are_missing(tmp_path):
    shown, lines = {"task": "planted", "train_length": 16, "lr": 0.002}, []
    for task in ("copying", "unrepeated"):
        for seed, items in ((0, 100), (1, 100 if task == "copying" else 0)):
            rows = [exam_row("free_running", length=length, seed=seed, items=items, exact=0) for length in (8, 16)]
            lines += [row | shown | {"trained_task": task, "note": "" if items else "diverged"} for row in rows]
    one, two = length_charts([], [], {tmp_path: lines})
    assert [(chart["on"], chart["lost"]) for chart in (one, two)] == [
        ("copying", {}),
        ("unrepeated", {"causalrn": "1 of 2 seeds diverged"}),
    ]
    (tmp_path / "exam.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = Tags(page(gather([tmp_path]), "title")).text
    assert "planted, trained on copying up to 16: right answers" in told
    assert "planted, trained on unrepeated up to 16: right answers; causalrn: 1 of 2 seeds diverged" in told


def test_a_training_of_an_exam_is_named_by_its_candidate(tmp_path):
    for name in ("lr-0.002-seed-0", "lr-0.002-seed-1", "lr-0.02-seed-0"):
        path = make_run(tmp_path / "own" / "copying-16", name, config=False, exam=())
        (path / "candidate.json").write_text('{"identity": "lstm, width 8"}')
    runs = gather([tmp_path]).runs
    assert Tags(page(gather([tmp_path]), "title")).text.count("lstm, width 8") == len(runs)
    assert run_labels(runs, grouped(runs)) == ["own, lr 0.002, seed 0", "own, lr 0.002, seed 1", "own, lr 0.02"]
    assert run_labels(runs[:2], grouped(runs[:2])) == ["own, seed 0", "own, seed 1"]


def damage(path, kind):
    if kind == "torn config":
        (path / "config.json").write_text('{"format": 1, "na')
    elif kind == "newer":
        (path / "result.json").write_text('{"format": 99}')
    elif kind == "foreign":
        (path / "result.json").write_text('{"num_parameters": "many", "wall_seconds": []}')
    elif kind == "list":
        (path / "config.json").write_text('{"task": ["copying"], "train": 3}')
    return path


@pytest.mark.parametrize("kind", ["torn config", "newer", "foreign", "list"])
def test_a_damaged_run_is_shown_as_such_beside_the_others(tmp_path, kind):
    make_run(tmp_path, "good")
    bad = damage(make_run(tmp_path, "bad"), kind)
    found = gather([tmp_path])
    assert [run.name for run in found.runs] == ["good"]
    assert [place for place, _ in found.unreadable] == [bad]
    told = Tags(page(found, "title")).text
    assert str(bad) in told
    assert "1 run, 1 not readable" in told


def leaves(value, path=()):
    """The paths to every value in a JSON value, itself included."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from leaves(one, (*path, key))


def replaced(value, path, junk):
    if not path:
        return junk
    made = value.copy()
    made[path[0]] = replaced(value[path[0]], path[1:], junk)
    return made


@pytest.mark.parametrize("file", ["config.json", "result.json", "log.jsonl", "exam.jsonl", "sitting"])
@pytest.mark.parametrize("junk", [None, "x", [], {"a": 1}, float("nan"), -1, True, 10**400], ids=repr)
def test_no_value_in_a_file_keeps_the_page_from_being_made(tmp_path, file, junk):
    make_run(tmp_path / "runs", "good", log=2)
    bad = make_run(tmp_path / "runs", "bad", log=2)
    path = (
        sitting(tmp_path / "runs" / "exam", machine="m", trained_task="t") / "exam.jsonl"
        if file == "sitting"
        else bad / file
    )
    *lines, last = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    for place in leaves(json.loads(last)):
        path.write_text("\n".join([*lines, json.dumps(replaced(json.loads(last), place, junk))]) + "\n")
        found = gather([tmp_path / "runs"])
        text = page(found, "title")
        assert len(found.runs) + len(set(dict(found.unreadable)) & {bad}) == 2, place
        assert table(found.runs)
        assert all(json.loads(run.to_json()) for run in found.runs)
        assert json.loads(
            re.search(r'type="application/json">(.*?)</script>', text, re.S)[1], parse_constant=pytest.fail
        )


@pytest.mark.parametrize(
    ("stopped", "words"), [("accuracy", "target reached"), ("limit", "all steps done"), ("given up", "given up")]
)
def test_a_finished_run_says_how_it_ended(tmp_path, stopped, words):
    make_run(tmp_path, "a", result=result(stopped=stopped))
    assert f" {words}" in Tags(page(gather([tmp_path]), "title")).text


def test_an_unfinished_run_says_how_far_it_is(tmp_path):
    with_config(make_run(tmp_path, "young", log=7, result=None, exam=()), steps=300)
    told = Tags(page(gather([tmp_path]), "title")).text
    assert "unfinished, 7 of 300 steps" in told
    assert "1 run, 1 unfinished" in told


def test_nothing_that_a_user_names_becomes_markup(tmp_path):
    folder = tmp_path / "a<b>&"
    run = make_run(folder, NASTY, folder="run", task=TEXT_TASK, exam=[text_row(sample=NASTY, prompt=NASTY)])
    make_run(folder, NASTY, folder="b<i>")
    (folder / "torn<i>").mkdir()
    (folder / "torn<i>" / "config.json").write_text("<b>")
    sitting(folder / "exam", subject=NASTY, task=NASTY)
    (run / "maps").mkdir()
    (run / "maps" / "<b>.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    (run / "maps" / "no.png").write_bytes(b"GIF")
    text = page(gather([folder]), NASTY, {run: NASTY})
    found = Tags(text)
    assert [tag for tag, _ in found.tags].count("script") == 2
    assert {tag for tag, _ in found.tags} & {"i", "iframe", "object", "link"} == set()
    assert [attributes for tag, attributes in found.tags if any(name.startswith("on") for name in attributes)] == []
    assert [attributes["alt"] for tag, attributes in found.tags if tag == "img"] == [f"Relation map <b> of {NASTY}"]
    assert "no.png is damaged: no PNG" in found.text
    assert found.text.count(NASTY) >= 5
    assert NASTY in [line["label"] for chart in data_of(text)["lengths"] for line in chart["lines"]]


def test_a_page_asks_for_nothing(tmp_path):
    make_run(tmp_path, "a")
    text = page(gather([tmp_path]), "title")
    attributes = [pair for _, found in Tags(text).tags for pair in found.items()]
    assert [
        value for name, value in attributes if name in ("src", "href") and not value.startswith(("#", "data:"))
    ] == []
    assert "default-src 'none'" in text
    assert not re.search(r"@import|url\(", text)


def test_kept_lines_stand_for_their_runs(tmp_path):
    make_run(tmp_path / "runs", "a")
    path = make_run(tmp_path / "runs", "text", task=TEXT_TASK, log=2, exam=[text_row()])
    with open(path / "log.jsonl", "a") as file:
        file.write(json.dumps(update(3, bits_per_byte=3.5)) + "\n")
    runs = read_runs([tmp_path / "runs"])
    kept = tmp_path / "kept.jsonl"
    kept.write_text("".join(run.to_json("relnet train") + "\n" for run in runs))
    again = read_runs([kept])
    assert [run.to_json() for run in again] == kept.read_text().splitlines()
    assert [[update["bits_per_byte"] for update in run.validated] for run in again] == [[], [3.5]]
    assert "relnet train" in Tags(page(gather([kept]), "title")).text


@pytest.mark.parametrize("line", ["", "{}", '{"name": 1, "config": 2, "result": 3, "curve": 4}', "[]"])
def test_lines_that_are_no_runs_are_refused(tmp_path, line):
    (tmp_path / "bench.jsonl").write_text(line + "\n")
    with pytest.raises(ValueError, match=r"bench.jsonl"):
        read_runs([tmp_path / "bench.jsonl"])


def test_runs_and_results_of_an_exam_may_share_a_file(tmp_path):
    (run,) = read_runs([make_run(tmp_path / "runs", "causalrn")])
    sat = [json.loads(line) for line in (sitting(tmp_path / "exam") / "exam.jsonl").read_text().splitlines()]
    path = tmp_path / "both.jsonl"
    path.write_text(
        "\n".join([json.dumps(sat[0]), run.to_json(), json.dumps({"format": 1, "config": 3}), json.dumps(sat[0])])
        + "\n"
    )
    found = gather([path])
    assert found.sittings == {path: [sat[0], sat[0]]}
    assert [(one.name, str(one.folder)) for one in found.runs] == [("causalrn", f"{path}:2")]
    assert [str(place) for place, _ in found.unreadable] == [f"{path}:3"]


def test_a_page_loads_itself_again_only_while_it_is_watched(tmp_path):
    make_run(tmp_path, "a")
    found = gather([tmp_path])
    assert data_of(page(found, "title"))["refresh"] is None
    watched = page(found, "title", refresh=10)
    assert data_of(watched)["refresh"] == 10
    assert "load again every 10 s" in Tags(watched).text


def test_files_of_runs_in_a_folder_are_told_to_be_named(tmp_path):
    (run,) = gather([make_run(tmp_path / "runs", "a")]).runs
    (tmp_path / "lines").mkdir()
    for name in ("one", "two", "three", "four"):
        (tmp_path / "lines" / f"{name}.jsonl").write_text(run.to_json() + "\n")
    told = [
        (
            tmp_path / "lines",
            "files of runs as JSON lines are read by their names only: four.jsonl, one.jsonl, three.jsonl and more",
        )
    ]
    assert gather([tmp_path / "lines"]).unreadable == told
    line = exam_row("free_running", subject="own", length=8, train_length=16, lr=0.002, steps=9)
    (tmp_path / "lines" / "exam.jsonl").write_text(run.to_json() + "\n" + json.dumps(line) + "\n")
    found = gather([tmp_path / "lines"])
    assert (len(found.runs), len(found.sittings), found.unreadable) == (1, 1, told), (
        "an exam's results and runs beside it are read"
    )
    (tmp_path / "runs" / "kept.jsonl").write_text(run.to_json() + "\n")
    assert (len(gather([tmp_path / "runs"]).runs), gather([tmp_path / "runs"]).unreadable) == (1, []), (
        "the same run again"
    )
