"""A process and its descendants, as one."""

import subprocess
import sys

import psutil
import pytest

from perfdoctor.process_tree import family, halted, is_resource_tracker, resume, suspend, tree
from perfdoctor.processes import ProcessGroups
from tests.awaited import await_status

SLEEP = "import time; print('ready', flush=True); time.sleep(600)"
PARENT = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {SLEEP!r}], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
if sys.argv[1] == "stays":
    time.sleep(600)
"""
TRACKED = """
import time
from multiprocessing import resource_tracker
resource_tracker.ensure_running()
print(resource_tracker._resource_tracker._pid, flush=True)
time.sleep(600)
"""


def started(groups: ProcessGroups, program: str, *arguments: str) -> tuple[psutil.Popen, int]:
    """A child that runs this program, and the process that it told of."""
    command = [sys.executable, "-c", program, *arguments]
    child = groups.spawn(command, stdout=subprocess.PIPE)
    return child, int(child.stdout.readline())


def test_suspending_and_resuming_reach_the_whole_tree() -> None:
    with ProcessGroups() as groups:
        child, pid = started(groups, PARENT, "stays")
        both = [psutil.Process(child.pid), psutil.Process(pid)]
        for act, status in ((suspend, psutil.STATUS_STOPPED), (resume, psutil.STATUS_SLEEPING)):
            act(child)
            for process in both:
                await_status(process, status)


def test_who_lost_the_parent_is_still_of_the_family() -> None:
    with ProcessGroups() as groups:
        child, pid = started(groups, PARENT, "leaves")
        child.wait(60)
        assert tree(child) == [child]
        assert psutil.Process(pid) in family([child])


@pytest.mark.skipif(sys.platform != "linux", reason="reads the state of processes")
def test_all_are_halted_but_the_resource_tracker() -> None:
    with ProcessGroups() as groups:
        child, pid = started(groups, TRACKED)
        _, other = started(groups, PARENT, "stays")
        others, trackers = halted([child], {psutil.Process(other)})
        assert others == {child, psutil.Process(other)}
        assert trackers == {psutil.Process(pid)}
        for process in others:
            await_status(process, psutil.STATUS_STOPPED)
        assert psutil.Process(pid).status() != psutil.STATUS_STOPPED


def test_a_process_that_is_gone_is_no_resource_tracker() -> None:
    ended = psutil.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert not is_resource_tracker(ended)
