"""Where commands print: results go to stdout, what happens meanwhile to stderr, so that a pipe gets the results only."""

from rich.console import Console

out = Console(markup=False, highlight=False, soft_wrap=True)
status = Console(stderr=True, markup=False, highlight=False, soft_wrap=True)
