"""The pages of what was measured, with the saved results in them: PAGES beside this file.

A line `{{ clinic/catalogue }}` there stands for tests/clinic/results/catalogue.txt.
"""

import re
from pathlib import Path

PAGES = ("accuracy.md", "rounds.md")
RESULT = re.compile(r"^\{\{ (\w+)/(\w+) \}\}$", re.MULTILINE)


def filled(page: str, root: Path) -> str:
    """The whole page, by its name."""

    def result(found: re.Match[str]) -> str:
        path = f"tests/{found[1]}/results/{found[2]}.txt"
        return shown((root / path).read_text(encoding="utf-8"), path)

    made = f"<!-- Made by `python -m tools.docs` from tools/docs/{page} and the saved results. -->"
    text = Path(__file__).with_name(page).read_text(encoding="utf-8")
    return f"{made}\n\n{RESULT.sub(result, text)}"


def shown(text: str, path: str) -> str:
    """A saved result: when, where, of which commit and by which command; then what it says."""
    heading, _, body = text.partition("\n\n")
    known = dict(re.split(r"\s+", line, maxsplit=1) for line in heading.splitlines())
    jax = re.search(r"jax [\d.]+", known["versions"])
    machine = known["machine"].rpartition(",")[0]
    return (
        f"Made {known['date']} with commit {known['commit']}, {machine}, "
        f"{jax[0] if jax else 'no jax'}, by\n`{known['command']}`\n([the file](../{path})):\n\n"
        f"```text\n{body.rstrip()}\n```"
    )
