import pytest

from perfdoctor.observe.probing import describe, failure
from perfdoctor.schema.probe import ProbeLine

IMPORT, DEVICES = ProbeLine(stage="import"), ProbeLine(stage="devices")


@pytest.mark.parametrize(
    ("code", "expected"), [(-9, "signal 9"), (-11, "signal 11"), (0, "status 0"), (3, "status 3")]
)
def test_an_exit_status_in_words(code: int, expected: str) -> None:
    assert describe(code) == expected


def test_what_was_raised_is_the_message() -> None:
    raised = ProbeLine(raised="ImportError: no jaxlib")
    found = failure([IMPORT, raised], 0, 0.5, "a line of log")
    assert (found.stage, found.kind) == ("import", "raised")
    assert found.message == "ImportError: no jaxlib"
    assert found.seconds == 0.5


def test_the_stage_is_the_last_that_began() -> None:
    raised = ProbeLine(raised="RuntimeError: no devices")
    assert failure([IMPORT, DEVICES, raised], 0, 0.5, "").stage == "devices"


def test_no_exit_means_that_it_hung() -> None:
    found = failure([IMPORT, DEVICES], None, 20.4, "waiting for the driver")
    assert (found.stage, found.kind) == ("devices", "hung")
    assert found.message == "no answer within 20 s"


def test_a_crash_is_told_by_its_last_words() -> None:
    found = failure([IMPORT], -6, 1.0, "Fatal: illegal instruction")
    assert (found.stage, found.kind) == ("import", "killed")
    assert found.message == "Fatal: illegal instruction"


def test_a_silent_crash_is_told_by_its_signal() -> None:
    assert "signal 11" in failure([IMPORT], -11, 1.0, "").message


def test_a_child_that_said_nothing_failed_at_the_import() -> None:
    found = failure([], 1, 0.1, "")
    assert (found.stage, found.kind) == ("import", "killed")
    assert "status 1" in found.message
