"""Every check on every recorded Observation: issues stand only where they are expected."""

import tomllib
from typing import get_args

import pytest
from msgspec.structs import replace

from perfdoctor.catalogue import checks
from perfdoctor.doctor import verdicts_on
from perfdoctor.schema.fix import MIN_GAIN
from perfdoctor.schema.observation import OF_THE_RUN, Observation
from perfdoctor.schema.report import Kind
from tests.command import SAMPLES
from tests.recorded import FOLDER, recorded

RECORDED = sorted(file.stem for file in FOLDER.glob("*.json"))
SHAPES = {
    "one_core": [],
    "quota": ["throttling"],
    "competitor": ["competing-processes"],
    "little_memory": [],
    "two_devices": [],
}
"""Machines of other shapes, and what is to be found there in the healthy sample."""
SCRIPTS = {"several_causes": ["gc"]}
"""Scripts, and what is to be found in them."""
PARTS = (*OF_THE_RUN, "backend", "libraries")
every_recording = pytest.mark.parametrize("name", RECORDED)


def expected(name: str) -> list[str]:
    """The checks that a recording is made to set off."""
    if name in SHAPES | SCRIPTS:
        return (SHAPES | SCRIPTS)[name]
    expect: list[str] = tomllib.loads((SAMPLES / f"{name}.toml").read_text())["expect"]
    return expect


def test_every_sample_is_recorded() -> None:
    samples = {file.stem for file in SAMPLES.glob("*.toml")}
    assert samples | set(SHAPES) | set(SCRIPTS) == set(RECORDED)


@every_recording
def test_issues_stand_where_they_are_expected_and_nowhere_else(name: str) -> None:
    seen = recorded(name)
    outcomes = {check.id: check(seen) for check in checks()}
    verdicts = verdicts_on(outcomes, seen.tried, MIN_GAIN)
    issues = [verdict.check for verdict in verdicts if verdict.kind == "issue"]
    assert issues == expected(name), {v.check: v.summary for v in verdicts if v.kind == "issue"}


@every_recording
def test_no_check_crashes(name: str) -> None:
    assert [check.id for check in checks() if check(recorded(name)).kind == "crashed"] == []


@every_recording
@pytest.mark.parametrize("part", PARTS)
def test_with_a_part_missing_every_check_still_answers(name: str, part: str) -> None:
    seen = without(recorded(name), part)
    for check in checks():
        outcome = check(seen)
        assert outcome.kind in set(get_args(Kind)) - {"crashed"}, (check.id, outcome.summary)
        assert outcome.summary
        if part in check.needs:
            assert outcome.kind == "not-measured"
            assert outcome.summary in seen.not_measured.values()


def without(seen: Observation, part: str) -> Observation:
    """The observation without one of its parts, and the reason."""
    reasons = {**seen.not_measured, part: f"nobody looked at the {part}"}
    return replace(seen, **{part: None}, not_measured=reasons)


@every_recording
def test_with_nothing_but_the_machine_nothing_is_said_to_be_wrong_or_well(name: str) -> None:
    seen = recorded(name)
    for part in PARTS:
        seen = without(seen, part)
    kinds = {check.id: check(seen).kind for check in checks()}
    assert set(kinds.values()) <= {"not-measured", "not-applicable", "issue"}
    issues = {name for name, kind in kinds.items() if kind == "issue"}
    assert issues <= ({"backend"} if seen.failure else set())
