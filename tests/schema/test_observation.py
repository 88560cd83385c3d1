from typing import Any

import msgspec
import pytest

from perfdoctor.schema.observation import OBSERVATION_SCHEMA, Observation
from tests.recorded import FOLDER, recorded

NAMES = sorted(file.stem for file in FOLDER.glob("*.json"))


def test_there_are_recorded_observations() -> None:
    assert {"healthy", "gc_pressure", "slow_etl", "double_precision", "tiny_batch"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_an_observation_survives_json(name: str) -> None:
    observation = recorded(name)
    again = msgspec.json.decode(msgspec.json.encode(observation), type=Observation)
    assert again == observation


@pytest.mark.parametrize("name", NAMES)
def test_nothing_in_a_file_is_unknown_to_the_schema(name: str) -> None:
    raw = msgspec.json.decode((FOLDER / f"{name}.json").read_bytes())
    assert raw["schema"] == OBSERVATION_SCHEMA
    assert_holds(msgspec.json.decode(msgspec.json.encode(recorded(name))), raw)


def assert_holds(whole: Any, part: Any) -> None:
    """Every key of `part` is in `whole` with the same value."""
    if isinstance(part, dict):
        for key, value in part.items():
            assert key in whole
            assert_holds(whole[key], value)
    elif isinstance(part, list):
        for mine, theirs in zip(whole, part, strict=True):
            assert_holds(mine, theirs)
    else:
        assert whole == part


@pytest.mark.parametrize("name", NAMES)
def test_the_parts_of_a_recorded_step_add_up_to_its_time(name: str) -> None:
    steps = recorded(name).steps
    if steps is None:
        assert recorded(name).failure is not None
        return
    parts = (
        steps.device_busy_ms,
        steps.exposed_etl_ms,
        steps.exposed_dispatch_ms,
        steps.exposed_wait_ms,
        steps.exposed_gc_ms,
        steps.exposed_other_ms,
    )
    assert sum(parts) == pytest.approx(steps.time_ms)


def test_an_observation_of_another_schema_is_refused() -> None:
    raw = msgspec.to_builtins(recorded("healthy"))
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**raw, "schema": "perfdoctor.observation/2"}, Observation)
