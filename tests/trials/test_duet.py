import math
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import psutil
import pytest

from perfdoctor.processes import Ward
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.slices import Slice
from perfdoctor.trials.duet import (
    COMPILING_SLICE_S,
    FEWEST_AT_DEADLINE,
    FEWEST_ROUNDS,
    FEWEST_STEPS,
    NEVER_RESTS_S,
    ROUNDS,
    WARM_BLOCKS,
    enough,
    play_pair,
    steady,
    warm_up,
)
from perfdoctor.trials.live import PlayerEnded
from perfdoctor.trials.player import Player

PROGRAM = """
import json, sys
rate, most = float(sys.argv[1]), int(sys.argv[2])
for count, line in enumerate(sys.stdin):
    if count >= most:
        sys.exit("worn out")
    steps = int(line)
    taken = {"wall_s": steps / rate, "cpu_s": 0.0, "compiles": int(count == 0)}
    print(json.dumps({"steps": steps, "samples": steps, **taken}), flush=True)
"""


def block(rate: float = 100.0, steps: int = 100, compiles: int = 0) -> Slice:
    """So many steps, one sample each, at a rate a second."""
    wall_s = steps / rate
    return Slice(steps=steps, samples=steps, wall_s=wall_s, cpu_s=wall_s, compiles=compiles)


@dataclass
class FakePlayer:
    """Runs at the given rates, one block after the other, the last one for ever."""

    rates: list[float]
    compiling_blocks: int = 0
    asked: list[int] = field(default_factory=list)

    def run(self, steps: int, within_s: float) -> Slice:
        self.asked.append(steps)
        number = len(self.asked)
        rate = self.rates[min(number, len(self.rates)) - 1]
        return block(rate, steps, compiles=int(number <= self.compiling_blocks))


def steps_of_a_slice(player: FakePlayer, slice_s: float = 0.5) -> int:
    return warm_up(cast(Player, player), slice_s)


def launch(folder: Path, rate: float, most: int = 1000) -> Launch:
    (folder / "metronome.py").write_text(PROGRAM)
    env = {**os.environ, "PYTHONPATH": str(folder)}
    return Launch(command=("-m", "metronome", str(rate), str(most)), env=env)


def children() -> set[int]:
    """The processes that live below ours."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


def test_two_blocks_are_steady_if_they_agree_and_compile_nothing() -> None:
    assert steady(block(100), block(105))
    assert steady(block(105), block(100))
    assert not steady(block(100), block(115))
    assert not steady(block(115), block(100))
    assert not steady(block(100), block(100, compiles=1))


def test_blocks_of_different_lengths_are_compared_by_their_throughput() -> None:
    assert steady(block(100, steps=4), block(101, steps=400))


def test_a_slice_lasts_as_long_as_it_should() -> None:
    assert steps_of_a_slice(FakePlayer([200.0]), slice_s=0.5) == 100
    assert steps_of_a_slice(FakePlayer([200.0]), slice_s=2.0) == 400


def test_a_slice_has_a_few_steps_however_long_they_take() -> None:
    assert steps_of_a_slice(FakePlayer([0.1])) == FEWEST_STEPS


def test_the_slow_first_steps_do_not_count() -> None:
    player = FakePlayer([1.0, 10.0, 100.0, 1000.0])
    assert steps_of_a_slice(player) == 500


def test_it_warms_up_for_as_long_as_something_compiles() -> None:
    player = FakePlayer([1000.0], compiling_blocks=5)
    steps_of_a_slice(player)
    assert len(player.asked) == 6


def test_a_process_that_never_gets_steady_is_taken_as_it_is() -> None:
    player = FakePlayer([1000.0, 100.0] * WARM_BLOCKS)
    steps_of_a_slice(player)
    assert len(player.asked) == WARM_BLOCKS


def test_of_a_program_that_compiles_on_and_on_a_slice_holds_several_compilations() -> None:
    player = FakePlayer([100.0, 1.0] * WARM_BLOCKS, compiling_blocks=1000)
    steps = steps_of_a_slice(player)
    asked = player.asked
    blocks = [block(rate, n) for rate, n in zip(player.rates, asked, strict=False)]
    step_s = sum(each.wall_s for each in blocks) / sum(asked)
    assert sum(each.wall_s for each in blocks) > NEVER_RESTS_S
    assert len(asked) == 2  # it is not given eight such blocks to come to rest
    assert steps == max(FEWEST_STEPS, round(COMPILING_SLICE_S / step_s))


def test_one_long_compilation_more_does_not_make_it_one_that_compiles_on() -> None:
    player = FakePlayer([0.1, 1000.0], compiling_blocks=1)
    assert steps_of_a_slice(player) == 500


def test_five_rounds_at_least() -> None:
    soon = time.monotonic() + 1000
    assert not enough([], soon)
    assert not enough([0.1] * (FEWEST_ROUNDS - 1), soon)
    assert enough([0.1] * FEWEST_ROUNDS, soon)


def test_noisy_rounds_go_on_until_their_number_is_reached() -> None:
    noisy = [1.0, -1.0] * ROUNDS
    soon = time.monotonic() + 1000
    assert not enough(noisy[:FEWEST_ROUNDS], soon)
    assert not enough(noisy[: ROUNDS - 1], soon)
    assert enough(noisy[:ROUNDS], soon)


def test_at_the_end_of_the_budget_a_few_rounds_do() -> None:
    past = time.monotonic() - 1
    assert enough([1.0, -1.0, 1.0][:FEWEST_AT_DEADLINE], past)
    with pytest.raises(PlayerEnded, match="the budget ended"):
        enough([0.1] * (FEWEST_AT_DEADLINE - 1), past)


def test_rounds_that_agree_are_enough_at_once() -> None:
    assert enough([0.1, 0.11, 0.1, 0.09, 0.1], time.monotonic() + 1000)


def test_a_pair_of_live_processes_shows_how_much_faster_the_changed_one_is(tmp_path: Path) -> None:
    before = children()
    with Ward() as ward:
        slow, fast = launch(tmp_path, 100.0), launch(tmp_path, 200.0)
        ratios = play_pair(ward, slow, fast, time.monotonic() + 60)
        assert children() <= before
    assert ratios == pytest.approx([math.log(2)] * FEWEST_ROUNDS)


def test_a_process_that_ends_in_the_middle_of_a_pair_ends_the_pair(tmp_path: Path) -> None:
    before = children()
    with Ward() as ward:
        mortal, other = launch(tmp_path, 100.0, most=5), launch(tmp_path, 100.0)
        with pytest.raises(PlayerEnded, match="worn out"):
            play_pair(ward, other, mortal, time.monotonic() + 60)
        assert children() <= before
