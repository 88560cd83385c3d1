"""A page in one file: the template filled in, with styles, plots and their data inside."""

import base64
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.resources import files
from typing import Any, Literal

import msgspec

from perfdoctor.report.inert import harmless
from perfdoctor.schema.errors import UsageError

LARGEST_BYTES = 1_500_000
"""The size that a page should not exceed, in bytes."""
Kind = Literal["timeline", "stack", "intervals", "curve", "bars"]
"""Kinds of plots; `draw.js` has a function for each."""


@dataclass(frozen=True)
class Figure:
    """A plot, and the numbers in it as a table for readers who can't see it."""

    kind: Kind
    title: str
    caption: str
    """What is seen, and what was left out."""
    data: Mapping[str, Any]
    """As the function in `draw.js` wants it."""
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    legend: tuple[tuple[str, str], ...] = ()
    """Names of colours in `style.css`, and what they stand for."""


@dataclass(frozen=True)
class Limits:
    """How much of a report is shown."""

    findings: int
    """Findings that are shown in full; of the others, a line each."""
    lines: int
    """Findings that have a line; the entries of other lists, too."""
    facts: int
    """Facts of one finding."""
    characters: int
    """Characters of one text."""
    spans: int
    """Spans of one lane of a timeline."""


WIDE = Limits(findings=100, lines=1000, facts=40, characters=4000, spans=600)
"""The limits of a page that is not too large."""
NARROWER = (
    WIDE,
    Limits(findings=50, lines=1000, facts=12, characters=400, spans=300),
    Limits(findings=15, lines=100, facts=6, characters=120, spans=100),
)
"""Tried in this order, until the page is no larger than LARGEST_BYTES."""


def fitting(filled: Callable[[Limits], str]) -> str:
    """The page at the widest limits at which it is small enough."""
    page = ""
    for limits in NARROWER:
        page = filled(limits)
        if len(page.encode()) <= LARGEST_BYTES:
            break
    return page


def filled(template: str, limits: Limits, **values: Any) -> str:
    """A template of the folder `assets`; whatever text it is given is escaped, and made visible.

    `values["figures"]`: the plots.
    """
    try:
        jinja2: Any = import_module("jinja2")
    except ModuleNotFoundError:
        raise UsageError("jinja2 is missing; pip install 'perfdoctor[html]'") from None
    scripts = (asset("plot.min.js"), asset("draw.js"))
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(asset),
        autoescape=True,
        finalize=partial(visible, most=limits.characters),
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    safe = import_module("markupsafe").Markup
    page: str = environment.get_template(template).render(
        **values,
        limits=limits,
        style=safe(asset("style.css")),
        scripts=[safe(each) for each in scripts],
        hashes=" ".join(f"'sha256-{hash_of(each)}'" for each in scripts),
        data=safe(embedded([each.data for each in values["figures"]], limits)),
    )
    return f"{page}\n"


def visible(value: Any, most: int) -> Any:
    """A text without what could deceive its reader, and no longer than so many characters."""
    if type(value) is not str:  # Markup is ours, and as it should be
        return value
    cut = value if len(value) <= most else f"{value[:most]}… ({len(value):,} characters)"
    return harmless(cut)


def embedded(data: Any, limits: Limits) -> str:
    """JSON that can stand within a script element."""
    return (
        msgspec.json.encode(all_visible(data, limits.characters)).decode().replace("<", "\\u003c")
    )


def all_visible(data: Any, most: int) -> Any:
    """All texts within plain data."""
    if isinstance(data, Mapping):
        return {key: all_visible(each, most) for key, each in data.items()}
    if isinstance(data, list | tuple):
        return [all_visible(each, most) for each in data]
    return visible(data, most)


def asset(name: str) -> str:
    """A file of the folder `assets`."""
    return files("perfdoctor.report.html").joinpath("assets", name).read_text(encoding="utf-8")


def hash_of(script: str) -> str:
    """The hash by which the page's policy knows its own scripts."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
