"""relnet exam."""

from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console

from relnet import exam, report, run, tasks
from relnet.commands.console import out, status


@dataclass(frozen=True)
class Exam:
    """Examine trained runs: copying, teacher-forced and free-running; texts, bits per byte. Results are added to each run's exam.jsonl."""

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of finished runs."""
    lengths: tuple[int, ...] = ()
    """Letters in the strings; default: the trained length."""
    num: int = 320
    """Strings a length and seed."""
    seeds: tuple[int, ...] = (0,)
    """Of the strings."""
    batch_size: int = 64
    """Strings asked at once."""
    data: Path | None = None
    """Text file of strings of yours, one a line, to ask in place of random ones; these results are shown, not kept."""
    device: str = "auto"
    """auto, cpu, cuda, mps, or one GPU such as cuda:1."""

    def __call__(self) -> None:
        """Run the command."""
        if not self.runs:
            raise ValueError("no run folder given; give the folders that relnet train made")
        for folder in self.runs:
            if isinstance(run.read_config(folder).task, tasks.Text):
                run.examine_text(folder, device=self.device)
                continue
            run.examine(
                folder,
                lengths=self.lengths or None,
                seeds=self.seeds,
                num=self.num,
                batch_size=self.batch_size,
                data=self.data,
                device=self.device,
                # Results that are kept come in the table below.
                on_row=lambda row: _show_row(row, out if self.data else status),
            )
        if not self.data:
            out.print(report.table(report.read_runs(self.runs)))


def _show_row(row: exam.Row, console: Console) -> None:
    share = f"{row.exact}/{row.items} strings exact" if row.items else row.note
    console.print(f"{row.subject}  length {row.length}  seed {row.seed}  {row.mode}: {share}")
