"""relnet report."""

import time
from dataclasses import dataclass
from pathlib import Path

import tyro

from relnet import report
from relnet.commands.console import out, status
from relnet.commands.rerun import rerun
from relnet.report.page import Gathered, gather, page, page_file, write_page

# Seconds between two looks at the folders, and between two of a browser at the page.
WATCHING = 10


@dataclass(frozen=True)
class Report:
    """Print the table of runs and draw their learning curves, or write all of it as one HTML page."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """Run folders, folders of run folders, or files that --json wrote."""
    figure: Path | None = None
    """PNG file of the learning curves; an existing file is kept and a new name chosen. Default: curves.png in the first folder."""
    html: Path | None = None
    """HTML file to write in place of a figure, with nothing else needed to open it; an earlier page of this command is replaced."""
    watch: bool = False
    """With --html: write the page again as the runs go on, until Ctrl-C; a page that is open follows. The first run may come later."""
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
        if self.watch and not self.html:
            raise ValueError("--watch keeps a page up to date: say which, --html FILE")
        self._refuse()
        if self.html:
            self._page(self.html)
            return
        found = gather(self.folders)
        if not found.runs and found.unreadable:
            place, why = found.unreadable[0]
            raise ValueError(f"{place} cannot be read: {why}")
        if not found.runs:
            raise ValueError(f"{self.folders[0]} holds results of an exam and no run; --html FILE shows them")
        drawn = self._drawn(found)
        self._keep(found.runs)
        self._tell(found)
        if found.sittings:
            out.print("results of exams are there too; --html FILE shows them")
        if drawn:
            first = self.folders[0]
            beside = first if first.is_dir() else first.parent
            path = report.learning_curves(found.runs, self.figure or beside / "curves.png")
            out.print(f"\nlearning curves: {path}")
        else:
            out.print("no learning curves: no run has an update yet")
        if self.json:
            out.print(f"JSON lines: {self.json}")

    def _refuse(self) -> None:
        """Raise for names that no file can be written under, before anything is read or written."""
        if self.figure:
            report.check_png(self.figure)
        if self.html:
            page_file(self.html)
        if self.json:
            report.check_free(self.json)
            report.check_new(self.json)
            if self.html and self.html.resolve() == self.json.resolve():
                raise ValueError(f"{self.json} is to be the page and the JSON lines; give two names")

    def _drawn(self, found: Gathered) -> bool:
        """Whether there is something to draw; ValueError where a figure was asked for and there is nothing."""
        if any(run.updates for run in found.runs):
            return True
        if self.figure and not self.watch:
            raise ValueError(f"no updates to draw: {', '.join(map(str, self.folders))}; leave --figure out")
        return False

    def _keep(self, runs: list[report.Run]) -> None:
        if self.json:
            lines = "".join(one.to_json(self.command) + "\n" for one in runs)
            report.write_once(self.json, lines.encode())

    def _tell(self, found: Gathered) -> None:
        if found.runs:
            out.print((report.markdown if self.markdown else report.table)(found.runs))
        for place, why in found.unreadable:
            out.print(f"not readable: {place}: {why}")

    def _page(self, path: Path) -> None:
        found = gather(self.folders, patient=self.watch)
        drawn = self._drawn(found)
        self._keep(found.runs)
        self._write(found, path)
        self._tell(found)
        if self.figure and drawn:
            out.print(f"learning curves: {report.learning_curves(found.runs, self.figure)}")
        if self.json:
            out.print(f"JSON lines: {self.json}")
        out.print(f"page: {path}")
        if self.watch:
            status.print(f"watching; the page is written again every {WATCHING} s until Ctrl-C")
            self._follow(path, found)

    def _follow(self, path: Path, found: Gathered) -> None:
        try:
            while True:
                time.sleep(WATCHING)
                found = self._again(found)
                self._try_to_write(found, path)
        except KeyboardInterrupt:
            # The last page no longer loads itself again.
            self._write(self._again(found), path, watched=False)

    def _try_to_write(self, found: Gathered, path: Path) -> None:
        """A disk that is full may have room again in a while; a file that is no page stays one."""
        try:
            self._write(found, path)
        except FileExistsError:
            raise
        except OSError as error:
            status.print(f"the page stays as it was: {error.filename}: {error.strerror}")

    def _again(self, before: Gathered) -> Gathered:
        """What the folders hold now; where they are gone or cannot be read, what they held before."""
        try:
            found = gather(self.folders, patient=True)
        except (ValueError, OSError) as error:
            status.print(f"the page stays as it was: {error}")
            return before
        if not (found.runs or found.sittings or found.unreadable) and (before.runs or before.sittings):
            status.print("the page stays as it was: no run is left in the folders")
            return before
        return found

    def _write(self, found: Gathered, path: Path, watched: bool = True) -> None:
        title = "relnet report: " + ", ".join(folder.name or str(folder.resolve()) for folder in self.folders)
        commands = {run.folder: command for run in found.runs if (command := rerun(run))}
        write_page(page(found, title, commands, WATCHING if self.watch and watched else None), path)
