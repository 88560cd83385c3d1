"""From a loop that goes on to the Report of it: observed, replayed, tried."""

import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from perfdoctor.catalogue import checks
from perfdoctor.diagnosis import cells
from perfdoctor.diagnosis.recorder import Recorder, ThisProcess
from perfdoctor.diagnosis.rest import Rests
from perfdoctor.doctor import OBSERVING_SHARE, diagnosed, replayed, with_trials
from perfdoctor.observe.following import Following, Within, orders_within
from perfdoctor.observe.lines import lines_of
from perfdoctor.observe.machine import unobserved
from perfdoctor.observe.probe import backend_of
from perfdoctor.observe.probing import Settings, probe
from perfdoctor.observe.reading import read_recording
from perfdoctor.observe.run import Watched
from perfdoctor.observe.session import observation_of
from perfdoctor.processes import ProcessGroups
from perfdoctor.protocol import BROKEN
from perfdoctor.replay.replay import Replay
from perfdoctor.schema.observation import Observation, Target
from perfdoctor.schema.report import Report, ReportTarget
from perfdoctor.trials.trial import Laboratory

PLATFORMS = "JAX_PLATFORMS"
NOT_WHOLE = "a loop that goes on is not traced as a whole; `perfdoctor check` does that at its end"


@dataclass(frozen=True)
class Wish:
    """What is asked for."""

    budget_s: float
    min_gain: float
    name: str


class Course:
    """One diagnosis; `recorder` is there from the begin on, so that it can be told of the end."""

    def __init__(self, jax: Any, groups: ProcessGroups, wish: Wish) -> None:
        self.began = time.monotonic()
        self.loop_has_ended = False
        self._jax, self._groups, self._wish = jax, groups, wish
        self._folder, self._capture_to = groups.folder(), groups.folder()
        self._within_s = Within.at_most(OBSERVING_SHARE * wish.budget_s)
        self.recorder = Recorder(
            self._folder,
            capture_to=self._capture_to,
            **orders_within(self._within_s),  # type: ignore[arg-type]
        )

    def observed(self, say: Callable[[str], None]) -> Observation:
        """What the loop does; nothing of ours is in it afterwards but a way to let it rest."""
        left_s = self._within_s.less(time.monotonic() - self.began)
        say("observing the loop")
        follows = Following(
            ThisProcess(self.recorder), self._folder, self._groups, left_s, say, self._capture_to
        )
        try:
            follows.to_the_end()
        finally:
            self.recorder.end()
            self.recorder.detach()
        with cells.written():
            follows.read_the_rest()
        watched = Watched(
            recording=read_recording(self._folder),
            digest=follows.digest,
            load=follows.load,
            failure=None,
            gpus=follows.gpus,
            ended=self._why_nothing(),
        )
        env = dict(os.environ)
        backend = backend_of(self._jax, 0.0, ())
        target = Target(kind="script", name=self._wish.name, args=tuple(sys.argv[1:]))
        seen = observation_of(target, env, backend, self._settings(env), watched, self._capture_to)
        if seen.eager is not None and not seen.eager.is_saved:
            eager = msgspec.structs.replace(seen.eager, why_not=NOT_WHOLE)
            seen = msgspec.structs.replace(seen, eager=eager)
        return with_lines(seen)

    def _why_nothing(self) -> str:
        """For the parts that were not recorded."""
        broken = self._folder / BROKEN
        if broken.exists():
            return f"it could not be observed: {broken.read_text().splitlines()[-1]}"
        return "too little of the loop was seen"

    def tried(self, seen: Observation, say: Callable[[str], None]) -> Observation:
        """What fixes gain, on the step alone; the loop rests while that is timed."""
        deadline = self.began + self._wish.budget_s
        rests = Rests(self._jax, self.recorder.hearing, lambda: self.loop_has_ended)
        with Replay(self._groups, os.environ, self._capture_to, say, rests.quiet) as replay:
            seen, ways = replayed(seen, replay, deadline)
            if ways:
                laboratory = Laboratory(ways, deadline, self._wish.min_gain, say)
                seen = with_trials(seen, checks(), laboratory)
        return seen

    def _settings(self, env: dict[str, str]) -> Settings:
        """JAX's settings as they are after its import, asked of a process that computes nothing."""
        _, settings, _ = probe(self._groups, {**env, PLATFORMS: "cpu"}, self._wish.budget_s / 4)
        return {name: value for name, value in settings.items() if name.upper() != PLATFORMS}


def with_lines(seen: Observation) -> Observation:
    """With the lines of the user's code that it names."""
    main = getattr(sys.modules["__main__"], "__file__", None)
    folders = [Path.cwd(), cells.folder(), *([Path(main).parent] if main else [])]
    with cells.written():
        return msgspec.structs.replace(seen, sources=lines_of(seen, folders))


def unseen(name: str, why: str) -> Observation:
    """Where a diagnosis came to nothing: the machine, and why no more."""
    return unobserved(Target(kind="script", name=name), why)


def report_of(seen: Observation, min_gain: float) -> Report:
    """What the checks say of it."""
    target = seen.target
    examined = ReportTarget(kind=target.kind, name=target.name, args=target.args)
    return diagnosed(seen, checks(), min_gain, examined)
