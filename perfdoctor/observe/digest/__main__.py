"""Understand a recording, in a process of its own: it needs jaxlib, which the doctor never loads.

python -m perfdoctor.observe.digest FOLDER [WHY]: reads the folder's recording, trace and programs,
writes `digest.json` there. `WHY` its trace is not to be read: what can be told without one is.
"""

import gc
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from perfdoctor.files import write_whole
from perfdoctor.kernel import die_with_parent, let_others_go_first
from perfdoctor.observe.digest import program, xplane
from perfdoctor.observe.digest.compiles import (
    compiled_in,
    compiles_of,
    compiles_within,
    may_compile_again,
    tracing_of,
)
from perfdoctor.observe.digest.cost import cost_of
from perfdoctor.observe.digest.excerpt import excerpt_of
from perfdoctor.observe.digest.executable import (
    executable_of,
)
from perfdoctor.observe.digest.from_calls import steps_from, told_by_calls
from perfdoctor.observe.digest.garbage import garbage_of
from perfdoctor.observe.digest.joined import (
    axis_shares,
    convolutions_share,
    program_of,
    records_of,
)
from perfdoctor.observe.digest.layers import TOO_MANY
from perfdoctor.observe.digest.repetition import FEWEST_STEPS, calls_made
from perfdoctor.observe.digest.steps import steps_of
from perfdoctor.observe.digest.timeline import Timeline, as_computed, without_tracing
from perfdoctor.protocol import DIGEST, PREVIEW, RECORDING, TRACE
from perfdoctor.schema.calls import MOSTLY, StepCalls
from perfdoctor.schema.digest import Digest
from perfdoctor.schema.figures import Excerpt
from perfdoctor.schema.program import Executable, Program
from perfdoctor.schema.recording import ExecutableRecord, Recording
from perfdoctor.schema.steps import ENDED_EARLY, Steps

SHORTEST_S, LONGEST_S = 3.0, 40.0
"""Seconds of windows after the first; the longest holds five steps of six seconds."""
LONGER, WAIT_LONGER = 4, 2
"""The factor by which the next window is longer where too few steps were seen; and where the host
came to none, since a batch may take longer to load than the window is."""
COSTLY_S = 1.8
"""Seconds of a window: a shorter one was ended for its many events, of which writing takes up to
ten times as long as the window itself; most likely it lay in an evaluation, and a little more will
do."""
SURE_LOOKS = 2
"""Looks at which the same function must have dispatched operations: one may have lain in a
set-up."""
ENOUGH_STEPS, ENOUGH_S = 20, 20.0
"""Steps that tell a mean and its error; and seconds of a window that is kept even with fewer."""


def digest(folder: Path, why_untraced: str | None = None) -> Digest:
    """Make the parts of an Observation out of raw signals; `why_untraced`: without the trace."""
    recording = msgspec.json.decode((folder / RECORDING).read_bytes(), type=Recording)
    if why_untraced is not None:
        recording.window = None
    missing = dict(recording.failures)
    seen = seen_in(folder, recording) if why_untraced is None else None
    preview = xplane.read(folder / PREVIEW, calls_made(recording)) if seen else None
    traced = steps_of(seen, recording, preview) if seen else None
    why_none = why_untraced or why_no_steps(seen, recording)
    steps, step_program, executable = traced or by_calls(seen, recording, why_none), None, None
    if traced is None:
        missing |= dict.fromkeys(("executable", "cost"), why_none)
    else:
        records = records_of(traced, recording)
        executable = with_axes(folder, traced, records, seen, recording)
        steps = with_convolutions(folder, traced, records, seen)
    if steps is None:
        missing |= dict.fromkeys(("steps", "program"), why_none)
    else:
        size = executable.argument_bytes if executable is not None else None
        step_program = program_of(steps, recording, missing, size)
    if recording.window is None:
        unseen = ("threads",) if steps is not None else ("threads", "garbage")
        missing |= dict.fromkeys(unseen, why_none)
    missing = unread(step_program) | missing
    return Digest(
        compiles=compiles_of(recording),
        garbage=garbage_of(recording),
        steps=with_batch(steps, step_program, recording.devices, recording.step_calls),
        timeline=picture_of(seen, traced, recording, missing),
        program=step_program,
        executable=executable,
        cost=cost_of(traced, recording) if traced is not None else None,
        not_measured=missing,
        next_window_s=next_window_s(seen, traced, recording) if why_untraced is None else None,
        is_step_known=is_known(traced, recording),
    )


def by_calls(seen: Timeline | None, recording: Recording, why: str) -> Steps | None:
    """The steps by their calls, if no trace shows any; `why`: none is shown.

    None where the device computes nothing in the window, or something compiles there: that may take
    more of the time than the steps that were timed before.
    """
    is_idle = seen is None or not len(seen.busy)
    if recording.window is not None and (is_idle or compiles_within(recording)):
        return None
    known = told_by_calls(recording)
    return steps_from(known, why) if known is not None else None


