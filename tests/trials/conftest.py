"""What the tests of several modules begin with."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trials.programs import Place


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """After which nothing of the test lives."""
    place = Place(tmp_path)
    yield place
    assert place.left() == []
