"""The README and the pages behind it tell the truth where a machine can check it."""

import re
import tomllib
from pathlib import Path

import pytest

from perfdoctor.catalogue import checks
from perfdoctor.targets.workload import convert
from tests.command import ROOT, perfdoctor

TEXT = (ROOT / "README.md").read_text()
PAGES = sorted([ROOT / "README.md", ROOT / "checks" / "README.md", *(ROOT / "docs").glob("*.md")])


def test_the_workload_shown_is_valid() -> None:
    page = (ROOT / "docs" / "workloads.md").read_text()
    [shown] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    workload = convert(tomllib.loads(shown), "README.md")
    assert workload.data.source == "images"


def test_the_table_names_each_check_once() -> None:
    table = TEXT.partition("| check | finds | tries |")[2].partition("\n\n")[0]
    named = re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)
    assert sorted(named) == [check.id for check in checks()]


def test_the_table_of_the_clinic_has_a_row_for_each_check() -> None:
    page = (ROOT / "docs" / "trust.md").read_text()
    table = page.partition("| check | workload | rank |")[2].partition("\n\n")[0]
    named = set(re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE))
    assert named == {check.id for check in checks()}


def test_each_check_says_by_which_measurement_it_decides() -> None:
    page = (ROOT / "docs" / "checks.md").read_text()
    assert re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE) == [each.id for each in checks()]
    for check in checks():
        assert "How it is measured" in check.documentation


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(((?!http)[^)]+)\)", page.read_text()):
        assert (page.parent / link).exists(), link


def test_the_commands_shown_exist() -> None:
    overview = perfdoctor("--help").stdout
    shown = "".join(page.read_text() for page in PAGES)
    blocks = "".join(re.findall(r"```\n(.*?)```", shown, re.DOTALL))
    commands = set(re.findall(r"^perfdoctor ([a-z]+)", blocks, re.MULTILINE))
    assert "check" in commands
    for command in commands:
        assert f" {command} " in overview
