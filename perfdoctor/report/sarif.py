"""The Report as SARIF 2.1.0: what code scanning shows on the lines of a pull request."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec

from perfdoctor.report.gfm import escaped
from perfdoctor.report.words import in_full, sentence
from perfdoctor.schema.report import Finding, Report

SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
"""Where the JSON Schema of SARIF 2.1.0 is."""
LEVEL = "warning"
"""How grave a finding is for SARIF: it makes a run slow, and not wrong."""
ROOT = "%SRCROOT%"
"""What all files are named from: the root of the repository."""
UNSEEN = {"not-measured": "warning", "crashed": "error"}
"""Level by outcome of checks that could not answer."""


def render(report: Report) -> str:
    """One run; a rule, named by the check's id, and a result for each finding."""
    log = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run(report)]}
    return json.dumps(log, indent=2, ensure_ascii=False) + "\n"


def run(report: Report) -> dict[str, Any]:
    """The run of perfdoctor on this target, as SARIF has it."""
    rules = [rule(each.check, each.documentation) for each in report.findings]
    driver = {"name": "perfdoctor", "version": report.perfdoctor, "rules": rules}
    invocation = {
        "executionSuccessful": report.steps is not None,
        "endTimeUtc": report.created,
        "toolExecutionNotifications": list(notifications(report)),
    }
    return {
        "tool": {"driver": driver},
        "automationDetails": {"id": f"perfdoctor/{report.target.name}/"},
        "invocations": [invocation],
        "columnKind": "unicodeCodePoints",
        "results": [result(each, index, report) for index, each in enumerate(report.findings)],
        "properties": {"summary": sentence(report)},
    }


def rule(check: str, documentation: str) -> dict[str, Any]:
    """A check, with what `perfdoctor explain` says of it."""
    title = documentation.partition("\n")[0] or check
    return {
        "id": check,
        "name": "".join(part.capitalize() for part in check.split("-")),
        "shortDescription": {"text": title},
        "help": {"text": documentation or title, "markdown": documentation or escaped(title)},
        "defaultConfiguration": {"level": LEVEL},
        "properties": {"tags": ["performance"]},
    }


def notifications(report: Report) -> Iterator[dict[str, Any]]:
    """The checks that could not answer, and why."""
    for check in report.checks:
        if check.outcome in UNSEEN:
            yield {
                "level": UNSEEN[check.outcome],
                "message": {"text": f"{check.id}: {check.outcome}: {check.summary}"},
                "associatedRule": {"id": check.id},
            }


def result(finding: Finding, index: int, report: Report) -> dict[str, Any]:
    """A finding on its line; on the target itself, if no line of the repository is named."""
    return {
        "ruleId": finding.check,
        "ruleIndex": index,
        "level": LEVEL,
        "message": {"text": in_full(finding)},
        "rank": 100.0 / finding.rank,
        "locations": [{"physicalLocation": location(finding, report)}],
        "partialFingerprints": {"perfdoctor/v1": f"{report.target.name}:{finding.check}"},
        "properties": {
            "evidence": msgspec.to_builtins(finding.evidence),
            "gain": msgspec.to_builtins(finding.gain),
        },
    }


def location(finding: Finding, report: Report) -> dict[str, Any]:
    """Code scanning shows no result without a file."""
    place = finding.location
    file = place.file if place else report.target.name.removeprefix("-m ")
    return {
        "artifactLocation": artifact(file or "unknown"),
        "region": {"startLine": place.line if place else 1},
    }


def artifact(file: str) -> dict[str, str]:
    """A file of the repository, or one that is named by its whole path."""
    uri = quote(file)
    return {"uri": f"file://{uri}"} if file.startswith("/") else {"uri": uri, "uriBaseId": ROOT}
