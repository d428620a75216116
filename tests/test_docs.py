"""What the documentation says holds: its Python and its commands run, its figures, links and version are right."""

import contextlib
import doctest
import functools
import importlib
import io
import math
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import relnet
from relnet import cli, run
from relnet.recipes import exam, models
from relnet.report import ceilings, cells, intervals

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
TEXTS = [*PAGES, "CONTRIBUTING.md", "CHANGELOG.md"]
# What a shell block may hold beside relnet's own commands: not run here.
OTHER_PROGRAMS = ("make", "git", "cd")
# Letters up to which two steps of the largest models take seconds.
SHORT = 16


def read(page):
    return (ROOT / page).read_text()


def blocks(text, *languages):
    return re.findall(rf"^```(?:{'|'.join(languages)})\n(.*?)^```", text, re.S | re.M)


def run_python(text, name):
    """Run a page's Python blocks in order, in one namespace; return what they printed."""
    namespace = {"__name__": name}
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        for number, block in enumerate(blocks(text, "python"), start=1):
            exec(compile(block, f"{name}, Python block {number}", "exec"), namespace)
    return printed.getvalue()


@functools.cache
def printed_by(page):
    return run_python(read(page), page)


def commands(text):
    """The arguments of each relnet command in a page's shell blocks, and whether it says that it is nothing for a test to run.

    A console block's commands follow "$ ".
    """
    lines = "\n".join(blocks(text, "sh", "bash")).replace("\\\n", " ").splitlines()
    for block in blocks(text, "console"):
        lines += [line[2:] for line in block.replace("\\\n", " ").splitlines() if line.startswith("$ ")]
    found = []
    for line in lines:
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        if words and words[0] not in OTHER_PROGRAMS:
            assert words[0] == "relnet", f"no test knows how to check {line!r}"
            found.append((words[1:], bool(re.search(r"# (needs a GPU|takes )", line))))
    return found


def write_files(text, folder):
    """Write each Python block that begins with a file's name, "# NAME.py", as this file."""
    for block in blocks(text, "python"):
        if named := re.match(r"# (\w+\.py)\n", block):
            (folder / named[1]).write_text(block)


def option(arguments, name, default):
    return arguments[arguments.index(name) + 1] if name in arguments else default


def in_two_steps(arguments):
    trains = arguments[0] in ("train", "compare", "sweep") or (arguments[0] == "exam" and "--max-steps" in arguments)
    if not trains or "--help" in arguments:
        return arguments
    if "--max-steps" in arguments:
        at = arguments.index("--max-steps")
        arguments = arguments[:at] + arguments[at + 2 :]
    return [*arguments, "--max-steps", "2"]


def is_short(arguments):
    return int(option(arguments, "--length", SHORT)) <= SHORT


def run_command(arguments):
    try:
        status = cli.main(arguments)
    except SystemExit as ended:
        status = ended.code or 0
    assert status == 0, f"relnet {shlex.join(arguments)}: exit status {status}"


@pytest.fixture
def in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RELNET_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("RELNET_DATA", str(tmp_path / "data"))
    # What commands on a text learn.
    shutil.copy(ROOT / "README.md", tmp_path)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(read(page), "python")])
def test_the_python_of_a_page_runs(page, in_an_empty_folder):
    write_files(read(page), Path())
    printed_by(page)


@pytest.mark.parametrize("page", [page for page in PAGES if commands(read(page))])
def test_the_commands_of_a_page_run_for_two_steps(page, in_an_empty_folder):
    write_files(read(page), Path())
    for arguments, only_parsed in commands(read(page)):
        if only_parsed:
            cli.parse(arguments)
        elif is_short(arguments):
            run_command(in_two_steps(arguments))


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if commands(read(page))])
def test_the_commands_of_a_page_run_whole(page, in_an_empty_folder):
    write_files(read(page), Path())
    for arguments, only_parsed in commands(read(page)):
        if not only_parsed:
            # Long strings take an hour of training and more: that they are learnt is what results/ shows.
            run_command(arguments if is_short(arguments) else in_two_steps(arguments))


