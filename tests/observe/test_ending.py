"""How an observed run ended, in words."""

from pathlib import Path

import pytest

from perfdoctor.observe.ending import how_ended, why_failed
from perfdoctor.protocol import ATTACHED, RAISED, STOP


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """That of a run which logged nothing and left no recording."""
    (tmp_path / "log").write_text("")
    return tmp_path


def test_a_run_that_ended_well_did_not_fail(folder: Path) -> None:
    assert why_failed(folder, 0, 1.0) is None


def test_a_run_that_raised_failed(folder: Path) -> None:
    (folder / "log").write_text("Traceback …\nValueError: no such file\n")
    found = why_failed(folder, 1, 2.0)
    assert found is not None
    assert (found.stage, found.kind, found.seconds) == ("run", "raised", 2.0)
    assert found.message == "ValueError: no such file"


def test_what_ended_a_run_counts_more_than_what_it_wrote_last(folder: Path) -> None:
    (folder / "log").write_text("Traceback …\n  in two\nlines of its message\n")
    (folder / RAISED).write_text("ValueError: in two")
    found = why_failed(folder, 1, 2.0)
    assert found is not None
    assert (found.kind, found.message) == ("raised", "ValueError: in two")


def test_a_run_whose_output_went_elsewhere_tells_what_it_raised(folder: Path) -> None:
    (folder / RAISED).write_text("MemoryError: 80 GiB")
    found = why_failed(folder, 1, 1.0)
    assert found is not None
    assert (found.kind, found.message) == ("out-of-memory", "MemoryError: 80 GiB")


@pytest.mark.parametrize("code", [-2, 1, -9, None])
def test_a_run_that_was_asked_to_stop_before_it_made_steps_hung(
    folder: Path, code: int | None
) -> None:
    (folder / STOP).touch()
    (folder / "log").write_text("loading the data\n")
    found = why_failed(folder, code, 12.0)
    assert found is not None
    assert (found.kind, found.message) == ("hung", "no training step within 12 s")


def test_a_run_that_left_nothing_is_put_in_words(folder: Path) -> None:
    assert how_ended(folder, 1.25).endswith("never imported jax")
    (folder / ATTACHED).touch()
    assert how_ended(folder, 1.25) == "the program ended after 1.2 s, and jax computed nothing"


def test_a_run_without_an_end_hung(folder: Path) -> None:
    found = why_failed(folder, None, 63.2)
    assert found is not None
    assert found.kind == "hung"
    assert "63 s" in found.message


def test_exhausted_memory_is_its_own_kind(folder: Path) -> None:
    (folder / "log").write_text("RESOURCE_EXHAUSTED: 9 GiB\n\nFor simplicity, …\n")
    found = why_failed(folder, 1, 1.0)
    assert found is not None
    assert found.kind == "out-of-memory"
    assert found.message == "RESOURCE_EXHAUSTED: 9 GiB"


def test_a_signal_kills_whatever_was_logged(folder: Path) -> None:
    (folder / "log").write_text("step 100: loss 0.3\n")
    found = why_failed(folder, -9, 1.0)
    assert found is not None
    assert (found.kind, found.message) == ("killed", "signal 9")


def test_a_failure_without_a_word_tells_its_status(folder: Path) -> None:
    found = why_failed(folder, 3, 1.0)
    assert found is not None
    assert (found.kind, found.message) == ("killed", "status 3")


def test_a_log_that_is_no_text_can_be_read(folder: Path) -> None:
    (folder / "log").write_bytes(b"\xff\xfe broken\nlast words\n")
    found = why_failed(folder, 1, 1.0)
    assert found is not None
    assert found.message == "last words"
