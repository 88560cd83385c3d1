from msgspec.structs import replace

from perfdoctor.bench.why import causes, grown_parts, new_findings
from perfdoctor.catalogue import checks, chosen
from tests.recorded import recorded

CATALOGUE = chosen(checks(), ("etl", "gc", "dtype", "avx"), ())


def test_the_same_diagnosis_has_no_causes() -> None:
    assert causes(recorded("healthy"), recorded("healthy"), CATALOGUE) == ()


def test_a_new_finding_is_named() -> None:
    found = new_findings(recorded("healthy"), recorded("double_precision"), CATALOGUE)
    assert [line.partition(":")[0] for line in found] == ["dtype"]
    assert new_findings(recorded("double_precision"), recorded("healthy"), CATALOGUE) == []


def test_the_finding_whose_fix_gains_most_is_named_first() -> None:
    first, *_ = new_findings(recorded("healthy"), recorded("gc_pressure"), checks())
    assert first.startswith("gc: ")


def test_parts_that_grew_are_named_with_their_place() -> None:
    seen = recorded("slow_etl")
    assert seen.steps is not None
    fewer = replace(seen.steps, exposed_etl_ms=0.0)
    (line,) = grown_parts(replace(seen, steps=fewer), seen)
    assert line.startswith(f"etl +{seen.steps.exposed_etl_ms:.2g} ms a step at ")
    assert "data.py:" in line


def test_without_steps_no_part_can_have_grown() -> None:
    seen = recorded("healthy")
    assert grown_parts(replace(seen, steps=None), seen) == []
