"""How long calls are waited for: whether others compute meanwhile is told by the test."""

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from perfdoctor.injection.calls import Hearing
from perfdoctor.observe.agent import patience
from perfdoctor.observe.agent.patience import Patience

SECONDS = 0.05


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> Patience:
    """That waits for parts of a second."""
    monkeypatch.setattr(patience, "AHEAD_S", 30.0)
    monkeypatch.setattr(patience, "FIRST_CALL_S", SECONDS)
    compilation = SimpleNamespace(quiet_for_s=lambda: 60.0)
    return Patience(threading.Event(), compilation)  # type: ignore[arg-type]


def later(seconds: float) -> Callable[[], bool]:
    """Whether so many seconds have passed since the first question."""
    asked: list[float] = []

    def has_come() -> bool:
        asked.append(time.monotonic())
        return asked[-1] - asked[0] >= seconds

    return has_come


@pytest.mark.parametrize(("is_ahead", "waits_long"), [(True, True), (True, False), (False, True)])
def test_a_program_that_waits_for_what_it_has_called_ahead_is_waited_for_longer(
    patient: Patience, is_ahead: bool, waits_long: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "is_blocked", lambda *args: is_ahead)
    done = patient.listen(
        Hearing(), lambda *args: None, later(10 * SECONDS), SECONDS, waits_long=waits_long
    )
    assert done == (is_ahead and waits_long)


def test_one_that_makes_no_call_is_not_listened_to_for_longer(
    patient: Patience, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "is_blocked", lambda *args: True)
    monkeypatch.setattr(patience, "AHEAD_S", SECONDS)
    waited_s: list[float] = []
    monkeypatch.setattr(patient, "wait_for", lambda condition, seconds: waited_s.append(seconds))
    patient.listen(
        Hearing(), lambda *args: None, lambda: False, 30.0, lambda: False, waits_long=True
    )
    assert waited_s == [SECONDS, SECONDS]  # for the first call, and what was called ahead of it


def test_nobody_hears_calls_after_that(patient: Patience) -> None:
    hearing = Hearing()
    assert patient.listen(hearing, lambda *args: None, lambda: True, SECONDS)
    assert hearing.hear is None
