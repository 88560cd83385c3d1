"""Saves a step of which nobody has the values any more: a program that has ended has none left."""

from collections.abc import Hashable
from typing import Any

from msgspec.structs import replace

from perfdoctor.injection.calls import Function
from perfdoctor.observe.agent.callers import is_same
from perfdoctor.observe.agent.capture import Capturer
from perfdoctor.observe.agent.refusal import Unwanted
from perfdoctor.observe.agent.roles import Probe
from perfdoctor.observe.agent.shapes import Shapes
from perfdoctor.observe.agent.values import room_bytes


def save_made_up(capturer: Capturer, shapes: Shapes, probe: Probe) -> None:
    """Save a step with values that are made up; Unwanted where that can't be."""
    calls = [noted(shapes, key) for key in probe.keys]
    if shapes.size_bytes(calls) > room_bytes(capturer.folder):
        raise Unwanted("its arguments take too much memory")
    for function, found in calls:
        args, kwargs = shapes.made_up(found)
        capturer.save(function, args, kwargs)
    if capturer.capture is not None:
        made = [leaf.argument for call in probe.calls for leaf in call.leaves if leaf.shape]
        capturer.capture = replace(capturer.capture, made=tuple(made))


def noted(shapes: Shapes, key: Hashable) -> tuple[Function, Any]:
    """The call of a step's function, by what that is known again by; Unwanted."""
    for found in shapes.noted:
        if is_same(found[0], key):
            return found
    raise Unwanted("what a call of its step takes could not be seen")
