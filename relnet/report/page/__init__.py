"""One HTML page of runs that needs nothing else: no network, no server, no other file.

The charts are drawn by the page's own script, SVG in some 400 lines. Libraries that a Python package brings whole were measured with
100 runs of 600 points in two charts, opened in headless Chromium on two shared cores: plotly 7.1 (4.8 MB) 1.3 to 3.1 s, bokeh 3.9 (1.4 MB)
1.9 to 2.3 s, before anything else of the page, and both draw what neither a screen reader nor the page's dark colours reach.
vl-convert draws no page by itself that reacts. This page takes 0.5 to 1.1 s for its table, charts and settings of 100 runs of 600 updates.

    gathering   what is read, what could not be
    checking    whether figures are figures
    grouping    which runs differ in their seed only
    thinning    long curves in few points
    curves      what the charts draw, as JSON in the page
    elements    HTML that is escaped by being a tree
    markup      tables, settings, commands
    page.css    look: light, dark, print
    chart.js    one chart: axes, lines, bands, pointer, keys; knows no run
    curves.js   lines from JSON: smoothing, wall time, seed bands
    page.js     tables that sort, the filter, controls, refreshing

Nothing that a file holds is trusted: text goes through `elements`, numbers through JSON, and the page's content security policy lets no
other script than its own run and nothing be loaded.
"""

from relnet.report.page.gathering import Gathered, gather
from relnet.report.page.writing import page, page_file, write_page

__all__ = ["Gathered", "gather", "page", "page_file", "write_page"]
