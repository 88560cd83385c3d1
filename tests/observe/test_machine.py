import sys

import msgspec
import pytest

from perfdoctor.observe.host import host
from perfdoctor.observe.machine import machine, unobserved
from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.observation import OF_THE_RUN, Observation


@pytest.fixture(scope="module")
def seen() -> Observation:
    return unobserved()


def test_what_needs_no_run_is_there(seen: Observation) -> None:
    mine = host()
    assert (seen.host.cpu_model, seen.host.cpu_flags) == (mine.cpu_model, mine.cpu_flags)
    assert seen.libraries is not None
    assert seen.libraries.python == ".".join(map(str, sys.version_info[:3]))
    assert "jax" in seen.libraries.packages


def test_nothing_of_a_run_is_there_and_the_reason_is_said(seen: Observation) -> None:
    assert all(getattr(seen, part) is None for part in OF_THE_RUN)
    assert seen.not_measured == dict.fromkeys(OF_THE_RUN, "nothing was run")
    assert (seen.backend, seen.failure, seen.tried) == (None, None, ())


def test_the_environment_is_that_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_x")
    assert unobserved().environment["XLA_FLAGS"] == "--xla_x"


def test_it_can_be_kept_and_read_back(seen: Observation) -> None:
    assert msgspec.json.decode(msgspec.json.encode(seen), type=Observation) == seen


def test_the_machine_knows_its_devices(seen: Observation) -> None:
    with ProcessGroups() as groups:
        found = machine(groups, 60.0)
    assert found.failure is None
    assert found.backend is not None and found.backend.devices
    assert found.host.cpu_model == seen.host.cpu_model


def test_a_jax_that_does_not_answer_in_time_is_a_failure() -> None:
    with ProcessGroups() as groups:
        found = machine(groups, 0.01)
    assert found.backend is None
    assert found.failure is not None and found.failure.kind == "hung"
