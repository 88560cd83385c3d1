"""What the steps after the captured one look up."""

from itertools import islice
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

from perfdoctor.observe.agent import batches
from perfdoctor.observe.agent.calls import Prober
from perfdoctor.observe.agent.capture import Capturer
from perfdoctor.observe.agent.roles import probe_of
from perfdoctor.replay.process import capture_in
from perfdoctor.replay.step import raw_values
from perfdoctor.schema.capture import MANIFEST, Capture, SavedLeaf
from tests.observe.agent.heard import STEPS, makers

ROWS, LATER_STEPS = 300, 100


def looking_up(made: Any, places: Any = np.asarray) -> Any:
    """Rows of a table, others in each step; of the two functions of a step, one takes them."""
    step = made.jit(lambda p, rows, x: (p.at[rows].add(x.sum()), p[rows].sum()))
    norm = made.jit(lambda p: p / p.sum())
    p = jnp.ones(1000)
    for number in range(1000):
        rows = np.arange(ROWS, dtype=np.int32) + number
        p, _ = step(p, places(rows), np.full(ROWS, number, np.float32))
        p = norm(p)
        yield


def saved(folder: Path, places: Any = np.asarray) -> tuple[SavedLeaf, ...]:
    """The arguments of the first function, as they were captured."""
    prober = Prober(jax)
    made, hearing = makers(prober)
    running = looking_up(made, places)
    for _ in islice(running, STEPS):
        pass
    probe = probe_of(prober)
    assert probe is not None
    hearing.hear = capturer = Capturer(jax, probe, folder, {}, {})
    for _ in islice(running, LATER_STEPS):
        pass
    assert capturer.is_enough() and capturer.failure is None
    capturer.finish()
    capture = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Capture)
    assert capture.saved_bytes == sum(file.stat().st_size for file in folder.glob("*.raw"))
    [leaves] = [call.leaves for call in capture.calls if len(call.leaves) > 1]
    return leaves


def value(folder: Path, file: str) -> Any:
    """As the replay reads it."""
    return np.frombuffer(raw_values(folder, capture_in(folder), file), np.int32)


@pytest.mark.parametrize("places", [np.asarray, jnp.asarray], ids=["host", "device"])
def test_rows_of_later_steps_are_saved_in_their_order(tmp_path: Path, places: Any) -> None:
    state, rows, x = saved(tmp_path, places)
    assert (state.later, x.later) == ((), ())
    first = value(tmp_path, rows.file)[0]
    assert len(rows.later) == batches.MORE
    for number, file in enumerate(rows.later, 1):
        np.testing.assert_array_equal(value(tmp_path, file), np.arange(ROWS) + first + number)


@pytest.mark.parametrize(
    ("name", "limit", "count"), [("MORE_S", -1.0, 0), ("MOST_BYTES", 3 * 4 * ROWS, 3)]
)
def test_no_more_than_there_is_time_and_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, limit: float, count: int
) -> None:
    monkeypatch.setattr(batches, name, limit)
    assert len(saved(tmp_path)[1].later) == count


def test_few_integers_are_no_rows_that_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "FEWEST_ROWS", ROWS + 1)
    assert saved(tmp_path)[1].later == ()


def test_what_goes_wrong_after_the_step_costs_the_rows_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "is_like", lambda *_: 1 / 0)
    assert saved(tmp_path)[1].later == ()
