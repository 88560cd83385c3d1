"""The README and the pages behind it tell the truth where a machine can check it."""

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from perfdoctor.catalogue import check_of, checks
from perfdoctor.targets.workload import convert
from tests.command import ROOT, perfdoctor

DOCS = ROOT / "docs"
TEXT = (ROOT / "README.md").read_text()
PAGES = sorted([ROOT / "README.md", ROOT / "checks" / "README.md", *DOCS.rglob("*.md")])
IDS = [each.id for each in checks()]


def test_the_readme_is_short() -> None:
    assert len(TEXT.splitlines()) <= 150


def test_the_workload_shown_is_valid() -> None:
    page = (DOCS / "workload-files.md").read_text()
    [shown] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    workload = convert(tomllib.loads(shown), "README.md")
    assert workload.data.source == "images"


@pytest.mark.parametrize(
    "heading", ["| check | finds | tries |", "| check | the sign | decided by |"]
)
def test_the_tables_name_each_check_once(heading: str) -> None:
    table = (DOCS / "check.md").read_text().partition(heading)[2].partition("\n\n")[0]
    assert re.findall(r"^\| \[`([a-z-]+)`\]\(checks/\1\.md\) \|", table, re.MULTILINE) == IDS


def test_each_check_says_by_which_measurement_it_decides() -> None:
    for check in checks():
        assert "How it is measured" in check.documentation


def test_the_readme_counts_the_checks() -> None:
    assert f"the {len(IDS)} checks" in TEXT


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(((?!http)[^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / link).exists(), link


def test_the_anchors_of_the_readme_are_headings() -> None:
    """Those between the pages of docs/ are the site's to check."""
    for file, anchor in re.findall(r"\]\((docs/[^)#]+)#([^)]+)\)", TEXT):
        headings = re.findall(r"^#+ (.+)$", (ROOT / file).read_text(), re.MULTILINE)
        slugs = [re.sub(r"[^\w -]", "", each).lower().replace(" ", "-") for each in headings]
        assert anchor in slugs, (file, anchor)


def test_the_commands_shown_exist() -> None:
    overview = perfdoctor("--help").stdout
    shown = "".join(page.read_text() for page in PAGES)
    found = re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", shown, re.DOTALL | re.MULTILINE)
    blocks = "".join(text for language, text in found if language in ("", "console"))
    commands = set(re.findall(r"^(?:\$ )?perfdoctor ([a-z]+)", blocks, re.MULTILINE))
    assert {"check", "bench", "explain"} <= commands
    for command in commands:
        assert f" {command} " in overview


def test_the_check_that_the_docs_write_works_and_passes_its_test(tmp_path: Path) -> None:
    page = (DOCS / "writing-a-check.md").read_text()
    code, tests = (
        re.findall(rf'```python title="{name}"\n(.*?)```', page, re.DOTALL)[0]
        for name in ("idle_cores.py", "test_idle_cores.py")
    )
    file = tmp_path / "idle_cores.py"
    file.write_text(code)
    spec = importlib.util.spec_from_file_location("idle_cores", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    check = check_of(module)
    assert (check.id, check.documentation.count("\n---")) == ("idle-cores", 5)
    # The page imports it from the package of built-in checks, where it is not.
    test = tmp_path / "test_idle_cores.py"
    test.write_text(tests.replace("from perfdoctor_checks import idle_cores", "import idle_cores"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(test)]
    answer = subprocess.run(
        [*command, "--rootdir", str(ROOT), "-o", f"pythonpath={ROOT} {tmp_path}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert "3 passed" in answer.stdout, answer.stdout + answer.stderr