def unread(step_program: Program | None) -> dict[str, str]:
    """Why not all of the program was read, if so."""
    return {} if step_program is None or step_program.is_whole else {"layers": TOO_MANY}


def picture_of(
    seen: Timeline | None, steps: Steps | None, recording: Recording, missing: dict[str, str]
) -> Excerpt | None:
    """Some of the steps; a picture that can't be made is no reason to lose a diagnosis."""
    if seen is None or steps is None:
        return None
    try:
        return excerpt_of(seen, steps, recording)
    except Exception as error:
        missing["timeline"] = f"there is no picture of the steps: {error!r}"
        return None


def seen_in(folder: Path, recording: Recording) -> Timeline | None:
    """The timeline of the traced window; None if there was none."""
    seen = xplane.read(folder / TRACE, calls_made(recording))
    if seen is None:
        return None
    return as_computed(without_tracing(seen, tracing_of(recording)))


def next_window_s(seen: Timeline | None, steps: Steps | None, recording: Recording) -> float | None:
    """How long to look again, where the window lay in a set-up or an evaluation, or was short."""
    window = recording.window
    if seen is None or window is None:
        return SHORTEST_S
    looked_s = (window.end_ns - window.start_ns) / 1e9
    eager = recording.eager
    is_sure = eager is not None and recording.eager_looks >= SURE_LOOKS
    if steps is None and eager is not None and is_sure and eager.share >= MOSTLY:
        return None  # the operations that a function dispatches are most of what there is
    if compiled_in(recording) and not recording.never_rests:
        return looked_s
    if steps is None:
        much = seen.dispatches and looked_s >= COSTLY_S
        return min(LONGEST_S, looked_s * (LONGER if much else WAIT_LONGER))
    if may_compile_again(steps.function, recording):
        return looked_s
    if (
        steps.count >= ENOUGH_STEPS
        or is_known(steps, recording)
        or looked_s >= ENOUGH_S
        or recording.never_rests
    ):
        return None  # where it compiles for ever, the compilations are what matters
    return min(ENOUGH_S, 1.5 * looked_s * ENOUGH_STEPS / steps.count)


def is_known(steps: Steps | None, recording: Recording) -> bool:
    """Whether the steps of the window are those that were timed while nothing was traced: then a
    few are enough to tell where their time goes.
    """
    known = recording.step_calls
    if steps is None or known is None or known.threads != steps.threads:
        return False
    return known.calls_of(steps.function) > 0


def why_no_steps(seen: Timeline | None, recording: Recording) -> str:
    """What kept the steps of the window from being counted."""
    if recording.window is None:
        return ENDED_EARLY
    if seen is None or not seen.dispatches:
        return "no jitted function was called in the traced window"
    if compiled_in(recording) and not recording.never_rests:
        return "all that was traced compiles, as in a set-up: give the run more steps, or more time"
    again = "; something compiles in them again and again" if compiled_in(recording) else ""
    return (
        f"the traced window holds fewer than {FEWEST_STEPS} steps that compile nothing and are "
        f"computed within it{again}"
    )


def with_convolutions(
    folder: Path, steps: Steps, records: Sequence[ExecutableRecord], seen: Timeline | None
) -> Steps:
    """Adds what the convolutions of the step's programs take of the device's time."""
    if not records or seen is None or not seen.operation_ms:
        return steps
    share = convolutions_share(folder, records, seen.operation_ms)
    return msgspec.structs.replace(steps, convolution_ms=share * steps.device_busy_ms)


def with_axes(
    folder: Path,
    steps: Steps,
    records: Sequence[ExecutableRecord],
    seen: Timeline | None,
    recording: Recording,
) -> Executable | None:
    """XLA's account of the step's main program, and what long axes take in all of them."""
    executable = executable_of(folder, steps.function, recording)
    if executable is None or seen is None:
        return executable
    shares = axis_shares(folder, records, seen.operation_ms)
    return msgspec.structs.replace(executable, axis_shares=shares)


def with_batch(
    steps: Steps | None,
    step_program: Program | None,
    devices: int,
    seen: StepCalls | None = None,
) -> Steps | None:
    """Adds the batch size that the program shows, and the throughput that follows from it.

    `seen`: the calls; where only state has that length in them, it is that of a buffer from which
    the step draws.
    """
    batch = program.batch_size(step_program, devices) if step_program else None
    if steps is None or batch is None or (seen is not None and not seen.brings(batch)):
        return steps
    # where several threads call, a step is one call of any, and `calls` are those of one thread
    calls = steps.calls.get(steps.function, 1.0) if steps.threads == 1 else 1.0
    rate = batch * calls / steps.time_ms * 1e3
    return msgspec.structs.replace(steps, batch_size=batch, samples_per_s=rate)


if __name__ == "__main__":
    die_with_parent()
    let_others_go_first()  # the program goes on meanwhile
    gc.disable()  # a trace is millions of objects, none of which is garbage before the end
    here = Path(sys.argv[1])
    write_whole(here / DIGEST, msgspec.json.encode(digest(here, *sys.argv[2:3])))
