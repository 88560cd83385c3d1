"""perfdoctor.trials.live: why a process ended is tested with workers (test_worker.py); here, what
it leaves behind."""

from collections.abc import Iterator

import pytest

from perfdoctor.processes import Ward
from perfdoctor.schema.launch import Launch
from perfdoctor.trials.live import Live


class Sleeping(Live):
    """Does nothing."""

    def __init__(self, ward: Ward) -> None:
        super().__init__(ward)
        self._start(Launch(("-c", "import time; time.sleep(600)"), {}))


@pytest.fixture
def ward() -> Iterator[Ward]:
    with Ward() as ward:
        yield ward


def test_it_ends_with_the_block_and_its_folder_goes_with_it(ward: Ward) -> None:
    with Sleeping(ward) as live:
        assert live._child.poll() is None and live._folder.exists()
    assert live._child.poll() is not None and not live._folder.exists()
    assert (ward._children, ward._folders) == ([], [])


def test_it_ends_also_when_the_block_fails(ward: Ward) -> None:
    with pytest.raises(ZeroDivisionError), Sleeping(ward) as live:
        print(1 / 0)
    assert live._child.poll() is not None
