"""The ledger: results/README.md, all of it from the JSON lines beside it."""

from collections import Counter
from collections.abc import Sequence

from relnet.claims import causalrn, curvature, repeat_after_me
from relnet.claims.claim import Claim, Finding
from relnet.claims.files import files_table, markdown
from relnet.claims.lines import Results

PAPERS = {
    "C": "CausalRN (Cui 2024, [arXiv 2406.16168](https://arxiv.org/abs/2406.16168))",
    "J": "Repeat After Me (Jelassi et al. 2024, [arXiv 2402.01032](https://arxiv.org/abs/2402.01032))",
    "R": "Jacobian and Hessian regularisation (Cui et al. 2022, [arXiv 2212.00311](https://arxiv.org/abs/2212.00311))",
}
COMMON = {"C": causalrn.__doc__, "J": repeat_after_me.__doc__, "R": curvature.__doc__}
VERDICTS = ("holds", "holds in part", "does not hold", "not tested")
INTRODUCTION = """\
# Results

Written by `relnet claims` from the JSON lines in this folder; no figure in it is typed by hand. A verdict is a rule over the data, in
words below each table and as code in `relnet/claims/`. A part of a claim that the data leave open, most often because a run ended
before it came to 99 %, is left out, and then the claim holds in part at most. Runs lie far below the papers' sizes where it is not
said otherwise: a claim that does not hold here does not hold at this size.
"""
FILES_INTRODUCTION = """\
Updates stand run by run, with what so many of the run's median seconds an update make. Many runs had other work beside them: the seconds
of one run are no measure of speed.
"""


def ledger(claims: Sequence[Claim], results: Results) -> str:
    """Return the ledger as Markdown: each paper's claims, verdicts and rules, then the files; the same data give the same bytes."""
    findings = {claim.key: claim.judge(results) for claim in claims}
    count = Counter(finding.verdict for finding in findings.values())
    parts = [INTRODUCTION, ", ".join(f"{count[verdict]} {verdict}" for verdict in VERDICTS if count[verdict]) + ".\n"]
    for letter, paper in PAPERS.items():
        of_paper = [claim for claim in claims if claim.key.startswith(letter)]
        if of_paper:
            parts.append(
                f"## {paper}\n\n{_table(of_paper, findings)}\n\n### Rules\n\n{_common(letter)}{_rules(of_paper)}\n"
            )
    parts.append(f"## Files\n\n{FILES_INTRODUCTION}\n{files_table(results)}\n")
    return "\n".join(parts)


def _table(claims: Sequence[Claim], findings: dict[str, Finding]) -> str:
    rows = [("claim", "source", "what was run", "what came out", "verdict", "data")]
    for claim in claims:
        found = findings[claim.key]
        links = ", ".join(f"[{name}]({name})" for name in found.files)
        rows.append(
            (f"**{claim.key}** {claim.text}", claim.source, found.ran, found.came, f"**{found.verdict}**", links)
        )
    return markdown(rows)


def _common(letter: str) -> str:
    """What holds for all rules of a paper: its module's docstring below the paper's name."""
    text = " ".join((COMMON[letter] or "").partition("\n\n")[2].split())
    return f"{text}\n\n" if text else ""


def _rules(claims: Sequence[Claim]) -> str:
    return "\n".join(f"- **{claim.key}**: {claim.rule}" for claim in claims)
