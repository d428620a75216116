"""Reports: reads run folders and draws tables and figures from them. Imports no torch and no other package of ours."""

from relnet.report.cells import duration
from relnet.report.figures import learning_curves
from relnet.report.reading import Run, read_runs
from relnet.report.tables import markdown, table
from relnet.report.theory import read_results, read_theory, theory_figure, theory_tables

__all__ = [
    "Run",
    "duration",
    "learning_curves",
    "markdown",
    "read_results",
    "read_runs",
    "read_theory",
    "table",
    "theory_figure",
    "theory_tables",
]
