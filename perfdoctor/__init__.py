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
        of_host_work,
        ok,
        on_accelerator,
        on_cpu,
        place,
        set_variables,
        shorten,
        sized,
        spared,
        traced,
    )
    from perfdoctor.diagnosis import Diagnosis, diagnose
    from perfdoctor.listener import PerformanceListener
    from perfdoctor.schema.calls import (
        Alone,
        Call,
        Eager,
        Leaf,
        Restless,
        StepCalls,
        shared_lengths,
    )
    from perfdoctor.schema.fix import Change, Fix, Gain, Scalar
    from perfdoctor.schema.iterations import Iterations
    from perfdoctor.schema.memory import DeviceMemory, LiveArrays, Memory, MemorySample
    from perfdoctor.schema.observation import Observation, Target
    from perfdoctor.schema.program import (
        Argument,
        Callback,
        Executable,
        Layer,
        Loop,
        Program,
        Table,
        bytes_of,
    )
    from perfdoctor.schema.report import Evidence, Outcome, Report
    from perfdoctor.schema.run import (
        Compile,
        CompileCache,
        Failure,
        Garbage,
        Place,
        Setting,
        Threads,
    )
    from perfdoctor.schema.steps import Steps
    from perfdoctor.schema.surroundings import (
        Backend,
        BusyProcess,
        Gpu,
        GpuLibrary,
        Host,
        Load,
    )
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
        "of_host_work",
        "ok",
        "on_accelerator",
        "on_cpu",
        "place",
        "set_variables",
        "shorten",
        "sized",
        "spared",
        "traced",
    ),
    "perfdoctor.diagnosis": ("Diagnosis", "diagnose"),
    "perfdoctor.listener": ("PerformanceListener",),
    "perfdoctor.schema.calls": (
        "Alone",
        "Call",
        "Eager",
        "Leaf",
        "Restless",
        "StepCalls",
        "shared_lengths",
    ),
    "perfdoctor.schema.fix": ("Change", "Fix", "Gain", "Scalar"),
    "perfdoctor.schema.iterations": ("Iterations",),
    "perfdoctor.schema.memory": ("DeviceMemory", "LiveArrays", "Memory", "MemorySample"),
    "perfdoctor.schema.observation": ("Observation", "Target"),
    "perfdoctor.schema.program": (
        "Argument",
        "Callback",
        "Executable",
        "Layer",
        "Loop",
        "Program",
        "Table",
        "bytes_of",
    ),
    "perfdoctor.schema.report": ("Evidence", "Outcome", "Report"),
    "perfdoctor.schema.run": (
        "Compile",
        "CompileCache",
        "Failure",
        "Garbage",
        "Place",
        "Setting",
        "Threads",
    ),
    "perfdoctor.schema.steps": ("Steps",),
    "perfdoctor.schema.surroundings": (
        "Backend",
        "BusyProcess",
        "Gpu",
        "GpuLibrary",
        "Host",
        "Load",
    ),
    "perfdoctor.schema.workload": ("Workload",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Alone",
    "Argument",
    "Backend",
    "BusyProcess",
    "Call",
    "Callback",
    "Change",
    "Compile",
    "CompileCache",
    "DeviceMemory",
    "Diagnosis",
    "Eager",
    "Evidence",
    "Executable",
    "Failure",
    "Fix",
    "Gain",
    "Garbage",
    "Gpu",
    "GpuLibrary",
    "Host",
    "Iterations",
    "Layer",
    "Leaf",
    "LiveArrays",
    "Load",
    "Loop",
    "Memory",
    "MemorySample",
    "Observation",
    "Outcome",
    "PerformanceListener",
    "Place",
    "Program",
    "Report",
    "Restless",
    "Scalar",
    "Setting",
    "StepCalls",
    "Steps",
    "Table",
    "Target",
    "Threads",
    "Workload",
    "__version__",
    "bytes_of",
    "diagnose",
    "estimated",
    "hint",
    "issue",
    "needed",
    "not_applicable",
    "not_measured",
    "of_host_work",
    "ok",
    "on_accelerator",
    "on_cpu",
    "place",
    "set_variables",
    "shared_lengths",
    "shorten",
    "sized",
    "spared",
    "traced",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
