"""What a step of the program is: its jitted calls are timed and probed, and one step is saved."""

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from perfdoctor.injection.calls import Hear, Hearing, wrap_makers
from perfdoctor.observe.agent.beside import Beside, Worker, readings, work_beside
from perfdoctor.observe.agent.calls import Prober
from perfdoctor.observe.agent.capture import Capturer
from perfdoctor.observe.agent.compilation import CompilationWatch
from perfdoctor.observe.agent.garbage import GarbageWatch
from perfdoctor.observe.agent.glance import Glance
from perfdoctor.observe.agent.roles import Probe, step_of
from perfdoctor.observe.agent.silence import Context
from perfdoctor.observe.agent.span import Span, span_of
from perfdoctor.observe.agent.standstill import at_standstill
from perfdoctor.observe.agent.telling import compiled, page_faults, reuses_memory, step_calls
from perfdoctor.observe.agent.threads import Reading, read
from perfdoctor.observe.agent.timing import Timer
from perfdoctor.schema.calls import StepCalls
from perfdoctor.schema.capture import MANIFEST

TIMED_S = 1.0
"""Seconds for which steps are timed, before anything is traced."""
PROBING_S, CAPTURING_S = 7.0, 30.0
"""Seconds that probing and saving may take at most: programs whose steps take long are waited
for."""
FIRST_CALL_S = 3.0
"""Seconds to wait for a jitted call: a program that makes none for so long has none that makes its
steps, or has made all that it will."""
AHEAD_S = 12.0
"""Seconds to wait for a program whose main thread is blocked while others compute: it has called
many steps ahead."""
COMPILING = 2.3
"""The factor of these times for a program that compiles in its steps, so that each call takes
seconds."""
COPYING_S = 3.0
"""Seconds to wait until the captured state is computed, where the program runs ahead of it; after
that the window comes first."""
POLL_S = 0.01
"""Seconds between two looks at what is waited for."""