def test_a_page_that_is_wrong_is_found_out(in_an_empty_folder):
    with pytest.raises(NameError, match="nowhere"):
        run_python("```python\nx = 1\n```\n\ntext\n\n```python\nassert x == 1\nnowhere\n```\n", "page")
    text = "```sh\nmake demo\nA=1 relnet train copying \\\n  --lenght 3  # typo\nrelnet a  # takes hours\n```\n\n"
    text += "```console\n$ relnet exam none\nout\n```\n"
    assert commands(text) == [(["train", "copying", "--lenght", "3"], False), (["a"], True), (["exam", "none"], False)]
    for arguments in (["train", "copying", "--lenght", "3"], ["exam", "none"]):
        with pytest.raises(AssertionError, match="exit status 2"):
            run_command(arguments)
    with pytest.raises(AssertionError, match="no test knows"):
        commands("```sh\nrelnot train\n```\n")
    with pytest.raises(AssertionError, match="missing"):
        check_links("see [this](docs/nowhere.md)", ROOT)
    with pytest.raises(AssertionError, match="missing"):
        check_links("see [this](docs/numerics.md#nowhere)", ROOT)


def figures(text):
    """The rows of an error table: what was measured -> relative errors."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return {tuple(row[:4]): [float(cell) for cell in row[4:]] for row in rows if re.search(r"e-\d\d$", row[-1])}


def test_the_table_of_errors_is_what_its_script_measures():
    written, measured = figures(read("docs/numerics.md")), figures(printed_by("docs/numerics.md"))
    assert written.keys() == measured.keys()
    assert len(written) == 20
    for row, errors in written.items():
        for stated, found in zip(errors, measured[row], strict=True):
            # Another CPU adds in another order; a path that loses a digit is out.
            assert abs(math.log(found / stated)) < math.log(3), f"{row}: {found} measured, {stated} written"


def anchors(page):
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_links(text, folder):
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    links = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'src="([^"]+)"', text)
    for link in links:
        if re.match(r"\w+:", link):
            continue
        path, _, anchor = link.partition("#")
        assert path, f"{link}: write the file's name before the #"
        assert (folder / path).exists(), f"{link}: missing"
        assert not anchor or anchor in anchors(folder / path), f"{link}: missing"
    for path in re.findall(r"`([\w./-]+/[\w.-]+\.\w+)`", text):
        assert "NAME" in path or (ROOT / path).exists() or (ROOT / "relnet" / path).exists(), f"{path}: missing"


@pytest.mark.parametrize("page", TEXTS)
def test_links_and_files_that_a_page_names_exist(page):
    check_links(read(page), (ROOT / page).parent)


def test_the_sections_that_the_code_cites_exist():
    sections = set(re.findall(r"^## (\d+)\. ", read("docs/mathematics.md"), re.M))
    cited = set()
    for path in (ROOT / "relnet").rglob("*.py"):
        for numbers in re.findall(r"docs/mathematics\.md, sections? ([^.]*)", path.read_text()):
            cited |= set(re.findall(r"\d+", numbers))
    assert cited
    assert cited <= sections


@pytest.mark.parametrize("module", [models, exam, run, cells, intervals, ceilings], ids=lambda module: module.__name__)
def test_the_examples_in_the_docstrings_run(module):
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.slow
def test_the_reference_has_every_public_name(tmp_path):
    packages = re.search(r"^PUBLIC := (.*)$", read("Makefile"), re.M)[1].split()
    names = [f"relnet.{package}" for package in packages]
    subprocess.run([sys.executable, "-m", "pdoc", "-d", "google", "-o", tmp_path, *names], check=True)
    for name in names:
        place, module = tmp_path / name.replace(".", "/"), importlib.import_module(name)
        page = place.with_suffix(".html").read_text()
        for public in getattr(module, "__all__", []):
            has_page = (place / f"{public}.html").exists()
            assert f'id="{public}"' in page or has_page, f"{name}.{public}: not in the reference"
    inside = {path.parent.name for path in (ROOT / "relnet").glob("*/__init__.py")}
    assert inside - set(packages) == {"commands"}, "a new package: name it in the Makefile, or here"


def test_the_citation_and_the_changelog_are_of_this_version():
    citation = yaml.safe_load(read("CITATION.cff"))
    assert citation["version"] == relnet.__version__
    assert citation["authors"] == [{"name": "The relnet authors"}]
    papers = {identifier["value"] for paper in citation["references"] for identifier in paper["identifiers"]}
    assert papers == {"arXiv:2406.16168", "arXiv:2402.01032", "arXiv:2212.00311"}
    releases = re.findall(r"^## \[(.+?)\]", read("CHANGELOG.md"), re.M)
    assert releases[0] == relnet.__version__
