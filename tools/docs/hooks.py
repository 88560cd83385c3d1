"""For mkdocs: links from docs/ into the rest of the repository lead to copies in the site.

So a page may link to `../perfdoctor/doctor.py`, which works in the repository too, and a link to
what is not there remains a broken link, which `mkdocs build --strict` refuses.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

LINK = re.compile(r"(?<=\]\()(\.\./[^)#\s]+)(?=[)#])")
SHOWN_AS = ".txt"
"""A browser shows any text so, where it would save a program."""


def on_files(files: Files, config: Any) -> Files:
    """Add each file that a page links to outside of docs/."""
    root = Path(config["docs_dir"]).parent
    for page in list(files.documentation_pages()):
        for link in LINK.findall(page.content_string):
            path = outside(root, page.src_uri, link)
            if path is not None and files.get_file_from_path(name := copy_of(path)) is None:
                files.append(File.generated(config, name, abs_src_path=str(root / path)))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Let the links lead to the copies."""
    root, here = Path(config["docs_dir"]).parent, page.file.src_uri

    def moved(found: re.Match[str]) -> str:
        path = outside(root, here, found[1])
        if path is None:
            return found[1]
        return posixpath.relpath(copy_of(path), posixpath.dirname(here) or ".")

    return LINK.sub(moved, markdown)


def outside(root: Path, page: str, link: str) -> str | None:
    """The file that a page in docs/ links to, from the root; None if it is in docs/, or no file."""
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link))
    is_outside = not path.startswith(("docs/", "../"))
    return path if is_outside and (root / path).is_file() else None


def copy_of(path: str) -> str:
    """Where the site has it; mkdocs leaves out what begins with a dot."""
    return f"source/{path.lstrip('.')}{SHOWN_AS}"
