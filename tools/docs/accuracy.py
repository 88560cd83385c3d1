"""The page of what was measured: accuracy.md beside this file, with the saved results in it.

A line `{{ clinic/catalogue }}` there stands for tests/clinic/results/catalogue.txt.
"""

import re
from pathlib import Path

TEMPLATE = Path(__file__).with_name("accuracy.md")
RESULT = re.compile(r"^\{\{ (\w+)/(\w+) \}\}$", re.MULTILINE)
MADE = (
    "<!-- Made by `python -m tools.docs` from tools/docs/accuracy.md and the saved results. -->\n\n"
)


def accuracy(root: Path) -> str:
    """The whole page."""

    def result(found: re.Match[str]) -> str:
        path = f"tests/{found[1]}/results/{found[2]}.txt"
        return shown((root / path).read_text(encoding="utf-8"), path)

    return MADE + RESULT.sub(result, TEMPLATE.read_text(encoding="utf-8"))


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
