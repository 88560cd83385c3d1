import pytest
from msgspec.structs import replace

from perfdoctor.report.html.page import WIDE
from perfdoctor.report.html.report import MOST_SOURCES, machine_facts, sources_of, sureness, told
from perfdoctor.schema.figures import SourceLines
from perfdoctor.schema.fix import Gain
from perfdoctor.schema.report import Evidence
from tests.report.html.pages import complete, page
from tests.report.html.test_page import Outline


def gain(basis: str) -> Gain:
    return Gain(speedup=1.5, low=1.4, high=1.6, basis=basis)  # type: ignore[arg-type]


def test_how_sure_a_gain_is_depends_on_how_it_is_known() -> None:
    texts = [sureness(gain(basis)) for basis in ("measured", "replayed", "estimated")]
    assert len(set(texts)) == 3
    assert all("1.50" in text and "between 1.40 and 1.60 times" in text for text in texts)
    assert "95 %" not in sureness(gain("estimated"))
    assert "not measured" in sureness(None)


def test_a_finding_shows_its_lines_with_the_one_that_is_meant() -> None:
    report = complete()
    (source,) = told(report.findings[0], report, WIDE)["sources"]
    assert source["place"] == "observations/several_causes.py:43"
    assert [line.strip() for _, line, is_meant in source["lines"] if is_meant] == ["gc.collect()"]
    assert "gc.collect()" in Outline(page(complete)).text


def test_of_many_lines_a_few_are_shown() -> None:
    many = tuple(
        SourceLines(place=f"a/b.py:{n}", file="/a/b.py", line=n, first_line=n, lines=("x",))
        for n in range(20, 29)
    )
    finding = replace(complete().findings[0], summary=" ".join(each.place for each in many))
    assert sources_of(finding, many) == list(many[:MOST_SOURCES])


def test_of_very_many_facts_some_are_counted() -> None:
    report = complete()
    facts = (Evidence("fact", 1, "", "trace"),) * (WIDE.facts + 7)
    found = told(replace(report.findings[0], evidence=facts), report, WIDE)
    assert (len(found["facts"]), found["facts_left_out"]) == (WIDE.facts, 7)


@pytest.mark.parametrize("name", ["os", "CPU", "memory", "backend", "Python", "packages"])
def test_the_machine_is_told(name: str) -> None:
    assert dict(machine_facts(complete(), WIDE))[name]


def test_a_report_of_another_version_with_little_in_it_is_shown() -> None:
    bare = replace(complete(), environment={"backend": None, "packages": {}}, steps=None)
    assert dict(machine_facts(bare, WIDE)) == {"backend": "none"}
    assert "Diagnosis of" in page(lambda: bare)
