"""Finds the checks, through the entry points of the group `perfdoctor.checks`."""

import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from types import ModuleType

from perfdoctor.schema.errors import NothingMeasured, UsageError, meant
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.report import Evidence, Outcome

GROUP = "perfdoctor.checks"
"""The group of entry points by which packages offer checks."""
OURS = "perfdoctor"
"""The distribution whose checks come first, so that no other package can replace one of them."""
NO_CHECKS = (
    "no checks are installed: Python finds no package metadata of perfdoctor; install it again: "
    "pip install --force-reinstall --no-deps perfdoctor"
)
"""What is said where no entry point is found at all, not even perfdoctor's own."""


def nothing_here(observation: Observation) -> Sequence[Evidence]:
    """No facts: what a check has that says nothing of a machine without a run."""
    return ()


@dataclass(frozen=True)
class Check:
    """One cause of slowness, and the function that looks for it."""

    id: str
    needs: tuple[str, ...]
    """Parts of an Observation; of those with `|` between them, one."""
    documentation: str
    look: Callable[[Observation], Outcome]
    here: Callable[[Observation], Sequence[Evidence]] = nothing_here
    """What of a machine bears on the cause, without a run."""

    @property
    def title(self) -> str:
        """The first line of the documentation."""
        return self.documentation.strip().partition("\n")[0]

    def __call__(self, observation: Observation) -> Outcome:
        """The outcome; a missing part or a fault of the check is one too."""
        try:
            for part in self.needs:
                parts = part.split("|")
                if all(getattr(observation, each) is None for each in parts):
                    why = observation.not_measured.get(
                        parts[0], f"the observation has no {parts[0]}"
                    )
                    return Outcome(kind="not-measured", summary=why)
            outcome = self.look(observation)
            if not isinstance(outcome, Outcome):
                raise TypeError(f"the check answered {outcome!r}, not an Outcome")
            return outcome
        except NothingMeasured as missing:
            return Outcome(kind="not-measured", summary=str(missing))
        except Exception as error:
            return Outcome(kind="crashed", summary=f"{type(error).__name__}: {error}")


def unusable(name: str, why: str) -> Check:
    """Stands for what was to be a check and can't be used: it is reported, and the rest goes on."""
    return Check(name, (), f"Unusable: {why}", lambda _: Outcome(kind="crashed", summary=why))


def checks() -> list[Check]:
    """The catalogue, in alphabetical order; what can't be used is in it by its own name.

    Raises:
        NothingMeasured: there is none, since the package's metadata is missing.
    """
    found: dict[str, tuple[Check, str]] = {}
    for check, origin in candidates():
        if check.id in found:
            first = found[check.id][1]
            check = unusable(origin, f"there is a check named {check.id!r} already, in {first}")
        found[check.id] = (check, origin)
    if not found:
        raise NothingMeasured(NO_CHECKS)
    return [found[name][0] for name in sorted(found)]


def candidates() -> Iterator[tuple[Check, str]]:
    """Each check with the name of its module, ours first.

    An entry point is a module that is a check, or a package of such modules.
    """
    entries = metadata.entry_points(group=GROUP)
    for entry in sorted(entries, key=lambda entry: (not is_ours(entry), entry.value)):
        for name in modules(entry.value):
            yield candidate(name), name


def is_ours(entry: metadata.EntryPoint) -> bool:
    """Whether an entry point is perfdoctor's own."""
    return entry.dist is not None and entry.dist.name == OURS


def modules(name: str) -> list[str]:
    """The modules of checks in a package; the module itself if it is none."""
    try:
        path = getattr(import_module(name), "__path__", None)
    except Exception:
        return [name]  # the same error is reported when it is imported as a check
    if path is None:
        return [name]
    return [
        f"{name}.{each.name}"
        for each in pkgutil.iter_modules(path)
        if not each.name.startswith("_")
    ]


def candidate(name: str) -> Check:
    """The check in a module, or what stands for it if there is none that can be used."""
    try:
        return check_of(import_module(name))
    except UsageError as error:
        return unusable(name, str(error))
    except Exception as error:
        return unusable(name, f"{name} can't be imported: {type(error).__name__}: {error}")


def check_of(module: ModuleType) -> Check:
    """The check that a module is; a UsageError that names the module if it is none."""
    try:
        return Check(
            module.ID,
            tuple(module.NEEDS),
            module.__doc__ or "",
            module.check,
            getattr(module, "here", nothing_here),
        )
    except AttributeError as error:
        raise UsageError(f"{module.__name__} is no check: {error}") from None


def chosen(every: list[Check], select: Sequence[str], ignore: Sequence[str]) -> list[Check]:
    """The checks that were asked for.

    Raises:
        UsageError: there is no check with one of these ids, or none is left.
    """
    for name in (*select, *ignore):
        find(every, name)
    found = [c for c in every if (not select or c.id in select) and c.id not in ignore]
    if not found:
        raise UsageError("no check is left: --ignore names all that are selected")
    return found


def find(every: list[Check], name: str) -> Check:
    """The check with this id."""
    for check in every:
        if check.id == name:
            return check
    raise UsageError(f"there is no check {name!r}; {meant(name, (check.id for check in every))}")
