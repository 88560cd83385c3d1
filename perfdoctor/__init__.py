"""perfdoctor: why a JAX training run is slow, proved by measuring the fix.

All that a check, a plugin or a user's script may import, each name loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from perfdoctor.answers import (
        estimated,
        hint,
        issue,
        needed,
        not_applicable,
        not_measured,
        ok,
        place,
        shorten,
    )
    from perfdoctor.schema.fix import Change, Fix, Gain
    from perfdoctor.schema.observation import (
        Backend,
        Failure,
        Garbage,
        Host,
        Load,
        Observation,
        Program,
        Steps,
    )
    from perfdoctor.schema.report import Evidence, Outcome, Report
    from perfdoctor.schema.workload import Workload

__version__ = "0.1.0"

_HOMES = {
    "perfdoctor.answers": (
        "estimated",
        "hint",
        "issue",
        "needed",
        "not_applicable",
        "not_measured",
        "ok",
        "place",
        "shorten",
    ),
    "perfdoctor.schema.observation": (
        "Backend",
        "Failure",
        "Garbage",
        "Host",
        "Load",
        "Observation",
        "Program",
        "Steps",
    ),
    "perfdoctor.schema.fix": ("Change", "Fix", "Gain"),
    "perfdoctor.schema.report": ("Evidence", "Outcome", "Report"),
    "perfdoctor.schema.workload": ("Workload",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Backend",
    "Change",
    "Evidence",
    "Failure",
    "Fix",
    "Gain",
    "Garbage",
    "Host",
    "Load",
    "Observation",
    "Outcome",
    "Program",
    "Report",
    "Steps",
    "Workload",
    "__version__",
    "estimated",
    "hint",
    "issue",
    "needed",
    "not_applicable",
    "not_measured",
    "ok",
    "place",
    "shorten",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
