"""Run the loop of a user's workload.

python -m perfdoctor.targets.workload_object ORDERS.json [--counters FOLDER]

By itself it trains until it is ended. As a worker of a trial it makes steps for ever: it counts
them in the folder's counters, and rests when these ask it to (`perfdoctor.counters`).
"""

import importlib
import itertools
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import jax
import msgspec

from perfdoctor.files import write_whole
from perfdoctor.injection.bootstrap import in_one_line
from perfdoctor.injection.imposing import impose
from perfdoctor.kernel import die_with_parent, offer_to_the_oom_killer
from perfdoctor.schema.parts import Orders, Told
from perfdoctor.targets.running import count_steps, leave
from perfdoctor.targets.workload_object.callbacks import leave_out_callbacks
from perfdoctor.targets.workload_object.finding import Refused, given
from perfdoctor.targets.workload_object.loop import WorkloadLoop

REFUSED = 2
"""The exit code of an object that is no workload."""
OURS = str(Path(__file__).parent)
"""The folder of this code, which a traceback does not show."""


def show_the_users_code(*, in_a_worker: bool) -> None:
    """A traceback begins where the user's code does; what it says ends the log of a worker."""
    shown = sys.excepthook

    def show(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
        found = where
        while found is not None and is_ours(found.tb_frame.f_code.co_filename):
            found = found.tb_next
        shown(kind, error.with_traceback(found or where), found or where)
        if in_a_worker:
            print(in_one_line(kind, error), file=sys.stderr)

    sys.excepthook = show


def is_ours(file: str) -> bool:
    """Whether a frame is one of the way from the interpreter to the user's code."""
    return file.startswith((OURS, "<frozen ")) or file == importlib.__file__


def train(orders: Orders, options: Sequence[str]) -> None:
    """Find the workload, tell what it is made of, and make its steps."""
    change, told = orders.change, Path(orders.told)
    if change.cores:
        os.sched_setaffinity(0, change.cores)
    impose(jax, dict(change.settings))
    if change.step.get("program") == "no-callbacks":
        leave_out_callbacks()
    loop = WorkloadLoop(given(orders.name), change)
    write_whole(told, msgspec.json.encode(Told(parts=loop.parts)))
    try:
        if options:
            _, folder = options
            count_steps(loop, Path(folder))
        else:
            loop.run_each(itertools.count())
    finally:
        loop.close()


def main() -> None:
    """Run the workload that the orders of the first argument name."""
    signal.signal(signal.SIGTERM, leave)
    die_with_parent()
    offer_to_the_oom_killer()
    file, *options = sys.argv[1:]
    orders = msgspec.json.decode(Path(file).read_bytes(), type=Orders)
    show_the_users_code(in_a_worker=bool(options))
    try:
        train(orders, options)
    except Refused as refused:
        write_whole(Path(orders.told), msgspec.json.encode(Told(refused=str(refused))))
        if options:  # the last line of a worker's log says why it ended
            print(refused, file=sys.stderr)
        sys.exit(REFUSED)


if __name__ == "__main__":
    main()
