"""Reports: reads run folders and exams and draws tables and figures from them. Imports no torch and no other package of ours.

`relnet.report.page` makes one HTML page of it all.
"""

from relnet.report.cells import duration
from relnet.report.exam_figures import exam_figures
from relnet.report.figures import check_png, learning_curves
from relnet.report.reading import Run, read_runs
from relnet.report.sat import exam_lines
from relnet.report.steps import steps_figure
from relnet.report.tables import markdown, table
from relnet.report.theory import read_results, read_theory, theory_figure, theory_tables
from relnet.report.verdict import read_exam, verdict

__all__ = [
    "Run",
    "check_png",
    "duration",
    "exam_figures",
    "exam_lines",
    "learning_curves",
    "markdown",
    "read_exam",
    "read_results",
    "read_runs",
    "read_theory",
    "steps_figure",
    "table",
    "theory_figure",
    "theory_tables",
    "verdict",
]
