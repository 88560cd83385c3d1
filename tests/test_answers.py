import pytest
from msgspec.structs import replace

from perfdoctor.answers import (
    estimated,
    hint,
    issue,
    needed,
    not_applicable,
    not_measured,
    of_host_work,
    ok,
    on_accelerator,
    on_cpu,
    place,
    set_variables,
    shorten,
    sized,
)
from perfdoctor.schema.calls import Alone, Eager
from perfdoctor.schema.errors import NothingMeasured
from perfdoctor.schema.fix import Fix, Gain
from perfdoctor.schema.report import Evidence, Outcome
from tests.recorded import recorded

FACT = Evidence(name="pauses", value=3, unit="ms", source="gc.callbacks")
FIX = Fix(summary="freeze", how="gc.freeze()")
GAIN = Gain(speedup=1.5, low=1.2, high=2.0, basis="estimated")


def test_an_issue_keeps_all_that_was_seen() -> None:
    assert issue("slow", [FACT], [FIX], GAIN, sweep=True) == Outcome(
        kind="issue", summary="slow", evidence=(FACT,), fixes=(FIX,), gain=GAIN, sweep=True
    )


def test_a_hint_needs_no_more_than_a_sentence() -> None:
    assert hint("may be slow") == Outcome(kind="hint", summary="may be slow")
    assert hint("may be slow", [FACT], [FIX], GAIN, sweep=True) == Outcome(
        kind="hint", summary="may be slow", evidence=(FACT,), fixes=(FIX,), gain=GAIN, sweep=True
    )


def test_well_has_evidence_and_neither_fix_nor_gain() -> None:
    assert ok("looked", FACT) == Outcome(kind="ok", summary="looked", evidence=(FACT,))


def test_what_was_not_seen_is_not_well() -> None:
    assert not_applicable("no GPU") == Outcome(kind="not-applicable", summary="no GPU")
    assert not_measured("no trace") == Outcome(kind="not-measured", summary="no trace")


def test_an_estimate_is_marked_as_one() -> None:
    assert estimated(1.5, 1.2, 2.0) == GAIN


@pytest.mark.parametrize(
    ("alone_ms", "emulated_ms", "likely", "low", "high"),
    [
        (25.0, 100.0, 2.0 * 2**0.5, 1.5, 4.0),  # more than the timeline tells: in the middle
        (62.5, 80.0, 1.6, 1.5, 2.0),  # less: no more than that, by a replay that is off by 1.25
        (80.0, 100.0, 2.0, 1.5, 3.0),  # less than is sure: the replay was slow, it tells nothing
        (25.0, None, 2.0, 1.5, 3.0),  # what was replayed is not all of the step
    ],
)
def test_what_the_step_takes_alone_bounds_what_work_of_the_host_costs(
    alone_ms: float, emulated_ms: float | None, likely: float, low: float, high: float
) -> None:
    alone = Alone(alone_ms=alone_ms, emulated_ms=emulated_ms, observed_ms=100.0)
    seen = replace(recorded("healthy"), alone=alone, eager=None)
    gain = of_host_work(seen, estimated(2.0, 1.5, 3.0))
    assert gain.basis == "estimated"
    assert (gain.speedup, gain.low, gain.high) == pytest.approx((likely, low, high))


def test_a_step_that_was_replayed_as_one_program_bounds_nothing() -> None:
    alone = Alone(alone_ms=25.0, emulated_ms=100.0, observed_ms=100.0)
    eager = Eager(function="step", file="loop.py", line=7, call_ms=90.0, share=0.9, is_saved=True)
    seen, told = replace(recorded("healthy"), alone=alone, eager=eager), estimated(2.0, 1.5, 3.0)
    assert of_host_work(seen, told) == told
    assert of_host_work(replace(seen, alone=None, eager=None), told) == told


def test_an_estimate_that_only_a_trial_makes_a_finding_is_left_as_it_is() -> None:
    alone = Alone(alone_ms=98.0, emulated_ms=100.0, observed_ms=100.0)
    seen, told = replace(recorded("healthy"), alone=alone, eager=None), estimated(2.0, 1.0, 3.0)
    assert of_host_work(seen, told) == told


def test_a_needed_part_that_is_there_is_returned_even_if_it_is_empty() -> None:
    assert needed(()) == ()
    assert needed(0) == 0


def test_a_needed_part_that_is_missing_is_an_error_of_its_own() -> None:
    with pytest.raises(NothingMeasured, match="NEEDS"):
        needed(None)


@pytest.mark.parametrize(
    ("file", "short"),
    [
        ("/home/ada/project/loop.py", "project/loop.py"),
        ("project/loop.py", "project/loop.py"),
        ("loop.py", "loop.py"),
        ("<string>", "<string>"),
    ],
)
def test_a_place_is_a_file_with_its_folder_and_a_line(file: str, short: str) -> None:
    assert shorten(file) == short
    assert place(file, 7) == f"{short}:7"


def test_variables_are_set_in_the_shell_or_where_the_code_sets_them() -> None:
    seen = replace(recorded("healthy"), set_in_code=("XLA_FLAGS", "NPROC"))
    others: dict[str, str | None] = {"A": None, "B": None, "C": "1", "D": "--x --y"}
    assert set_variables(seen, others) == 'unset A B; export C=1 D="--x --y"'
    own: dict[str, str | None] = {"XLA_FLAGS": "--x", "NPROC": None}
    assert set_variables(seen, own | {"A": None}) == (
        'unset A; in the code: os.environ["XLA_FLAGS"] = "--x"; '
        'in the code: remove os.environ["NPROC"]'
    )


@pytest.mark.parametrize(("platform", "expected"), [("cpu", (True, False)), ("gpu", (False, True))])
def test_where_the_training_computes(platform: str, expected: tuple[bool, bool]) -> None:
    seen = recorded("healthy")
    there = replace(seen, backend=replace(needed(seen.backend), platform=platform))
    assert (on_cpu(there), on_accelerator(there)) == expected


def test_where_it_computes_is_not_known_without_a_backend() -> None:
    seen = replace(recorded("healthy"), backend=None)
    assert not on_cpu(seen) and not on_accelerator(seen)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (4, "4 bytes"),
        (1023, "1,023 bytes"),
        (3584, "3.5 KiB"),
        (412 * 2**20, "412 MiB"),
        (2 * 2**30, "2,048 MiB"),
    ],
)
def test_a_size_is_told_in_a_unit_that_fits(count: float, text: str) -> None:
    assert sized(count) == text
