"""What a captured step takes, with turns that it took with its program and without."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from perfdoctor.processes import ProcessGroups
from perfdoctor.replay.conditions import Host
from perfdoctor.replay.emulation import Emulation
from perfdoctor.replay.process import ReplayProcess
from perfdoctor.schema.capture import AS_IT_IS, MANIFEST, Capture, Conditions
from perfdoctor.schema.fix import Change
from tests.replay.captured import captured, training
from tests.trials.programs import soon

HOST = Host(Conditions(spin_ms=(5.0,)), 0.0, 0.0, collecting_ms=0.0, rare_ms=2)
OBSERVED_MS = 12.0


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplayProcess]:
    folder: Path = captured(training, tmp_path_factory.mktemp("training")).folder
    capture = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Capture)
    with (
        ProcessGroups() as groups,
        ReplayProcess(groups, dict(os.environ), folder, capture, Change()) as started,
    ):
        yield started


def test_a_step_that_took_turns_with_the_program_is_told_by_them(process: ReplayProcess) -> None:
    turns = [math.log(0.2), math.log(0.1), math.log(0.9)]
    found = Emulation(process, HOST, OBSERVED_MS, turns, soon())
    assert found.alone_ms(AS_IT_IS) == pytest.approx((OBSERVED_MS - HOST.rare_ms) * 0.2)
    # the host's 5 ms are many times what the step takes by itself
    assert found.beside_host_ms(1.0) > HOST.rare_ms + 2.0


def test_without_turns_it_is_told_as_it_is_now(process: ReplayProcess) -> None:
    found = Emulation(process, HOST, OBSERVED_MS, (), soon())
    assert 0 < found.alone_ms(AS_IT_IS) < 5.0
    assert found.beside_host_ms(math.nan) > 5.0 + HOST.rare_ms
