"""relnet exam with candidates: those that are trained first, and pretrained ones as they are."""

import contextlib
import importlib
import time
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from relnet import exam, protocol, recipes, report, run, tasks
from relnet.commands.console import out, status
from relnet.progress import TrainingProgress
from relnet.train import StepRecord, TrainConfig, choose_device

# Tasks over text, for models with a tokenizer; lengths are words, letters, entries, and tokens of a paragraph.
TEXT_TASKS = ("text-copy", "shuffled-copy", "uniform-copy", "phone-book", "question-answering")
TEXT_LENGTHS = (10, 20, 50, 100)
# Updates that a kill loses at most.
CHECKPOINT_EVERY = 100


@dataclass(frozen=True)
class Candidates:
    """Who sits the exam, and which one; without any of them, the runs sit their own."""

    mixers: tuple[recipes.ModelName, ...] = ()
    """Models of the papers to train and examine."""
    hf_config: tuple[str, ...] = ()
    """Architectures of transformers to train and examine, by config: mamba, gpt_neox, llama, rwkv ..."""
    model: tuple[str, ...] = ()
    """Modules or mixers of yours to train and examine, FILE.py:FUNCTION; see examples/own_mixer.py."""
    hf: tuple[str, ...] = ()
    """Pretrained models to examine as they are: folders, or names on the hub."""
    tasks: tuple[str, ...] = ()
    """NAME-LENGTH: trained up to the length, NAME one of copying, prefix-lookup, suffix-lookup, duplicated-ngram,
    unrepeated-copying, recall, selective-copying, induction-heads, flip-flop; default copying-16 copying-32 copying-64
    prefix-lookup-32 suffix-lookup-32. For --hf also text-copy, shuffled-copy, uniform-copy, phone-book, question-answering; default
    uniform-copy phone-book."""
    width: int = 64
    """Of models that are trained."""
    depth: int = 2
    """Blocks of models that are trained."""
    equal: recipes.Equal = "width"
    """Whether models that are trained have equal width, or as many parameters as the first."""
    positions: Literal["learned", "none"] = "none"
    """Of --mixers. Learned ones end at the longest length asked, and those beyond the trained length are never trained."""
    max_steps: int = 1000
    """Most updates a training; it stops once 99 % has stayed for 20."""
    train_batch: int = 64
    """Rows an update, each with one example of the trained length or several shorter ones."""
    lrs: tuple[float, ...] = (3e-4, 1e-3, 3e-3)
    """Learning rates to try, each a training; the best one in training is shown, all are kept."""
    text: Path | None = None
    """Text file that text-copy and shuffled-copy take passages from."""
    squad: Path | None = None
    """File in SQuAD's format for question-answering."""
    out: Path | None = None
    """Folder of the exam; one that was begun is gone on with. Default: a new one under $RELNET_RUNS or ./runs."""

    @property
    def any(self) -> bool:
        """Whether somebody is named."""
        return bool(self.mixers or self.hf_config or self.model or self.hf)


def examine(
    asked: Candidates, lengths: Sequence[int], seeds: Sequence[int], num: int, batch_size: int, device: str
) -> None:
    """Train and examine all who were named; print the verdict, draw the figures."""
    began = time.monotonic()
    # Refused now, not after minutes of training.
    for name, value in (("num", num), ("batch-size", batch_size)):
        if value < 1:
            raise ValueError(f"--{name} {value}: at least 1 wanted")
    settings = TrainConfig(steps=asked.max_steps, batch_size=asked.train_batch, checkpoint_every=CHECKPOINT_EVERY)
    trained = recipes.candidates(
        asked.mixers, asked.hf_config, asked.model, asked.width, asked.depth, asked.equal, asked.positions
    )
    papers = [recipes.paper(name, settings, lengths) for name in asked.tasks or recipes.STANDARD] if trained else []
    with run.run_folder(asked.out, "exam") as folder, _told_how_to_go_on(folder), contextlib.ExitStack() as shown:
        protocol.check_folder(folder)
        status.print(f"exam in {folder}")
        progress: TrainingProgress
        lines: list[dict[str, Any]] = []

        def start(what: str, paper: protocol.Paper) -> None:
            nonlocal progress
            shown.close()
            progress = shown.enter_context(TrainingProgress(what, paper.train.steps, status))

        def step(record: StepRecord) -> None:
            progress(record)

        def ask(what: str) -> None:
            shown.close()
            shown.enter_context(status.status(f"asking {what}"))

        def show(row: exam.Row) -> None:
            shown.close()
            show_row(row)

        # Those who are taken as they are come first: a wrong name or file is found before anything is trained.
        for name in asked.hf:
            found = _pretrained(asked, name, lengths, seeds, num, batch_size, device, folder)
            lines = protocol.add_lines(folder / "exam.jsonl", found)
        if trained:
            lines = protocol.sit(
                trained,
                papers,
                folder,
                lrs=asked.lrs,
                seeds=seeds,
                num=num,
                batch_size=batch_size,
                device=device,
                on_train=start,
                on_step=step,
                on_ask=ask,
                on_row=show,
            )
        shown.close()
    out.print(report.verdict(lines))
    if any(line["items"] for line in lines):
        out.print("figures: " + ", ".join(map(str, report.exam_figures(lines, folder))))
    out.print(f"results: {folder / 'exam.jsonl'}; {report.duration(time.monotonic() - began)}")


