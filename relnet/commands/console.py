"""Where commands print: results go to stdout, what happens meanwhile to stderr, so that a pipe gets the results only."""

import io
import sys

from rich.console import Console

# Names and paths are printed as they are: no ":x:" in them is a picture, no "[x]" a colour.
AS_IT_IS = {"markup": False, "emoji": False, "highlight": False, "soft_wrap": True}
out = Console(**AS_IT_IS)
status = Console(stderr=True, **AS_IT_IS)


def forgive() -> None:
    """From now on stdout and stderr show "?" for a letter that their encoding lacks, where they would fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="replace")
