"""What is told of a step's calls."""

import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.observe.agent.roles import Probe
from perfdoctor.observe.agent.telling import covered_ms, page_faults, reuses_memory
from perfdoctor.schema.calls import Leaf
from tests.calls import call_of

PAGES = 256


def probe(*, donated: bool) -> Probe:
    """Of a step with so many pages of state."""
    size = PAGES * mmap.PAGESIZE
    leaf = Leaf(
        argument="p",
        role="state",
        kind="device",
        shape=(size // 4,),
        dtype="float32",
        bytes=size,
        donated=donated,
    )
    call = call_of(leaf)
    return Probe((call,), (1,), 0, size // 4)


@pytest.mark.parametrize(
    ("faults", "donated", "reused"),
    [(3.0, False, True), (PAGES, False, False), (PAGES, True, True), (0.0, True, True)],
)
def test_memory_is_reused_where_results_touch_no_new_pages(
    faults: float, donated: bool, reused: bool
) -> None:
    assert reuses_memory(faults, probe(donated=donated)) is reused


def test_pages_that_are_touched_first_are_counted() -> None:
    before = page_faults()
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(PAGES):
            memory[page * mmap.PAGESIZE] = 1
    assert page_faults() - before >= PAGES


instants = st.integers(0, 50)


@given(spans=st.lists(st.tuples(instants, instants)), within=st.tuples(instants, instants))
def test_instants_in_several_spans_count_once(
    spans: list[tuple[int, int]], within: tuple[int, int]
) -> None:
    found = {n for begin, end in spans for n in range(begin, end) if within[0] <= n < within[1]}
    assert covered_ms(spans, *within) == pytest.approx(len(found) / 1e6)
