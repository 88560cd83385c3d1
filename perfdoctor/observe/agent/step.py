"""What a step of the program is: its jitted calls are timed and probed, and one step is saved."""

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from perfdoctor.injection.calls import Hearing, wrap_makers
from perfdoctor.observe.agent.beside import Beside, Worker
from perfdoctor.observe.agent.calls import Prober
from perfdoctor.observe.agent.capture import Capturer
from perfdoctor.observe.agent.compilation import CompilationWatch
from perfdoctor.observe.agent.garbage import GarbageWatch
from perfdoctor.observe.agent.glance import Glance
from perfdoctor.observe.agent.hold import let_compute
from perfdoctor.observe.agent.made_up import save_made_up
from perfdoctor.observe.agent.patience import Patience
from perfdoctor.observe.agent.roles import Probe, step_of
from perfdoctor.observe.agent.settings import Value, in_context, settings
from perfdoctor.observe.agent.shapes import Shapes
from perfdoctor.observe.agent.silence import Deafness
from perfdoctor.observe.agent.span import Span
from perfdoctor.observe.agent.standstill import at_standstill, busiest_of, is_worthwhile
from perfdoctor.observe.agent.telling import made_by, reuses_memory, step_calls
from perfdoctor.observe.agent.timed import TIMED_S, timed_once, timed_steps, usual_ms
from perfdoctor.observe.agent.timing import FEWEST_TIMED, Timer
from perfdoctor.schema.calls import StepCalls
from perfdoctor.schema.capture import MANIFEST