@contextlib.contextmanager
def _told_how_to_go_on(folder: Path) -> Generator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"stopped; the same command with --out {folder} goes on") from None


def _pretrained(
    asked: Candidates,
    name: str,
    lengths: Sequence[int],
    seeds: Sequence[int],
    num: int,
    batch_size: int,
    device: str,
    folder: Path,
) -> list[dict[str, Any]]:
    """Lines of a pretrained model on each task, letters by its own ids and text by its tokenizer."""
    # It tells transformers of relnet's own architecture. Without transformers, what comes next says what to install.
    with contextlib.suppress(ImportError):
        importlib.import_module("relnet.hf")
    model = exam.load_pretrained(name).to(choose_device(device))
    subject = exam.ModelSubject(model, name=name)
    identity = f"content {subject.content}"
    _refuse_another(folder / "exam.jsonl", name, identity)
    known = exam.ResultCache(folder / "known.jsonl")
    rows: list[exam.Row] = []
    for task in asked.tasks or ("uniform-copy", "phone-book"):
        if task == "question-answering":
            if asked.squad is None:
                raise ValueError("question-answering needs --squad FILE, in SQuAD's format")
            questions = tasks.read_squad(asked.squad)
            bins = sorted(lengths) or [100, 200, 400]
            tokeniser = exam.load_tokeniser(name)
            rows += exam.answer_questions(
                subject,
                tokeniser,
                questions,
                bins=bins,
                seeds=seeds,
                num=num,
                batch_size=batch_size,
                cache=known,
                on_row=show_row,
            )
            continue
        if task in TEXT_TASKS:
            tokeniser = exam.load_tokeniser(name)
            posed, grid = tasks.Tokenised(_text_task(asked, task, tokeniser), tokeniser), lengths or TEXT_LENGTHS
        else:
            paper = recipes.paper(task, TrainConfig(), lengths)
            posed, grid = paper.task, paper.lengths
        rows += exam.evaluate(
            subject, posed, lengths=grid, seeds=seeds, num=num, batch_size=batch_size, cache=known, on_row=show_row
        )
    return [asdict(row) | {"identity": identity} for row in rows]


def _refuse_another(path: Path, name: str, identity: str) -> None:
    """Refuse a folder with answers of another model of this name, as a model that was saved anew in its place is."""
    held = report.read_exam(path) if path.exists() else []
    if any(line["subject"] == name and line.get("identity", identity) != identity for line in held):
        raise ValueError(f"{path} holds answers of another model that was named {name}; take another --out")


def _text_task(asked: Candidates, name: str, tokeniser: tasks.Tokeniser) -> tasks.TextTask:
    if name == "uniform-copy":
        return tasks.UniformCopy()
    if name == "phone-book":
        return tasks.PhoneBook()
    if asked.text is None:
        raise ValueError(f"{name} needs --text FILE, to take passages from")
    task = tasks.TextCopy.read(asked.text, "natural" if name == "text-copy" else "shuffled")
    # A model is not asked to copy letters that its tokenizer never shows it.
    return replace(task, text=tokeniser.written(task.text))


def show_row(row: exam.Row, console: Console = status) -> None:
    """Print a result as soon as it is known, or why there is none."""
    share = f"{row.exact}/{row.items} exact" if row.items else row.note
    console.print(f"{row.subject}  {row.task}  length {row.length}  seed {row.seed}  {row.mode}: {share}")


CandidateOptions = Annotated[Candidates, tyro.conf.arg(name="")]
