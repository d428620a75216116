"""relnet exam."""

from dataclasses import dataclass, field
from pathlib import Path

import tyro

from relnet import report, run, tasks
from relnet.commands.console import out, status
from relnet.commands.sitting import CandidateOptions, Candidates, show_row
from relnet.commands.sitting import examine as sit


@dataclass(frozen=True)
class Exam:
    """Examine trained runs (their results are added to each run's exam.jsonl), or train candidates and examine them.

    relnet exam RUN: a run sits the exam of its own task, teacher-forced and free-running; on a text, bits per byte.
    relnet exam --model FILE.py:build (or --mixers, --hf-config, --hf): candidates sit the exam of --tasks, which ends with
    a verdict and figures.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    """Folders of finished runs."""
    lengths: tuple[int, ...] = ()
    """Letters in the strings; default: the trained length, of candidates half of it to five times it. Over text: words (copies),
    entries (phone-book), tokens of a paragraph (question-answering)."""
    num: int = run.ITEMS
    """Strings a length and seed."""
    seeds: tuple[int, ...] = (0,)
    """Of the strings asked; of candidates that are trained, also of their weights and training strings: each seed is one
    more training at each learning rate."""
    batch_size: int = 64
    """Strings asked at once."""
    data: Path | None = None
    """Text file of strings of yours, one a line, to ask in place of random ones; these results are shown, not kept."""
    candidates: CandidateOptions = field(default_factory=Candidates)
    """Who else sits which exam."""
    device: str = "auto"
    """auto, cpu, cuda, mps, or one GPU such as cuda:1."""

    def __call__(self) -> None:
        """Run the command."""
        if self.candidates.any:
            if self.runs or self.data:
                raise ValueError(
                    "runs and --data belong to an exam of their own; leave out --mixers, --hf-config, --model and --hf"
                )
            sit(self.candidates, self.lengths, self.seeds, self.num, self.batch_size, self.device)
            return
        if not self.runs:
            raise ValueError(
                "no run folder given; give the folders that relnet train made, or candidates (--model, --mixers, --hf, --hf-config)"
            )
        if self.candidates != Candidates():
            raise ValueError(
                "a run sits the exam of its own task, as it was trained: --tasks, --lrs, --out and the like are for candidates "
                "(--model, --mixers, --hf, --hf-config)"
            )
        asked = (self.lengths, self.num, self.seeds, self.batch_size, self.data)
        for folder in self.runs:
            if isinstance(run.read_config(folder).task, tasks.Text):
                if asked != ((), run.ITEMS, (0,), 64, None):
                    raise ValueError(
                        f"{folder} is a run on a text, measured on all of its validation text: leave out --lengths, --num, --seeds, "
                        "--batch-size and --data"
                    )
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
                on_row=lambda row: show_row(row, out if self.data else status),
            )
        if not self.data:
            out.print(report.table(report.read_runs(self.runs)))