Settings = Mapping[str, Any]
PROBING_S, CAPTURING_S = 7.0, 30.0
"""Seconds that probing and saving may take at most: programs whose steps take long are waited
for."""
COPYING_S = 3.0
"""Seconds to wait until the captured state is computed, where the program runs ahead of it."""
FASTER = 0.1
"""By how much steps have to take less when they are timed again to be looked at anew."""
NOT_CALLED = "the step was not called again"
USED_UP_S = 3.0
"""Seconds to wait at most until what was loaded ahead is used up."""


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
        """Why no step was told or saved."""
        self.step_ms: float | None = None
        """What a step takes, if it was timed."""
        self.in_context: dict[str, Value] = {}
        """JAX's settings in the calls of a step that other threads have not."""
        self._ended, self._garbage, self._compilation = ended, garbage, compilation
        self.hearing = Hearing()
        self._patience = Patience(ended, compilation, meanwhile)
        self._glance: Glance | None = None
        self._probe: Probe | None = None
        self._shapes: Shapes | None = None
        self._capturer: Capturer | None = None
        """What has captured a step that is not yet written."""
        self._workers: tuple[Worker, ...] = ()
        self._held_s = 0.0
        """For how long it was held up since a window was opened."""
        self._attempts, self._reuses_memory, self._may_glance = 0, True, False
        self._env_at_start = dict(env_at_start)

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
        timed = timed_steps(self._jax, self.hearing, self._patience, self._compilation)
        if timed is None:
            self._give_up("too few jitted calls were made")
            return
        timer, span = timed.timer, timed.span
        self.step_ms = span.step_ms if span else None
        prober = Prober(self._jax, stacks=self._compilation.calls)
        self._patience.listen(
            self.hearing,
            prober,
            prober.done.is_set,
            PROBING_S,
            prober.begun.is_set,
            waits_long=True,
        )
        prober.calls = [each for each in prober.calls if each.end_ns]
        self.in_context = in_context(settings(self._jax), prober.settings.values())
        told = step_of(timer, prober) if prober.failure is None else None
        if told is None:
            self._give_up(prober.failure or "no sequence of jitted calls repeats")
            return
        steps = timed.lasts_ms / told[0].step_ms
        beside = timed.beside(told[0].step_ms, told[1].thread, self._garbage.events)
        compilations = timed.compilations(self._compilation.events) / steps
        self._reuses_memory = reuses_memory(timed.faults / steps, told[0].step_ms, os.environ)
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
        self.step_ms, self._workers = span.step_ms, beside.workers
        self._probe, self._shapes = probe, prober.shapes
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

    def conclude(self, folder: Path | None, made: Settings, deaf: Deafness = nullcontext) -> None:
        """Of a program that has ended too early for more, tell what was seen, at a glance at least;
        and save its step in `folder`, with made-up values, unless it is there or was refused.
        """
        self.hearing.hear = None
        is_refused = self._probe is not None and self.failure not in (None, NOT_CALLED)
        if self._glance and self._probe is None and (told := self._glance.told()) is not None:
            if self.calls is None:
                self._tell(self._glance.timer, self._glance.prober, told, Beside(), 0.0)
            self._probe, self._shapes = told[1], self._glance.prober.shapes
        if folder is None or self._probe is None or self._shapes is None or is_refused:
            return
        if not (folder / MANIFEST).exists():
            self._capturer = self._capturer_of(folder, made, deaf, takes_any=True)
            save_made_up(self._capturer, self._shapes, self._probe)
            self.keep()

    def capture(self, folder: Path, made: Settings, deaf: Deafness = nullcontext) -> None:
        """Save a step in `folder`. `made`: JAX's settings; `deaf`: in which nobody else listens to
        what jax does.
        """
        if self._probe is None:
            return
        capturer, begin = self._capturer_of(folder, made, deaf), time.monotonic()
        is_done = self._patience.listen(self.hearing, capturer, capturer.is_enough, CAPTURING_S)
        if not is_done and capturer.capture is None:
            capturer.failure = NOT_CALLED
        self._held_s += time.monotonic() - begin
        self._capturer = capturer
        self._patience.wait_for(capturer.is_computed, COPYING_S)
        if capturer.is_computed():
            self.keep()

    def _capturer_of(
        self, folder: Path, made: Settings, deaf: Deafness, *, takes_any: bool = False
    ) -> Capturer:
        assert self._probe is not None
        self._attempts += 1
        return Capturer(
            self._jax,
            self._probe,
            folder,
            {**made, **self.in_context},
            self._env_at_start,
            self.calls.threads if self.calls else 1,
            deaf,
            prefix=f"{self._attempts}-",
            reuses_memory=self._reuses_memory,
            takes_any=takes_any,
        )

    def stand_still(self) -> None:
        """Hold the step up once, if others work beside it, and see who works on."""
        if self.calls is None or self._probe is None or self.calls.threads > 1:
            return
        who, step_ms, begin = self._workers, self.calls.time_ms, time.monotonic()
        found = at_standstill(self._jax, self.hearing, self._patience.wait_for, who, step_ms)
        self._held_s += time.monotonic() - begin
        self.calls = replace(self.calls, restless=found, busiest_beside=busiest_of(who))

    def look_again(self) -> None:
        """Time the steps once more; look at them anew if they take less by now, for then others had
        slowed the machine. Not where that would take much longer than TIMED_S.
        """
        before, before_ms, failure = self.calls, self.step_ms, self.failure
        if before is None or before_ms is None or before_ms * FEWEST_TIMED > TIMED_S * 1e3:
            return
        if before.is_asked:  # which thread's calls make the steps is told by the probe only
            return
        timed = timed_once(self._jax, self.hearing, self._patience)
        span = timed.span if timed is not None else None
        if span is None or span.step_ms * (1 + FASTER) > before_ms:
            return
        self.look()
        self.failure = failure  # of what was saved, which is not saved again
        if self.calls is before or self.calls is None or made_by(self.calls) != made_by(before):
            self.calls, self.step_ms = before, before_ms
            return
        who = {"restless": before.restless, "busiest_beside": before.busiest_beside}
        self.calls = replace(self.calls, **who)

    def takes_ms(self) -> float | None:
        """What a step takes now, without what is done now and then; None if none are made."""
        if self.calls is None or self._probe is None:
            return None
        ahead = self.calls.runs_ahead
        return usual_ms(self._jax, self.hearing, self._patience, self._probe, runs_ahead=ahead)

    def use_up(self) -> None:
        """Let it go on for as long as it was held up, if others have loaded ahead meanwhile."""
        held_s, self._held_s = self._held_s, 0.0
        if self.calls is not None and is_worthwhile(self._workers, self.calls.time_ms):
            self._patience.wait_for(lambda: False, min(held_s, USED_UP_S))

    def keep(self) -> None:
        """Write what was captured and could not be written yet; waits until it is computed."""
        if self._capturer is None:
            return
        let_compute(self._jax, self.hearing, self._patience.wait_for, self._capturer.is_computed)
        self._capturer.finish()
        self.failure = self._capturer.failure
        self._capturer = None

    def _give_up(self, why: str) -> None:
        if self.calls is None:
            self.failure = why
