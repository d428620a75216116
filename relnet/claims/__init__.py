"""The papers' claims, each judged by a rule over the JSON lines of a results folder. Imports no torch.

One function a claim (`causalrn.py`, `repeat_after_me.py`, `curvature.py`): its docstring is the rule in words, which the ledger
prints, its body the rule. A further claim is a further function, named in its module's tuple.
"""

from relnet.claims.causalrn import CAUSALRN
from relnet.claims.claim import Claim, Finding, Verdict
from relnet.claims.curvature import CURVATURE
from relnet.claims.ledger import ledger
from relnet.claims.lines import Results, read_folder
from relnet.claims.repeat_after_me import REPEAT_AFTER_ME

CLAIMS: tuple[Claim, ...] = (*CAUSALRN, *REPEAT_AFTER_ME, *CURVATURE)

__all__ = ["CLAIMS", "Claim", "Finding", "Results", "Verdict", "ledger", "read_folder"]
