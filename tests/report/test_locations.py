import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from perfdoctor.report.locations import every_place, located, places, resolved
from perfdoctor.schema.report import Evidence, Location
from tests.report.hostile import TEXTS, filled
from tests.report.reports import measured

FILES = ["train.py", "src/models/net.py", "src/data/load.py", "other/data/load.py", "models/net.py"]


@pytest.mark.parametrize(
    ("place", "file"),
    [
        ("project/train.py:7", "train.py"),  # the repository's own folder may be part of it
        ("train.py:7", "train.py"),
        ("src/train.py:7", None),
        ("models/net.py:7", None),  # either of two
        ("data/load.py:7", None),
        ("_core/numeric.py:1330", None),
        ("constrain.py:7", None),
        ("rain.py:7", None),
    ],
)
def test_a_place_is_a_line_of_the_repository_if_one_file_fits(place: str, file: str | None) -> None:
    found = resolved([place], FILES, "project", "train.py")
    assert found == ({place: Location(file=file, line=7)} if file else {})


def test_of_several_files_the_target_is_meant() -> None:
    found = resolved(["data/load.py:7"], FILES, "project", "src/data/load.py")
    assert found["data/load.py:7"].file == "src/data/load.py"


def test_a_finding_stands_on_the_first_line_that_is_known() -> None:
    report = measured()
    first = replace(
        report.findings[0],
        summary="waits in decode() (data/here.py:5)",
        evidence=(
            Evidence("a", 1, "", "_core/numeric.py:1330"),
            Evidence("b", 1, "", "trace"),
            Evidence("c", 1, "", "my data/load.py:3"),
        ),
    )
    report = replace(report, findings=(first,))
    assert list(places(first)) == ["_core/numeric.py:1330", "my data/load.py:3", "data/here.py:5"]
    known = resolved(every_place(report), ["my data/load.py", "data/here.py"], "x", "")
    assert located(report, known).findings[0].location == Location(file="my data/load.py", line=3)
    bare = replace(report, findings=(replace(first, evidence=()),))
    assert located(bare, known).findings[0].location == Location(file="data/here.py", line=5)
    assert located(report, {}).findings[0].location is None


def test_a_line_that_was_found_before_stays() -> None:
    report = measured()
    there = Location(file="a.py", line=1)
    report = replace(report, findings=(replace(report.findings[0], location=there),))
    known = dict.fromkeys(every_place(report), Location(file="b.py", line=2))
    assert located(report, known).findings[0].location == there


@given(TEXTS, st.lists(TEXTS))
def test_any_text_can_be_looked_up(text: str, files: list[str]) -> None:
    report = filled(text)
    located(report, resolved(every_place(report), files, text, text))
