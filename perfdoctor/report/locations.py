"""Finds, in the user's repository, the lines that a report names."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from msgspec.structs import replace

from perfdoctor.schema.report import Finding, Location, Report

WHOLE = re.compile(r"(?P<file>[^\n]+\.py):(?P<line>\d+)")
"""A source that is a place, file:line; files are named with their folder at most."""
WITHIN = re.compile(r"[\w.+/-]+\.py:\d+")
"""A place in a sentence."""


def places(finding: Finding) -> Iterator[str]:
    """The lines that a finding names: first those that its evidence rests on."""
    for each in finding.evidence:
        if WHOLE.fullmatch(each.source):
            yield each.source
    yield from WITHIN.findall(finding.summary)


def every_place(report: Report) -> set[str]:
    """All lines that a report names."""
    found = {each for finding in report.findings for each in places(finding)}
    found.update(each["place"] for each in (report.steps or {"places": []})["places"])
    return {each for each in found if WHOLE.fullmatch(each)}


def resolved(
    named: Iterable[str], files: Iterable[str], root: str, target: str
) -> dict[str, Location]:
    """The places that are lines of a repository.

    `files`: those of the repository, from its root; `root`: the name of its own folder, which may
    begin a place too; `target`: what was examined, which is meant where several files fit.
    """
    by_name = defaultdict(list)
    for file in files:
        by_name[PurePosixPath(file).name].append(file)
    found = {}
    for place in named:
        file, _, line = place.rpartition(":")
        candidates = by_name[PurePosixPath(file).name]
        fitting = [each for each in candidates if f"/{root}/{each}".endswith(f"/{file}")]
        meant = [each for each in fitting if each == target.removeprefix("./")]
        if len(meant or fitting) == 1:
            found[place] = Location(file=(meant or fitting)[0], line=max(1, int(line)))
    return found


def located(report: Report, known: Mapping[str, Location]) -> Report:
    """The report with the line on which each finding stands: the first that it names and that is
    known; one that was found when the report was made stays.
    """
    findings = tuple(
        each if each.location else replace(each, location=first_of(each, known))
        for each in report.findings
    )
    return replace(report, findings=findings)


def first_of(finding: Finding, known: Mapping[str, Location]) -> Location | None:
    """The first known line of source code that a finding names."""
    return next((known[place] for place in places(finding) if place in known), None)
