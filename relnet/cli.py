"""The relnet command: parses, calls, prints. Every option comes from a type or a recipe's signature."""

import contextlib
import io
import logging
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from relnet import run
from relnet.commands.claims import Claims
from relnet.commands.compare import Compare
from relnet.commands.console import forgive, out, status
from relnet.commands.exam import Exam
from relnet.commands.export import Export
from relnet.commands.generate import Generate
from relnet.commands.inspect import Inspect
from relnet.commands.predict import Predict
from relnet.commands.report import Report
from relnet.commands.sweep import Sweep
from relnet.commands.theory import Theory
from relnet.commands.train import Train
from relnet.sweep import RunsFailedError
from relnet.train import is_main_process

Command = (
    Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Exam, tyro.conf.subcommand("exam")]
    | Annotated[Generate, tyro.conf.subcommand("generate")]
    | Annotated[Inspect, tyro.conf.subcommand("inspect")]
    | Annotated[Predict, tyro.conf.subcommand("predict")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Sweep, tyro.conf.subcommand("sweep")]
    | Annotated[Claims, tyro.conf.subcommand("claims")]
    | Annotated[Theory, tyro.conf.subcommand("theory")]
)


def parse(arguments: Sequence[str] | None = None) -> Command:
    """Return the command that the arguments name; SystemExit 2 with one line on stderr where they do not fit."""
    captured = io.StringIO()
    try:
        with contextlib.redirect_stderr(captured):
            return tyro.cli(
                Command,
                prog="relnet",
                description="Sequence models made of MLPs over pairs of positions, and an exam of what sequence models remember.",
                args=arguments,
                config=(
                    tyro.conf.CascadeSubcommandArgs,
                    tyro.conf.OmitArgPrefixes,
                    tyro.conf.OmitSubcommandPrefixes,
                ),
            )
    except SystemExit as ended:
        if ended.code:
            _complain(_one_line(captured.getvalue()))
        raise


def _one_line(box: str) -> str:
    """What tyro says in a drawn box, as one line: the first row is its title."""
    rows = [re.sub(r"[─│╭╮╰╯]", " ", row).strip() for row in box.splitlines()]
    # Where there is no terminal the box has rulers of dashes.
    said = [row for row in rows[1:] if row.strip("-")]
    for place, row in enumerate(said):
        if row.startswith(("Perhaps you meant", "Arguments similar to")):
            told = " ".join(said[:place])
            last = [other for other in said if other.startswith("For full helptext")]
            return " ".join([told, f"Perhaps you meant: {_similar(said[place:], told)}", *last])
    return " ".join(said)


def _similar(rows: Sequence[str], told: str) -> str:
    """The options that tyro thinks of, without the help of each in every command that has it; for one that was typed, those commands."""
    commands: dict[str, list[str]] = {}
    option = ""
    for row in rows:
        if row.startswith("--"):
            option = row.split()[0].rstrip(",")
            commands.setdefault(option, [])
        elif option and (found := re.fullmatch(r"in (relnet .*) --help", row)):
            commands[option].append(found[1])
    typed = re.findall(r"--[\w-]+", told)
    return " or ".join(
        f"{option} of {', '.join(known)}" if option in typed else option for option, known in commands.items()
    )


def _complain(message: str) -> None:
    print(f"relnet: {message}", file=sys.stderr)


def _words(error: BaseException) -> str:
    """What an error says; of the system's own on a file, its name and no number."""
    if not isinstance(error, OSError) or error.filename is None:
        return str(error)
    if isinstance(error, FileExistsError):
        return f"{error.filename} exists, and nothing is overwritten; give a new name"
    return f"{error.filename}: {error.strerror}"


def _resuming(arguments: Sequence[str], folder: Path) -> str:
    """The same command, told to go on in its folder."""
    words = ["relnet", *arguments]
    words += [] if "--out" in words else ["--out", str(folder)]
    words += [] if "--resume" in words else ["--resume"]
    return shlex.join(words)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status: 0, 1 (failed), 2 (a mistake in what was asked), 130 (Ctrl-C).

    With several processes the others help to train and say nothing but why they failed.
    """
    forgive()
    main_process = is_main_process()
    out.quiet = status.quiet = not main_process
    logging.basicConfig(format="relnet: %(message)s", level=logging.WARNING if main_process else logging.ERROR)
    command = None
    try:
        command = parse(arguments)
        if main_process or isinstance(command, Train | Compare):
            command()
    except (ValueError, FileNotFoundError, FileExistsError) as error:
        _complain(_words(error))
        return 2
    except (OSError, FloatingPointError, NotImplementedError, RunsFailedError) as error:
        _complain(_words(error))
        return 1
    except KeyboardInterrupt as error:
        _complain(str(error) or "stopped")
        if isinstance(command, Train | Compare) and isinstance(error, run.RunInterruptedError):
            _complain(f"to go on: {_resuming(sys.argv[1:] if arguments is None else arguments, error.folder)}")
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
