"""How changes are measured on the loop of a user's workload object, which is ours to change."""

from collections.abc import Callable
from functools import partial

from perfdoctor.schema.capture import batch_asked
from perfdoctor.schema.fix import Change, Scalar
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.parts import Parts
from perfdoctor.trials.way import Play, Way

BESIDE_THE_LOOP = ("env", "settings", "gc_freeze", "gc_skip_collect", "cores")
"""What else of a change can be made: about its process."""
SLIGHT = 0.05
"""Of a step."""
PlayOn = Callable[[Change, Change, float], list[float]]
"""As `Play`, with a change that is made on both sides before the one that is measured."""


def on_the_object(play: PlayOn, parts: Parts, seen: Observation) -> Way:
    """The way to measure what makes its steps faster."""
    works = works_on_results(seen)

    def can(change: Change) -> bool:
        if change.workload or change.folders or change.speeds_up != "steps":
            return False
        stays = not change.env.keys() & set(seen.set_in_code)
        beside = any(getattr(change, each) for each in BESIDE_THE_LOOP)
        step = dict(change.step)
        if beside and parts.is_jitted:
            step.pop("jitted", None)  # where jit was switched off, it is jitted with it on
        whole = all(is_makeable(name, value, parts) for name, value in step.items())
        reads_less = works and "waits" in step  # what is done with what is read would stay
        return stays and whole and not reads_less and (beside or bool(step))

    def after(base: Change) -> Play:
        return partial(play, base)

    return Way(partial(play, Change()), can, after=after, gives_way=True)


def works_on_results(seen: Observation) -> bool:
    """Whether the program does a good deal with the results that it waits for."""
    steps = seen.steps
    return steps is not None and steps.reading_ms > SLIGHT * steps.time_ms


def is_makeable(name: str, value: Scalar, parts: Parts) -> bool:
    """Whether the loop can do what the change says about the step; see `Change.step`."""
    match name:
        case "waits" | "donated" | "collecting":
            return True
        case "loading":
            return value in ("thread", "nowhere")
        case "resident":
            return value == "state" and parts.hands_over_again
        case "jitted":
            return not parts.is_jitted
        case "program":
            is_size = parts.takes_batch_size and batch_asked(str(value)) is not None
            return is_size or value in ("float32", "no-callbacks")
    return False
