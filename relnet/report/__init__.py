"""Reports: reads run folders and draws tables and figures from them. Imports no torch and no other package of ours."""

from relnet.report.cells import duration
from relnet.report.figures import learning_curves
from relnet.report.reading import Run, read_runs
from relnet.report.tables import markdown, table

__all__ = ["Run", "duration", "learning_curves", "markdown", "read_runs", "table"]
