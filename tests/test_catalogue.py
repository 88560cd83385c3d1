from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from perfdoctor.catalogue import Check, checks, chosen, find
from perfdoctor.schema.errors import NothingMeasured, UsageError
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.report import Outcome
from tests.recorded import recorded

CHECK = '''"""Finds {id}."""

from perfdoctor import Observation, Outcome, ok

ID = "{id}"
NEEDS = ("steps",)


def check(observation: Observation) -> Outcome:
    return ok("looked")
'''

Look = Callable[[Observation], Outcome]


def distribution(folder: Path, name: str, source: str) -> None:
    """A third party's package as pip would leave it: one module that is a check."""
    (folder / f"{name}.py").write_text(source)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[perfdoctor.checks]\nthird = {name}\n")


def check_that(look: Look, *needs: str) -> Check:
    """A check made of a function."""
    return Check("mine", needs, "Finds mine.", look)


def well(observation: Observation) -> Outcome:
    return Outcome(kind="ok", summary="looked")


def broken(observation: Observation) -> Outcome:
    raise ZeroDivisionError("division by zero")


def blind(observation: Observation) -> Outcome:
    raise NothingMeasured("the trace was empty")


def test_the_built_in_checks_are_found_in_alphabetical_order() -> None:
    ids = [check.id for check in checks()]
    assert ids == sorted(ids)
    guide = {"avx", "backend", "batch-size", "competing-processes", "dtype", "etl", "gc"}
    assert guide <= set(ids)


def test_the_title_is_the_first_line_of_the_documentation() -> None:
    assert find(checks(), "etl").title == "The step waits for its data."


def test_a_check_without_documentation_has_an_empty_title() -> None:
    assert Check("mine", (), "", well).title == ""


def test_a_third_partys_check_is_found_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution(tmp_path, "pd_third_party", CHECK.format(id="third-party"))
    monkeypatch.syspath_prepend(tmp_path)
    check = find(checks(), "third-party")
    assert check.title == "Finds third-party."
    assert check(recorded("healthy")) == Outcome(kind="ok", summary="looked")


def test_of_two_checks_with_one_id_ours_stays_and_the_other_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution(tmp_path, "aa_duplicate", CHECK.format(id="etl"))
    monkeypatch.syspath_prepend(tmp_path)
    every = checks()
    assert find(every, "etl").title == "The step waits for its data."
    outcome = find(every, "aa_duplicate")(recorded("healthy"))
    assert outcome.kind == "crashed"
    assert "'etl'" in outcome.summary and "perfdoctor_checks.etl" in outcome.summary


def test_a_module_that_is_no_check_is_reported_and_the_rest_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution(tmp_path, "pd_no_check", 'ID = "x"\n')
    monkeypatch.syspath_prepend(tmp_path)
    outcome = find(checks(), "pd_no_check")(recorded("healthy"))
    assert outcome.kind == "crashed"
    assert outcome.summary.startswith("pd_no_check is no check: ") and "NEEDS" in outcome.summary
    assert find(checks(), "etl")


@pytest.mark.parametrize("source", ["import not_there_at_all\n", "1 / 0\n", "def ("])
def test_a_module_that_cannot_be_imported_is_reported_and_the_rest_goes_on(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"pd_unimportable_{len(source)}"
    distribution(tmp_path, name, source)
    monkeypatch.syspath_prepend(tmp_path)
    outcome = find(checks(), name)(recorded("healthy"))
    assert outcome.kind == "crashed"
    assert outcome.summary.startswith(f"{name} can't be imported: ")
    assert find(checks(), "etl")


def test_a_check_that_raises_is_an_outcome() -> None:
    outcome = check_that(broken)(recorded("healthy"))
    assert outcome == Outcome(kind="crashed", summary="ZeroDivisionError: division by zero")


def test_a_check_that_needs_what_there_is_not_is_an_outcome() -> None:
    outcome = check_that(well, "stepps")(recorded("healthy"))
    assert outcome.kind == "crashed" and "stepps" in outcome.summary


def test_a_missing_part_gives_the_observations_reason() -> None:
    reasons = {"steps": "the run ended before its first step"}
    seen = replace(recorded("healthy"), steps=None, not_measured=reasons)
    outcome = check_that(broken, "program", "steps")(seen)
    assert outcome == Outcome(kind="not-measured", summary=reasons["steps"])


def test_a_missing_part_without_a_reason_is_named() -> None:
    outcome = check_that(broken, "garbage")(replace(recorded("healthy"), garbage=None))
    assert outcome == Outcome(kind="not-measured", summary="the observation has no garbage")


def test_a_check_that_finds_nothing_to_measure_says_why() -> None:
    outcome = check_that(blind)(recorded("healthy"))
    assert outcome == Outcome(kind="not-measured", summary="the trace was empty")


def test_an_unknown_id_suggests_the_nearest() -> None:
    with pytest.raises(UsageError, match="there is no check 'batchsize'; did you mean batch-size"):
        find(checks(), "batchsize")


def test_an_id_like_no_other_lists_them_all() -> None:
    with pytest.raises(UsageError, match=r"known: avx, backend, .*gc"):
        find(checks(), "zzzzzz")


def test_selecting_and_ignoring() -> None:
    every = checks()
    assert [check.id for check in chosen(every, ["gc", "etl"], [])] == ["etl", "gc"]
    assert [check.id for check in chosen(every, ["gc", "etl"], ["gc"])] == ["etl"]
    assert chosen(every, [], []) == every
    assert {check.id for check in every} - {c.id for c in chosen(every, [], ["avx"])} == {"avx"}


def test_without_the_packages_metadata_there_is_no_catalogue(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("perfdoctor.catalogue.metadata.entry_points", lambda group: [])
    with pytest.raises(NothingMeasured, match=r"no checks are installed: .*; install it again"):
        checks()


def test_ignoring_all_that_is_selected_is_an_error() -> None:
    with pytest.raises(UsageError, match="no check is left"):
        chosen(checks(), ["gc"], ["gc"])


@pytest.mark.parametrize(("select", "ignore"), [(["nope"], []), ([], ["nope"])])
def test_selecting_or_ignoring_what_there_is_not_is_an_error(
    select: list[str], ignore: list[str]
) -> None:
    with pytest.raises(UsageError, match="there is no check 'nope'"):
        chosen(checks(), select, ignore)
