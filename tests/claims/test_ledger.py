import doctest
import importlib
import re
import subprocess
import sys

import pytest

from relnet import cli
from relnet.claims import CLAIMS, ledger, read_folder
from tests.claims.lines import JUDGES, of, run
from tests.launching import ROOT

RESULTS = ROOT / "results"


def test_the_committed_ledger_is_what_the_committed_data_give():
    assert ledger(CLAIMS, read_folder(RESULTS)) == (RESULTS / "README.md").read_text(), (
        "relnet claims results > results/README.md"
    )


def test_every_claim_of_the_papers_has_a_row_a_verdict_and_a_rule():
    keys = [*(f"C{n}" for n in range(1, 16)), *(f"J{n}" for n in range(1, 14)), *(f"R{n}" for n in range(1, 4))]
    assert [claim.key for claim in CLAIMS] == keys
    text = ledger(CLAIMS, of(run("causalrn")))
    for key in keys:
        assert re.search(
            rf"^\| \*\*{key}\*\* .* \| \*\*(holds|holds in part|does not hold|not tested)\*\* \| .*\|$",
            text,
            re.MULTILINE,
        ), key
        assert re.search(rf"^- \*\*{key}\*\*: \w.{{20,}}\.$", text, re.MULTILINE), key


@pytest.mark.parametrize("key", JUDGES)
def test_nothing_is_claimed_without_data(key):
    finding = JUDGES[key](of())
    assert (finding.verdict, finding.files) == ("not tested", ())
    assert finding.came, "why"


def test_what_holds_for_all_rules_of_a_paper_stands_above_them():
    text = ledger(CLAIMS, of(run("causalrn")))
    assert "### Rules\n\nCopying runs are those of width 192" in text
    assert "### Rules\n\nTheory is judged by" in text
    assert "### Rules\n\n- **R1**" in text


def test_it_counts_verdicts_and_lists_every_file():
    text = ledger(
        CLAIMS, of(run("causalrn", 16, 80), run("transformer", 16, None, limit=300), {"case": "another thing"})
    )
    assert "2 holds in part, 29 not tested." in text
    row = "| [some.jsonl](some.jsonl) | `relnet sweep` | 3 | updates to 99 %, 16 letters, rate 0.0005: causalrn 80, transformer >300 |"
    assert row in text


def test_runs_stand_by_length_rate_and_model_with_the_seconds_to_99_percent():
    def timed(line, seconds):
        return line | {"result": line["result"] | {"seconds_per_step": seconds}}

    lines = [
        timed(run("causalrn", 16, 80, seed=0), 0.2),
        timed(run("transformer", 16, None, limit=300), 2.0),
        timed(run("causalrn", 16, 90, seed=1), 0.5),
        timed(run("causalrn", 16, 60, lr=1e-3), 0.2),
    ]
    told = ledger(CLAIMS, of(*lines, run("causalrn", 32, None, stop_accuracy=None)))
    first = "updates to 99 %, 16 letters, rate 0.0005: causalrn 80, 90 (in 16, 45 s), transformer >300 (in 600 s)"
    assert f"| {first}; updates to 99 %, 16 letters, rate 0.001: causalrn 60 (in 12 s) |" in told, "32 had no target"
    large = run("causalrn", 16, 50)
    large["config"]["train"]["batch_size"] = 320
    told = ledger(CLAIMS, of(lines[0], large))
    assert "; updates to 99 %, 16 letters, rate 0.0005, batches of 320 in float32: causalrn 50 " in told
    lookup = run("lstm", 16, 40)
    lookup["config"]["task"]["_type"] = "PrefixLookup"
    told = ledger(CLAIMS, of(lines[0], lookup))
    assert "; updates to 99 %, prefix lookup, 16 letters, rate 0.0005: lstm 40 " in told


def test_a_run_of_a_trainer_called_by_itself_is_no_claims_business():
    line = run("causalrn", 16, 80)
    assert "31 not tested." in ledger(CLAIMS, of(line | {"config": {}}))


def test_a_bar_in_the_data_does_not_break_the_table():
    line = run("a|b") | {"command": "relnet a | b"}
    assert r"| `relnet a \| b` |" in ledger(CLAIMS, of(line))


def test_its_links_lead_somewhere():
    text = (RESULTS / "README.md").read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)[^)]*\)", text) if not link.startswith("https:")]
    assert links
    for link in links:
        assert (RESULTS / link).exists(), link


def test_the_command_prints_it_and_refuses_a_folder_without_results(capsys, tmp_path):
    assert cli.main(["claims", str(RESULTS)]) == 0
    assert capsys.readouterr().out == ledger(CLAIMS, read_folder(RESULTS))
    assert cli.main(["claims", str(tmp_path)]) == 2
    assert "holds no results" in capsys.readouterr().err
    assert cli.main(["claims", str(tmp_path / "nowhere")]) == 2
    assert capsys.readouterr().err.endswith("nowhere is not a folder: it does not exist\n")


def test_judging_needs_no_torch():
    code = "import sys, relnet.claims; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("module", ["claim", "parts"])
def test_the_examples_hold(module):
    result = doctest.testmod(importlib.import_module(f"relnet.claims.{module}"))
    assert result.attempted > 0
    assert result.failed == 0
