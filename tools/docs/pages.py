"""The generated pages of docs/, by their files: one a check, and what was measured."""

from pathlib import Path

from perfdoctor.catalogue import checks
from tools.docs.accuracy import PAGES, filled
from tools.docs.checks import check_page, index

ROOT = Path(__file__).parents[2]


def generated() -> dict[Path, str]:
    """All of them, as they have to be now."""
    catalogue = checks()
    folder = ROOT / "docs" / "checks"
    pages = {folder / f"{each.id}.md": check_page(each) for each in catalogue}
    pages[folder / "index.md"] = index(catalogue)
    return pages | {ROOT / "docs" / page: filled(page, ROOT) for page in PAGES}
