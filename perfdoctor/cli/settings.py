"""Defaults of options, from `[tool.perfdoctor]` in the working directory's pyproject.toml.

[tool.perfdoctor.bench]
threshold = "3%"
on-inconclusive = "warn"
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfdoctor.schema.errors import UsageError, meant

FILE = Path("pyproject.toml")
"""The file of a project's settings, in the working directory."""
TABLE = "tool.perfdoctor"
"""The table in it that is perfdoctor's."""


def settings(options: Mapping[str, set[str]]) -> dict[str, dict[str, Any]]:
    """The settings, by command and option; `options`: those that exist. A UsageError that names a
    wrong key.
    """
    try:
        raw = tomllib.loads(FILE.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        return {}  # no project here, or one whose file is for others to complain about
    table = raw.get("tool", {}).get("perfdoctor", {})
    found: dict[str, dict[str, Any]] = {}
    for command, values in mapping(table, TABLE).items():
        known(command, options, TABLE)
        where = f"{TABLE}.{command}"
        found[command] = {}
        for key, value in mapping(values, where).items():
            name = key.replace("-", "_")
            known(name, options[command], where)
            found[command][name] = value
    return found


def mapping(value: Any, where: str) -> dict[str, Any]:
    """A table of TOML."""
    if not isinstance(value, dict):
        raise UsageError(f"{FILE}: {where} = {value!r}; expected a table")
    return value


def known(name: str, names: Mapping[str, Any] | set[str], where: str) -> None:
    """A UsageError if there is no such name."""
    if name in names:
        return
    shown = name.replace("_", "-")
    other = meant(shown, sorted(each.replace("_", "-") for each in names))
    raise UsageError(f"{FILE}: unknown key {where}.{shown}; {other}")
