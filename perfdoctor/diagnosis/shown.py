"""A Report for whoever sits before the loop: as HTML in a notebook, as text elsewhere."""

import html
import sys
from importlib import import_module
from typing import Any

from perfdoctor.diagnosis.course import report_of
from perfdoctor.report.formats import rendered
from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.fix import MIN_GAIN
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.report import Report

HEIGHT_PX = 900


def as_html(report: Report) -> str:
    """For a notebook's cell: the HTML report in a frame of its own; the text of the terminal where
    the extra `html` is not installed.
    """
    try:
        page = rendered(report, "html")
    except (ImportError, UsageError):
        return f"<pre>{html.escape(rendered(report, 'terminal'))}</pre>"
    return (
        f'<iframe title="perfdoctor report" srcdoc="{html.escape(page)}" '
        f'style="width: 100%; height: {HEIGHT_PX}px; border: 0" '
        'sandbox="allow-scripts allow-popups allow-downloads"></iframe>'
    )


class Shown:
    """A Report: its `str` is what a terminal shows; in a notebook it is the HTML report."""

    def __init__(self, data: Report) -> None:
        self.data = data

    def text(self, format: str = "terminal") -> str:
        """In one of the formats of `perfdoctor check --format`."""
        return rendered(self.data, format)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return as_html(self.data)


def shown(seen: Observation, min_gain: float = MIN_GAIN) -> Shown:
    """What the checks say of an Observation."""
    return Shown(report_of(seen, min_gain))


class Terminal:
    """Text, on stderr."""

    def say(self, text: str) -> None:
        """Nothing: lines between those of the loop would be in its way."""

    def show(self, report: Report) -> None:
        """When it is there."""
        print(rendered(report, "terminal"), file=sys.stderr, flush=True)


class Cell:
    """The output of the notebook's cell that asked; it is written over as it becomes known."""

    def __init__(self, display: Any, as_page: Any) -> None:
        """Both of IPython."""
        self._as_page = as_page
        self._handle = display(as_page("<em>perfdoctor: looking at the loop</em>"), display_id=True)

    def say(self, text: str) -> None:
        """What is done just now."""
        self._update(f"<em>perfdoctor: {html.escape(text)}</em>")

    def show(self, report: Report) -> None:
        """In place of that."""
        self._update(as_html(report))

    def _update(self, text: str) -> None:
        if self._handle is not None:
            self._handle.update(self._as_page(text))


def screen() -> Terminal | Cell:
    """Where the report is to be seen: never loads IPython where the program has not."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return Terminal()
    here: Any = import_module("IPython.display")
    return Cell(here.display, here.HTML)
