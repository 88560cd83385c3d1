"""Writes the pages of docs/ that are made from other files: `python -m tools.docs`.

A test holds them equal (tests/tools/test_docs.py).
"""

from tools.docs.pages import ROOT, generated


def main() -> None:
    """Write all, and remove the page of a check that is gone."""
    pages = generated()
    for stale in set((ROOT / "docs" / "checks").glob("*.md")) - pages.keys():
        stale.unlink()
    for file, text in pages.items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
