"""The texts that tests compare with; after a wanted change `python -m tests.golden` renews them.

Look at what changed before you commit it.
"""

from tests.report.reports import GOLDEN, golden_texts


def renew() -> None:
    """Write all texts as they are now, and remove those that nothing compares with any more."""
    texts = golden_texts()
    for file in (each for each in GOLDEN.rglob("*") if each.is_file()):
        if file.relative_to(GOLDEN).as_posix() not in texts:
            file.unlink()
    for name, text in texts.items():
        file = GOLDEN / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    renew()
