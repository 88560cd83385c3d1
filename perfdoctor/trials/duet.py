"""Two live processes, the unchanged and the changed one, run in turn: one pair of a trial."""

import math
import random
import time
from collections.abc import Sequence

from perfdoctor.processes import Ward
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.slices import Slice
from perfdoctor.trials.live import OutOfTime
from perfdoctor.trials.player import Player
from perfdoctor.trials.statistics import LAUNCH_SD, quantile, trimmed_mean

SLICE_S = 0.5
"""Long enough that starting and draining the pipeline at its ends does not show, nor which part of
a period of several steps a slice happened to hold."""
COMPILING_SLICE_S = 3.0
"""Of a program that never stops compiling."""
FEWEST_STEPS = 2
"""In a slice, however long they take."""
FEWEST_ROUNDS, ROUNDS = 5, 10
FEWEST_AT_DEADLINE = 3
WARM_BLOCKS, NEVER_RESTS_S = 8, 8.0
"""Blocks after which a process that never gets steady is taken as it is; or that one block after
another has compiled for."""
AGREEMENT = 0.1
"""Two blocks whose throughputs differ by less are steady."""
START_LIMIT_S = 120.0
ANSWER_LIMIT_S = 60.0


def play_pair(
    ward: Ward, unchanged: Launch, changed: Launch, until: float, slice_s: float = SLICE_S
) -> list[float]:
    """Log ratios of throughput, changed over unchanged, one for each round.

    `until`: instant of time.monotonic() at which no further round begins. Raises PlayerEnded.
    """
    with Player(ward, unchanged) as one, Player(ward, changed) as other:
        for player in (one, other):
            player.ask(FEWEST_STEPS)  # both compile at the same time
        limit = max(START_LIMIT_S / 4, min(START_LIMIT_S, until - time.monotonic()))
        for player in (one, other):
            player.answer(limit)
        steps = {player: warm_up(player, slice_s) for player in (one, other)}
        ratios: list[float] = []
        while not enough(ratios, until):
            order = [one, other]
            random.shuffle(order)
            rates = {p: p.run(steps[p], ANSWER_LIMIT_S).samples_per_s for p in order}
            ratios.append(math.log(rates[other] / rates[one]))
        return ratios


def enough(ratios: list[float], until: float) -> bool:
    """Whether further rounds could not help: the launch's own noise outweighs theirs by now.

    Raises PlayerEnded if the time is up after so few rounds that they say nothing.
    """
    if time.monotonic() > until:
        if len(ratios) < FEWEST_AT_DEADLINE:
            raise OutOfTime("the budget ended before its gain could be measured")
        return True
    if len(ratios) < FEWEST_ROUNDS:
        return False
    _, error, df = trimmed_mean(ratios)
    return quantile(df) * error < LAUNCH_SD or len(ratios) >= ROUNDS


def warm_up(player: Player, slice_s: float) -> int:
    """Run until two blocks agree and nothing compiles; the number of steps of a slice.

    A program that compiles again and again gets longer slices, so that each holds several
    compilations; how many steps that takes is told by all blocks together.
    """
    steps = FEWEST_STEPS
    blocks: list[Slice] = []
    while len(blocks) < WARM_BLOCKS and not never_rests(blocks):
        block = player.run(steps, ANSWER_LIMIT_S)
        if blocks and steady(blocks[-1], block) and block.wall_s > slice_s / 2:
            return steps
        blocks.append(block)
        steps = steps_within(slice_s, [block])
    compiles_on = len(compiling(blocks)) > 1
    return steps_within(COMPILING_SLICE_S, blocks) if compiles_on else steps


def compiling(blocks: Sequence[Slice]) -> list[Slice]:
    """Those that held a compilation."""
    return [block for block in blocks if block.compiles]


def never_rests(blocks: Sequence[Slice]) -> bool:
    """Whether it has compiled again and again for so long that it will not cease to."""
    found = compiling(blocks)
    return len(found) > 1 and sum(block.wall_s for block in found) > NEVER_RESTS_S


def steps_within(seconds: float, blocks: Sequence[Slice]) -> int:
    """How many steps take so long, by these blocks together."""
    step_s = sum(block.wall_s for block in blocks) / sum(block.steps for block in blocks)
    return max(FEWEST_STEPS, round(seconds / step_s))


def steady(last: Slice, block: Slice) -> bool:
    """Whether a block went as fast as the one before, and compiled nothing."""
    return (
        block.compiles == 0 and abs(math.log(block.samples_per_s / last.samples_per_s)) < AGREEMENT
    )
