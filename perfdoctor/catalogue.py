"""Finds the checks, through the entry points of the group `perfdoctor.checks`."""

import difflib
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module, metadata
from types import ModuleType

from perfdoctor.schema.errors import NothingMeasured, UsageError
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.report import Outcome

GROUP = "perfdoctor.checks"


@dataclass(frozen=True)
class Check:
    """One cause of slowness, and the function that looks for it."""

    id: str
    needs: tuple[str, ...]
    documentation: str
    look: Callable[[Observation], Outcome]

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


def checks() -> list[Check]:
    """The catalogue, in alphabetical order; a UsageError if two checks have the same id."""
    found: dict[str, tuple[Check, str]] = {}
    for module in modules():
        check = check_of(module)
        if check.id in found:
            raise UsageError(
                f"two checks are named {check.id!r}: {found[check.id][1]} and {module.__name__}; "
                "uninstall one of them"
            )
        found[check.id] = (check, module.__name__)
    return [found[name][0] for name in sorted(found)]


def modules() -> Iterator[ModuleType]:
    """Each entry point is a module that is a check, or a package of such modules."""
    for entry in metadata.entry_points(group=GROUP):
        module = imported(entry.value)
        if not hasattr(module, "__path__"):
            yield module
            continue
        for each in pkgutil.iter_modules(module.__path__):
            if not each.name.startswith("_"):
                yield imported(f"{module.__name__}.{each.name}")


def imported(name: str) -> ModuleType:
    """A module of checks; a UsageError that names it if it can't be imported."""
    try:
        return import_module(name)
    except Exception as error:
        raise UsageError(f"the checks in {name} can't be imported: {error}") from None


def check_of(module: ModuleType) -> Check:
    """The check that a module is; a UsageError that names the module if it is none."""
    try:
        return Check(module.ID, tuple(module.NEEDS), module.__doc__ or "", module.check)
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
