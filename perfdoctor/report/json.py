"""What perfdoctor found as JSON, the contracts `perfdoctor.report/1` and the like."""

import msgspec

from perfdoctor.report.inert import well_formed


def render(told: msgspec.Struct) -> str:
    """All of it, indented."""
    try:
        raw = msgspec.json.encode(told)
    except UnicodeEncodeError:
        raw = msgspec.json.encode(well_formed(msgspec.to_builtins(told)))
    return msgspec.json.format(raw, indent=2).decode() + "\n"
