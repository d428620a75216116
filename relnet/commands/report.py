"""relnet report."""

from dataclasses import dataclass
from pathlib import Path

import tyro

from relnet import report
from relnet.commands.console import out


@dataclass(frozen=True)
class Report:
    """Print the table of runs and draw their learning curves."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, or folders of run folders."""
    figure: Path | None = None
    """PNG file of the learning curves; an existing file is kept and a new name chosen. Default: curves.png in the first folder."""
    markdown: bool = False
    """Print the table as Markdown."""
    json: Path | None = None
    """New file to write one JSON line a run into: config, result, exam and curve, to keep when the run folders are gone."""
    command: str = ""
    """The command that made the runs, to stand in --json's lines."""

    def __call__(self) -> None:
        """Run the command."""
        if not self.folders:
            raise ValueError("no folder given; give run folders, or a folder of them")
        runs = report.read_runs(self.folders)
        if self.json:
            # First: a name that is taken is refused before anything is printed or drawn.
            with self.json.open("x") as file:
                file.writelines(one.to_json(self.command) + "\n" for one in runs)
        out.print((report.markdown if self.markdown else report.table)(runs))
        path = report.learning_curves(runs, self.figure or self.folders[0] / "curves.png")
        out.print(f"\nlearning curves: {path}")
        if self.json:
            out.print(f"JSON lines: {self.json}")
