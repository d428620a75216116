"""An exam on strings of the user's own, in place of random ones."""

from pathlib import Path
from typing import Any

import torch

from relnet.tasks import Items, Task


class OwnItems:
    """A task whose exam items are the lines of a text file, one string a line; everything else is the task's.

    Empty lines and blanks at a line's ends do not count. ValueError for a file that is missing, not UTF-8 or empty, and for a line
    that the task has no tokens for, such as two words, naming its number.
    """

    def __init__(self, task: Task, path: str | Path):
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is no text file to read strings from ({error})") from None
        self._task = task
        self._items: dict[int, list[Items]] = {}
        for number, line in enumerate(map(str.strip, lines), 1):
            if not line:
                continue
            try:
                self._items.setdefault(len(line), []).append(task.question(line))
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
        if not self._items:
            raise ValueError(f"{path} holds no string; write one a line")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._task, name)

    def __repr__(self) -> str:
        """By content, which known results go by."""
        content = [item.prompts.tolist() for items in self._items.values() for item in items]
        return f"OwnItems({self._task!r}, {content})"

    @property
    def lengths(self) -> dict[int, int]:
        """How many strings there are of each length."""
        return {length: len(items) for length, items in sorted(self._items.items())}

    def items(self, num: int, length: int, seed: int, index: int = 0) -> Items:
        """Strings index, ..., index + num - 1 of exactly this length, in the file's order; the seed does not matter."""
        chosen = self._items[length][index : index + num]
        return Items(torch.cat([one.prompts for one in chosen]), torch.cat([one.answers for one in chosen]))
