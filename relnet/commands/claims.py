"""relnet claims."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from relnet import claims
from relnet.commands.console import status


@dataclass(frozen=True)
class Claims:
    """Judge the papers' claims by the JSON lines of a results folder, and print the ledger as Markdown."""

    folder: tyro.conf.Positional[Path]
    """Folder of *.jsonl files, as relnet sweep --json, relnet exam and the benches write them."""

    def __call__(self) -> None:
        """Run the command."""
        results = claims.read_folder(self.folder)
        for told in results.left_out:
            status.print(told)
        # As it is: a console would fold and colour it.
        print(claims.ledger(claims.CLAIMS, results), end="")
