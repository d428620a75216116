"""What --resume asks of a folder."""

from collections.abc import Sequence
from pathlib import Path


def check_resumable(out: Path | None, names: Sequence[str] = ("",)) -> None:
    """Raise ValueError where there is no run to go on with, as after a slip of the pen in --out."""
    if out is None:
        raise ValueError("--resume needs --out FOLDER, what to go on with")
    if not any((out / name / "config.json").exists() for name in names):
        raise ValueError(f"{out} holds nothing to go on with; give the folder that was begun, or leave out --resume")
