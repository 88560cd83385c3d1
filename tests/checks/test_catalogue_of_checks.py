"""What every built-in check must keep to."""

import ast
import pkgutil
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

import perfdoctor_checks
from perfdoctor.catalogue import check_of
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.report import Outcome
from tests.recorded import FOLDER, recorded

NAMES = [
    each.name
    for each in pkgutil.iter_modules(perfdoctor_checks.__path__)
    if not each.name.startswith("_")
]
RECORDED = sorted(file.stem for file in FOLDER.glob("*.json"))
HEADINGS = [
    "What it finds",
    "Why it costs",
    "How it is measured",
    "How to fix",
    "References",
]

every_check = pytest.mark.parametrize("name", NAMES)


def module(name: str) -> ModuleType:
    """The module of a built-in check."""
    return import_module(f"perfdoctor_checks.{name}")


def underlined(documentation: str) -> list[str]:
    """The lines that are underlined in full."""
    lines = documentation.splitlines()
    return [a for a, b in pairwise(lines) if a and b == "-" * len(a)]


def test_the_checks_and_the_recordings_are_found() -> None:
    assert {"backend", "etl", "gc", "batch_size", "dtype", "avx"} <= set(NAMES)
    assert {"healthy", "gc_pressure", "slow_etl", "double_precision", "tiny_batch"} <= set(RECORDED)


@every_check
def test_documentation_has_the_five_headings_in_order(name: str) -> None:
    assert underlined(module(name).__doc__ or "") == HEADINGS


@every_check
def test_documentation_begins_with_one_sentence(name: str) -> None:
    first, second, *_ = (module(name).__doc__ or "").splitlines()
    assert first.endswith(".") and not second


@every_check
def test_no_heading_is_empty(name: str) -> None:
    documentation = module(name).__doc__ or ""
    for heading in HEADINGS:
        text = documentation.partition(f"{heading}\n{'-' * len(heading)}\n")[2]
        assert text.strip() and text.strip().splitlines()[0] not in HEADINGS


@every_check
def test_id_is_the_name_of_the_file(name: str) -> None:
    assert module(name).ID.replace("-", "_") == name
    assert "_" not in module(name).ID


@every_check
def test_has_a_mirrored_test(name: str) -> None:
    assert (Path(__file__).parent / f"test_{name}.py").exists()


@every_check
def test_needs_are_parts_of_the_observation(name: str) -> None:
    needs = module(name).NEEDS
    assert isinstance(needs, tuple)
    parts = {part for need in needs for part in need.split("|")}
    assert parts <= set(Observation.__struct_fields__)


def test_ids_are_unique() -> None:
    ids = [module(name).ID for name in NAMES]
    assert len(ids) == len(set(ids))


@every_check
@pytest.mark.parametrize("observed", RECORDED)
def test_answers_on_every_recorded_observation(name: str, observed: str) -> None:
    outcome = check_of(module(name))(recorded(observed))
    assert isinstance(outcome, Outcome)
    assert outcome.kind != "crashed" and outcome.summary
    if outcome.kind == "issue":
        assert outcome.evidence and outcome.fixes
    if outcome.kind == "ok":
        assert outcome.gain is None and outcome.fixes == ()


@every_check
def test_is_a_pure_function(name: str) -> None:
    seen = recorded("slow_etl")
    before = msgspec.json.encode(seen)
    assert module(name).check(seen) == module(name).check(seen)
    assert msgspec.json.encode(seen) == before


@every_check
def test_of_a_run_that_told_nothing_nothing_is_said_to_be_well(name: str) -> None:
    seen = recorded("healthy")
    bare = Observation(
        schema=seen.schema,
        perfdoctor=seen.perfdoctor,
        created=seen.created,
        target=seen.target,
        host=seen.host,
    )
    assert check_of(module(name))(bare).kind in ("not-measured", "not-applicable")


@every_check
def test_no_check_imports_another_one(name: str) -> None:
    tree = ast.parse(Path(str(module(name).__file__)).read_text())
    imported = {
        str(node.module).removeprefix("perfdoctor_checks.")
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
    }
    assert not imported & set(NAMES)
