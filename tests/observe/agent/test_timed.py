"""Steps that are timed, and what the process does meanwhile; how often is told in test_step.py."""

import mmap

from perfdoctor.observe.agent.timed import page_faults

PAGES = 300


def test_pages_that_are_touched_first_are_counted() -> None:
    before = page_faults()
    with mmap.mmap(-1, PAGES * mmap.PAGESIZE) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(PAGES):
            memory[page * mmap.PAGESIZE] = 1
    assert page_faults() - before >= PAGES
