"""The git repository in which a command runs, as far as a report names its lines."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perfdoctor.schema.report import Report


def in_repository(report: "Report") -> tuple["Report", Mapping[str, str]]:
    """The report with the places of its findings; and the URI of each line that it names.

    Without git, or outside of a repository, the report is as it was, and there are no URIs.
    """
    from perfdoctor.bench.git import python_files, top_level
    from perfdoctor.report.locations import every_place, located, resolved
    from perfdoctor.schema.errors import UsageError

    named = every_place(report)
    if not named:
        return report, {}
    try:
        root = top_level(Path.cwd())
        files = python_files(root)
    except (UsageError, FileNotFoundError):  # no repository, or no working directory any more
        return report, {}
    known = resolved(named, files, root.name, within(root, report.target.name))
    return located(report, known), {
        place: (root / each.file).as_uri() for place, each in known.items()
    }


def within(root: Path, target: str) -> str:
    """A target's name, from the repository's root if it is a file there."""
    file = Path(target).absolute()
    return file.relative_to(root).as_posix() if file.is_relative_to(root) else target
