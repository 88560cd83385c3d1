"""perfdoctor.trials.live: why a process ended is tested with workers (test_worker.py); here, what
it leaves behind."""

from collections.abc import Iterator

import pytest

from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.launch import Launch
from perfdoctor.trials.live import Live


class Sleeping(Live):
    """Does nothing."""

    def __init__(self, groups: ProcessGroups) -> None:
        super().__init__(groups)
        self._start(Launch(("-c", "import time; time.sleep(600)"), {}))


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
