"""Finds the checks, through the entry points of the group `perfdoctor.checks`."""

import difflib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from types import ModuleType

from perfdoctor.schema.errors import NothingMeasured, UsageError
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.report import Evidence, Outcome

GROUP = "perfdoctor.checks"
OURS = "perfdoctor"


def nothing_here(observation: Observation) -> Sequence[Evidence]:
    """Of a check that says nothing of a machine by itself."""
    return ()


@dataclass(frozen=True)
class Check:
    """One cause of slowness, and the function that looks for it."""

    id: str
    needs: tuple[str, ...]
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
                if getattr(observation, part) is None:
                    why = observation.not_measured.get(part, f"the observation has no {part}")
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
    """The catalogue, in alphabetical order; what can't be used is in it by its own name."""
    found: dict[str, tuple[Check, str]] = {}
    for check, origin in candidates():
        if check.id in found:
            first = found[check.id][1]
            check = unusable(origin, f"there is a check named {check.id!r} already, in {first}")
        found[check.id] = (check, origin)
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
    """The checks that were asked for; a UsageError for an id that there is not."""
    for name in (*select, *ignore):
        find(every, name)
    return [c for c in every if (not select or c.id in select) and c.id not in ignore]


def find(every: list[Check], name: str) -> Check:
    """The check with this id."""
    for check in every:
        if check.id == name:
            return check
    ids = [check.id for check in every]
    nearest = difflib.get_close_matches(name, ids, n=1, cutoff=0.4)
    meant = f"did you mean {nearest[0]}?" if nearest else f"known: {', '.join(ids)}"
    raise UsageError(f"there is no check {name!r}; {meant}")
