"""Reports: reads run folders and exams and draws tables and figures from them. Imports no torch and no other package of ours.

`relnet.report.page` makes one HTML page of it all.
"""

from relnet.report.cells import duration
from relnet.report.exam_figures import exam_figures
from relnet.report.figures import check_png, learning_curves
from relnet.report.files import check_free, check_new, write_new, write_once
from relnet.report.maps import ImageMaps, image_panel, text_panel
from relnet.report.reading import Run, read_runs
from relnet.report.sat import exam_lines
from relnet.report.steps import steps_figure
from relnet.report.tables import markdown, table
from relnet.report.theory import read_results, read_theory, theory_figure, theory_tables
from relnet.report.verdict import read_exam, verdict

__all__ = [
    "ImageMaps",
    "Run",
    "check_free",
    "check_new",
    "check_png",
    "duration",
    "exam_figures",
    "exam_lines",
    "image_panel",
    "learning_curves",
    "markdown",
    "read_exam",
    "read_results",
    "read_runs",
    "read_theory",
    "steps_figure",
    "table",
    "text_panel",
    "theory_figure",
    "theory_tables",
    "verdict",
    "write_new",
    "write_once",
]
