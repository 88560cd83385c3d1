"""From package.module:name to the parts of a workload; what is none is refused in a sentence."""

import inspect
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from perfdoctor.schema.errors import meant

FORMS = {"init": "init()", "step": "step(state, batch)", "batches": "batches()"}
"""The methods that a workload must have, and how they are called."""
EXPECTED = (
    "expected an object, or a function that makes one, with init() -> state, "
    "step(state, batch) -> (state, metrics) and batches() -> iterator"
)
"""What is said of an object that is no workload."""
INFER = "infer"
"""The method that a workload of inference has instead of a step."""
LOG_EVERY = 50
"""Steps between readings of the metrics, if the workload does not say: as a loop that logs."""


class Refused(Exception):
    """It is no workload; the message says why, as a sentence for the user."""


@dataclass(frozen=True)
class Given:
    """The user's workload."""

    name: str
    init: Callable[[], Any]
    step: Callable[[Any, Any], Any]
    batches: Callable[..., Iterable[Any]]
    batch_size: int | None
    takes_batch_size: bool
    log_every: int
    """Steps between readings of the metrics; 0: never."""


def given(name: str) -> Given:
    """The workload package.module:name.

    `package.module:name.infer` is its inference: each step is a call of infer(state, batch).

    Raises:
        Refused: there is none of this name, or it lacks a part.
    """
    module_name, _, path = name.partition(":")
    names = path.split(".")
    infers = len(names) > 1 and names[-1] == INFER
    module = imported(name, module_name)
    workload = made(value_of(module, names[:-1] if infers else names, name))
    needed = {**FORMS, "step": "infer(state, batch)"} if infers else FORMS
    parts = {part: part_of(workload, form, name) for part, form in needed.items()}
    batches = parts["batches"]
    return Given(
        name=name,
        init=parts["init"],
        step=inferring(parts["step"]) if infers else parts["step"],
        batches=batches,
        batch_size=number_of(workload, "batch_size", 1, name),
        takes_batch_size="batch_size" in parameters(batches),
        log_every=logging_of(workload, name),
    )


def logging_of(workload: Any, name: str) -> int:
    """After how many steps the metrics are to be read."""
    every = number_of(workload, "log_every", 0, name)
    return LOG_EVERY if every is None else every


def imported(name: str, module_name: str) -> Any:
    """The module, from the working directory if it lies there, as `python -m` would find it.

    What its own code raises is the user's to see.
    """
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name != missing and not module_name.startswith(f"{missing}."):
            raise  # something that it imports itself
        raise Refused(
            f"{name}: there is no module {missing!r} here; run perfdoctor in the folder that holds "
            "it, or install it"
        ) from None


def value_of(module: Any, names: list[str], name: str) -> Any:
    """What stands behind the colon."""
    value, owner = module, module.__name__
    for each in names:
        if not hasattr(value, each):
            known = [one for one in vars(module) if not one.startswith("_")]
            hint = f"; {meant(each, known)}" if value is module and known else ""
            raise Refused(f"{name}: {owner} has no {each!r}{hint}")
        value, owner = getattr(value, each), f"{owner}.{each}"
    return value


def made(value: Any) -> Any:
    """The workload itself, of a class or a function without arguments that makes it."""
    is_factory = inspect.isclass(value) or (callable(value) and not has_parts(value))
    if not is_factory:
        return value
    what = getattr(value, "__name__", type(value).__name__)
    check_call(value, (), f"{what} can't be called as {what}()")
    workload = value()
    if not has_parts(workload):
        raise Refused(f"{what}() gave {a(workload)}, which is no workload; {EXPECTED}")
    return workload


def has_parts(value: Any) -> bool:
    """Whether it has any part of a workload."""
    return any(hasattr(value, part) for part in (*FORMS, INFER))


def part_of(workload: Any, form: str, name: str) -> Any:
    """One of its functions, which can be called as `form` says."""
    part, _, arguments = form.partition("(")
    function = getattr(workload, part, None)
    if not callable(function):
        lacks = f"without {form}" if function is None else f"whose {part} can't be called"
        raise Refused(f"{name} is {a(workload)} {lacks}; {EXPECTED}")
    values = () if arguments == ")" else (None,) * len(arguments.split(","))
    check_call(function, values, f"{name}: its {part} can't be called as {form}")
    return function


def check_call(function: Any, values: tuple[Any, ...], otherwise: str) -> None:
    """Refuse a function that does not take so many arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of some that are written in C it is not known
        return
    try:
        signature.bind(*values)
    except TypeError as error:
        raise Refused(f"{otherwise}: {error}") from None


def parameters(function: Any) -> tuple[str, ...]:
    """The names of a function's parameters, as far as they are known."""
    try:
        return tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return ()


def number_of(workload: Any, attribute: str, least: int, name: str) -> int | None:
    """An attribute that is an integer of at least so much, if there is one; None if not."""
    value = getattr(workload, attribute, None)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise Refused(f"{name}: {attribute} is {value!r}; expected an integer from {least} on")
    return value


def inferring(infer: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A step that leaves the state as it is, and gives the answers as its metrics."""

    def step(state: Any, batch: Any) -> tuple[Any, Any]:
        return state, infer(state, batch)

    return step


def a(value: Any) -> str:
    """A value by its type: a dict, an int."""
    if value is None:
        return "None"
    kind = type(value).__name__
    return f"{'an' if kind[:1].lower() in 'aeiou' else 'a'} {kind}"