class StepWatch:
    """Learns what a step of the program is, once it is steady."""

    def __init__(
        self,
        ended: threading.Event,
        garbage: GarbageWatch,
        compilation: CompilationWatch,
        env_at_start: Mapping[str, str],
        meanwhile: Callable[[], None] = lambda: None,
    ) -> None:
        """`meanwhile`: called now and then while it waits for the program's calls."""
        self.calls: StepCalls | None = None
        self.failure: str | None = None
        """Why no step was told, or none was saved."""
        self.step_ms: float | None = None
        """What a step takes, if it was timed."""
        self._ended, self._garbage, self._compilation = ended, garbage, compilation
        self.hearing = Hearing()
        self._glance: Glance | None = None
        self._probe: Probe | None = None
        self._capturer: Capturer | None = None
        """What has captured a step that is not yet written."""
        self._workers: tuple[Worker, ...] = ()
        self._attempts, self._reuses_memory, self._may_glance = 0, True, False
        self._env_at_start = dict(env_at_start)
        self._meanwhile = meanwhile

    def attach(self, jax: Any, hearing: Hearing | None = None) -> None:
        """Wrap what `jax.jit` makes from now on.

        `hearing`: one that hears of all calls by itself.
        """
        self._jax, self._may_glance = jax, hearing is None
        if hearing is None:
            wrap_makers(jax, self.hearing)
        else:
            self.hearing = hearing

    def look(self) -> None:
        """Time some steps, then look at their arguments; what an earlier look has seen is forgotten
        only for something better.
        """
        self._probe = None
        timer = Timer(self._jax, TIMED_S)
        before, begin_ns, faults = readings(), time.time_ns(), page_faults()
        is_told = self._listen(
            timer, timer.is_told, PROBING_S, lambda: bool(timer.calls), waits_long=True
        )
        if not is_told:
            self._give_up("too few jitted calls were made")
            return
        after, end_ns, faults = readings(), time.time_ns(), page_faults() - faults
        span = span_of(timer.calls, timer.begin_ns, timer.end_ns)
        self.step_ms = span.step_ms if span else None
        prober = Prober(self._jax, stacks=self._compilation.calls)
        self._listen(prober, prober.done.is_set, PROBING_S, lambda: bool(prober.calls))
        prober.calls = [each for each in prober.calls if each.end_ns]
        told = step_of(timer, prober) if prober.failure is None else None
        if told is None:
            self._give_up(prober.failure or "no sequence of jitted calls repeats")
            return
        steps = (end_ns - begin_ns) / 1e6 / told[0].step_ms
        callers = {each.thread for each in timer.calls}
        beside = work_beside(before, after, told[1].thread, callers, steps)
        compilations = compiled(self._compilation.events, begin_ns, end_ns) / steps
        self._reuses_memory = reuses_memory(faults / steps, told[1])
        self._tell(timer, prober, told, beside, compilations)

    def _tell(
        self,
        timer: Timer,
        prober: Prober,
        told: tuple[Span, Probe],
        beside: Beside,
        compilations: float,
    ) -> None:
        """Keep what was seen."""
        (span, probe), self.failure = told, None
        self.step_ms, self._probe, self._workers = span.step_ms, probe, beside.workers
        self.calls = step_calls(
            timer, prober, told, beside, compilations, self._garbage, self._compilation
        )

    def glance(self) -> None:
        """Look at the program's calls while nobody waits for it, in case that it ends soon; anew if
        something has compiled since. Not where that slows all of its calls.
        """
        if not self._may_glance:
            return
        since_s = (time.time_ns() - self._glance.begin_ns) / 1e9 if self._glance else 0.0
        if self._glance is None or self._compilation.quiet_for_s() < since_s:
            self._glance = self.hearing.hear = Glance(self._jax, self._compilation.calls)
        self._glance.timer.look()

    def conclude(
        self,
        folder: Path | None,
        settings: Mapping[str, Any],
        deaf: Callable[[], Context] = nullcontext,
    ) -> None:
        """Of a program that has ended too early for more, tell what was seen at a glance; and save
        its step in `folder`, with values that are made up, if it is not there.
        """
        self.hearing.hear = None
        told = self._glance.told() if self._glance is not None else None
        if self._glance is None or told is None:
            return
        if self.calls is None:
            self._tell(self._glance.timer, self._glance.prober, told, Beside(), 0.0)
        if folder is not None and not (folder / MANIFEST).exists():
            self._probe = told[1]
            self._capturer = self._capturer_of(folder, settings, deaf)
            self._glance.capture(self._capturer, self._probe)
            self.keep()

    def capture(
        self, folder: Path, settings: Mapping[str, Any], deaf: Callable[[], Context] = nullcontext
    ) -> None:
        """Save a step in `folder`; `deaf`: in which nobody else listens to what jax does."""
        if self._probe is None:
            return
        capturer = self._capturer_of(folder, settings, deaf)
        if not self._listen(capturer, capturer.done.is_set, CAPTURING_S):
            capturer.failure = "the step was not called again"
        self._capturer = capturer
        self._wait_for(capturer.is_computed, COPYING_S)
        if capturer.is_computed():
            self.keep()

    def _capturer_of(
        self, folder: Path, settings: Mapping[str, Any], deaf: Callable[[], Context]
    ) -> Capturer:
        assert self._probe is not None
        self._attempts += 1
        return Capturer(
            self._jax,
            self._probe,
            folder,
            settings,
            self._env_at_start,
            self.calls.threads if self.calls else 1,
            deaf,
            prefix=f"{self._attempts}-",
            reuses_memory=self._reuses_memory,
        )

    def stand_still(self) -> None:
        """Hold the step up once, if others work beside it, and see who works on."""
        if self.calls is None or self._probe is None or self.calls.threads > 1:
            return
        who, step_ms = self._workers, self.calls.time_ms
        found = at_standstill(self._jax, self.hearing, self._wait_for, who, step_ms)
        self.calls = replace(self.calls, restless=found)

    def keep(self) -> None:
        """Write what was captured and could not be written yet; waits until it is computed."""
        if self._capturer is None:
            return
        self._capturer.finish()
        self.failure = self._capturer.failure
        self._capturer = None

    def _give_up(self, why: str) -> None:
        if self.calls is None:
            self.failure = why

    def _listen(
        self,
        hear: Hear,
        is_done: Callable[[], bool],
        seconds: float,
        has_begun: Callable[[], bool] = lambda: True,
        *,
        waits_long: bool = False,
    ) -> bool:
        """Have it make the calls until it is done; whether it was."""
        self.hearing.hear = hear
        patience = COMPILING if self._compilation.quiet_for_s() < FIRST_CALL_S / 3 else 1.0
        before = read(os.getpid())
        self._wait_for(has_begun, patience * FIRST_CALL_S)
        if waits_long and is_blocked(before, read(os.getpid()), FIRST_CALL_S):
            self._wait_for(has_begun, AHEAD_S)
        if has_begun():
            self._wait_for(is_done, patience * seconds)
        self.hearing.hear = None
        return is_done()

    def _wait_for(self, condition: Callable[[], bool], seconds: float) -> None:
        until = time.monotonic() + seconds
        while not condition() and time.monotonic() < until and not self._ended.wait(POLL_S):
            self._meanwhile()


def is_blocked(before: Reading, after: Reading, seconds: float) -> bool:
    """Whether the main thread has waited while other threads of this process computed."""
    main = threading.main_thread().native_id
    ran = {n: each - before.ran_ns.get(n, 0) for n, each in after.ran_ns.items()}
    of_main = ran.pop(main or 0, 0)
    return sum(ran.values()) - of_main > seconds * 1e9 / 2
