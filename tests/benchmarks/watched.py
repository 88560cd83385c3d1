"""gated.py under perfdoctor's agent, as it rests for most of an observed run.

The project's own gate (.ci/run) compares the two: what observing costs a step.
"""

import atexit
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import jax

from perfdoctor.observe.agent.watch import Watcher
from tests.benchmarks import gated


class Resting(Watcher):
    """Looks all the time whether its window may be opened, and never opens it."""

    def _may_open(self) -> bool:
        super()._may_open()
        return False


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)  # after the watcher has left, which registers later
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # as a live pair is ended
    Resting(folder, steady_within_s=1e6, window_s=1.0).attach(jax)
    gated.main()
