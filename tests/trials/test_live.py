"""perfdoctor.trials.live: why a process ended is tested with workers (test_worker.py); here, what
it leaves behind."""

from collections.abc import Iterator

import psutil
import pytest

from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.launch import Launch
from perfdoctor.trials.live import Live

PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"


class Sleeping(Live):
    """Does nothing."""

    def __init__(self, groups: ProcessGroups, env: dict[str, str] | None = None) -> None:
        super().__init__(groups)
        self._start(Launch(("-c", "import time; time.sleep(600)"), env or {}))


@pytest.fixture
def groups() -> Iterator[ProcessGroups]:
    with ProcessGroups() as groups:
        yield groups


def test_it_ends_with_the_block_and_its_folder_goes_with_it(groups: ProcessGroups) -> None:
    with Sleeping(groups) as live:
        assert live._child.poll() is None and live._folder.exists()
    assert live._child.poll() is not None and not live._folder.exists()
    assert (groups._children, groups._folders) == ([], [])


def test_it_ends_also_when_the_block_fails(groups: ProcessGroups) -> None:
    with pytest.raises(ZeroDivisionError), Sleeping(groups) as live:
        print(1 / 0)
    assert live._child.poll() is not None


@pytest.mark.parametrize(("env", "value"), [({}, "false"), ({PREALLOCATE: "true"}, "true")])
def test_it_takes_of_the_device_what_it_needs_unless_it_was_told_otherwise(
    groups: ProcessGroups, env: dict[str, str], value: str
) -> None:
    with Sleeping(groups, env) as live:
        assert psutil.Process(live._child.pid).environ()[PREALLOCATE] == value
