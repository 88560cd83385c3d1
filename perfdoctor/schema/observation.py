"""The Observation: all that a check may know, as plain data.

A part that could not be measured is None, and `not_measured` says why.
"""

from typing import Literal

from msgspec import Struct

from perfdoctor.schema.calls import Alone, Eager, StepCalls
from perfdoctor.schema.figures import Excerpt, SourceLines
from perfdoctor.schema.fix import Tried
from perfdoctor.schema.iterations import Iterations
from perfdoctor.schema.memory import Memory
from perfdoctor.schema.parts import Parts
from perfdoctor.schema.program import Executable, Program, StepCost
from perfdoctor.schema.run import Compile, CompileCache, Failure, Garbage, Setting, Threads
from perfdoctor.schema.steps import Steps
from perfdoctor.schema.surroundings import Backend, Gpu, Host, Libraries, Load
from perfdoctor.schema.workload import Workload

OBSERVATION_SCHEMA = "perfdoctor.observation/1"
"""What stands in the key `schema` of a saved observation."""
OF_THE_RUN = (
    "settings",
    "compiles",
    "compile_cache",
    "steps",
    "garbage",
    "program",
    "executable",
    "cost",
    "messages",
    "calls",
    "load",
    "threads",
    "memory",
)
"""Parts of an Observation that only a run shows."""
TargetKind = Literal["reference", "workload", "script", "observation"]


class Target(Struct, frozen=True, kw_only=True):
    """What was observed."""

    kind: TargetKind
    name: str
    args: tuple[str, ...] = ()
    workload: Workload | None = None
    """Of our own loop: its choices."""
    parts: Parts | None = None
    """Of the user's workload object: what it is made of."""

    @property
    def runs_users_code(self) -> bool:
        """Whether it is a program of the user's, rather than our own loop."""
        return self.kind == "script" or self.parts is not None


class Observation(Struct, frozen=True, kw_only=True):
    """One bounded run of a target."""

    schema: Literal["perfdoctor.observation/1"]
    perfdoctor: str
    created: str
    target: Target
    host: Host
    gpus: tuple[Gpu, ...] = ()
    libraries: Libraries | None = None
    environment: dict[str, str] = {}
    """Environment variables in force that bear on performance."""
    set_in_code: tuple[str, ...] = ()
    """Those of them that the program's own code has set."""
    backend: Backend | None = None
    failure: Failure | None = None
    ended_s: float | None = None
    """Seconds that the run took, if it ended by itself; those in which we suspended it don't count.
    """
    settings: tuple[Setting, ...] | None = None
    compiles: tuple[Compile, ...] | None = None
    compile_cache: CompileCache | None = None
    steps: Steps | None = None
    iterations: Iterations | None = None
    """What a listener saw in place of `steps`."""
    timeline: Excerpt | None = None
    garbage: Garbage | None = None
    program: Program | None = None
    executable: Executable | None = None
    cost: StepCost | None = None
    """What the whole step costs, which may run more programs than `executable`."""
    messages: tuple[str, ...] | None = None
    """Warnings of JAX during the run that bear on performance (donation), each once."""
    calls: StepCalls | None = None
    alone: Alone | None = None
    eager: Eager | None = None
    """None: no part of it dispatches operation by operation for long, or it was not looked for."""
    load: Load | None = None
    threads: Threads | None = None
    memory: Memory | None = None
    tried: tuple[Tried, ...] = ()
    """The trials that followed the run; the best fix of each check stands first."""
    sources: tuple[SourceLines, ...] = ()
    """The user's lines that the parts name, with those around them."""
    not_measured: dict[str, str] = {}
    """Why a part is None; under `layers`, why those of the program are not all."""
