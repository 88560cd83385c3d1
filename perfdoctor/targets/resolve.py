"""From the TARGET of the command line to what is examined."""

from collections.abc import Sequence
from pathlib import Path

from perfdoctor.files import read_saved
from perfdoctor.schema.errors import UsageError
from perfdoctor.schema.observation import OBSERVATION_SCHEMA, Observation, Target
from perfdoctor.schema.workload import Workload
from perfdoctor.targets import script, workload
from perfdoctor.targets.named import is_named, named
from perfdoctor.targets.requirements import demand_jax, demand_reference

KNOWN = (
    "expected nothing (the reference loop), a workload file (.toml), a script (.py), -m MODULE, a "
    "workload object (package.module:name), or an observation (.json)"
)
"""What a TARGET may be, for messages."""


def resolve(
    name: str | None, module: str | None = None, arguments: Sequence[str] = ()
) -> Target | Observation:
    """A target to run, or an Observation that was saved; a UsageError for anything else."""
    if not str(name).endswith(".json"):
        demand_jax()
    if module is not None:
        first = [] if name is None else [name]
        return script.module(module, [*first, *arguments])
    if name is None:
        demand_reference()
        return Target(kind="reference", name="reference", workload=Workload())
    if is_named(name):
        if arguments:
            raise UsageError(f"{name} takes no arguments; only a script does")
        return named(name)
    file = Path(name)
    if file.is_dir():
        raise UsageError(f"{name} is a directory; {KNOWN}")
    if file.suffix == ".py":
        return script.script(file, arguments)
    if file.suffix not in (".toml", ".json"):
        raise UsageError(f"{name} can't be examined; {KNOWN}")
    if not file.exists():
        raise UsageError(f"{name}: no such file; {KNOWN}")
    if arguments:
        raise UsageError(f"{name} takes no arguments; only a script does")
    if file.suffix == ".json":
        return read_observation(file)
    demand_reference()
    return Target(kind="workload", name=name, workload=workload.read(file))


def is_script(name: str | None, module: str | None) -> bool:
    """Whether the target is a user's program."""
    return module is not None or str(name).endswith(".py")


def read_observation(file: Path) -> Observation:
    """A saved Observation."""
    return read_saved(file, Observation, OBSERVATION_SCHEMA, "observation")
