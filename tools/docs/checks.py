"""A check's documentation as a page: what `perfdoctor explain` prints, as Markdown."""

import re
from collections.abc import Sequence

from perfdoctor.catalogue import Check

HEADING = re.compile(r"^(.+)\n-{3,}$", re.MULTILINE)
CODE = re.compile(r"(`[^`]*`)")
URL = re.compile(r"(?<!<)https?://[^\s<>)]*[^\s<>).,]")
MARKUP = re.compile(r"([*_<&])")
MADE = "<!-- Made by `python -m tools.docs` from the check's docstring. -->"


def check_page(check: Check) -> str:
    """The docstring, its headings as Markdown's, and where the check stands."""
    title, _, rest = check.documentation.strip().partition("\n")
    body = HEADING.sub(r"## \1", rest.strip())
    name = check.id.replace("-", "_")
    return (
        f"{MADE}\n\n# {check.id}\n\n**{plain(title)}**\n\n{plain(body)}\n\n"
        f"Its code is [{name}.py](../../checks/perfdoctor_checks/{name}.py). "
        f"`perfdoctor explain {check.id}` prints this page, and what your machine has that bears "
        "on it.\n"
    )


def plain(text: str) -> str:
    """Text outside of `code` shows as it stands; addresses are links."""
    parts = CODE.split(text)
    parts[::2] = [
        URL.sub(lambda found: f"<{found[0]}>", MARKUP.sub(r"\\\1", part)) for part in parts[::2]
    ]
    return "".join(parts)


def index(checks: Sequence[Check]) -> str:
    """All checks, with what each finds."""
    rows = [f"| [{each.id}]({each.id}.md) | {plain(each.title)} |" for each in checks]
    return "\n".join(
        [
            MADE,
            "",
            "# The checks",
            "",
            "[check.md](../check.md) says which fix each of them tries, and by which measurement "
            "it decides.",
            "",
            "| check | finds |",
            "|---|---|",
            *rows,
            "",
        ]
    )
