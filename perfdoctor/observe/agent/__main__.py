"""Run a module as `python -m` would, watched.

python -m perfdoctor.observe.agent FOLDER STEADY_WITHIN_S WINDOW_S MODULE [ARGUMENTS…]
"""

import runpy
import sys
from pathlib import Path

from perfdoctor.observe.agent.watch import Limits, Watcher
from perfdoctor.processes import die_with_parent


def main() -> None:
    """Watch from before the program's first import until its end."""
    die_with_parent()
    folder, steady_within_s, window_s, module, *arguments = sys.argv[1:]
    watcher = Watcher(Path(folder), Limits(float(steady_within_s), float(window_s)))
    sys.argv = [module, *arguments]
    watcher.garbage.install()
    watcher.start()
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except BaseException:  # an interruption comes out of XLA as an error of another kind
        if not watcher.asked_to_stop:
            raise
    finally:
        leave(watcher)


def leave(watcher: Watcher) -> None:
    """The watcher may ask the program to stop just as that ends by itself: then ask it again."""
    try:
        watcher.finish()
    except KeyboardInterrupt:
        watcher.finish()


main()
