"""The Report as JSON: the contract `perfdoctor.report/1`."""

import msgspec

from perfdoctor.schema.report import Report


def render(report: Report) -> str:
    """The whole Report, indented."""
    return msgspec.json.format(msgspec.json.encode(report), indent=2).decode() + "\n"
