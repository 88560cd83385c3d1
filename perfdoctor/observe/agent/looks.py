"""What looks at the main thread's stack tell of the functions that are called again and again."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from types import CodeType

from perfdoctor.schema.calls import MOSTLY, Eager
from perfdoctor.schema.run import Place

LEAST_IN_JAX = 0.25
"""The share of the looks at which the main thread must be in operations of jax: with less, hardly
any time is lost by dispatching them."""
FEWEST_CALLS = 3
"""Calls of one function by which it is timed."""
LOOKS_A_CALL = 1.5
"""Looks that a call lasts at least: else calls may begin and end between two looks, so that their
number is not known. With 1.6 looks a call, 93 % of calls of 3.7 ms were counted."""
SOME_READ = 0.005
"""The share of the looks at elements of arrays at which values are read: they are taken out to be
read. Taking one out is a dispatch of 30 microseconds, and reading it takes less: of a loop of
int(x[n]), 5 to 14 % of the looks on idle cores; on busy ones 3 to 12 %, and once less than 2 %."""
Line = tuple[str, str, int]
"""Function, file and line."""


@dataclass
class Looks:
    """What was seen of the main thread's stack."""

    count: int = 0
    in_jax: int = 0
    """Looks at which it was in an operation of jax."""
    tracing: int = 0
    """Looks at which jax traced or compiled something."""
    within: Counter[CodeType] = field(default_factory=Counter)
    """By function: looks at which a call of it was on the stack."""
    at_work: Counter[CodeType] = field(default_factory=Counter)
    """Of these, those at which it was in an operation of jax."""
    anew: Counter[CodeType] = field(default_factory=Counter)
    """By function: calls of it that began since the first look."""
    depth: dict[CodeType, int] = field(default_factory=dict)
    """By function: the smallest depth at which it was seen, from outside."""
    elements: Counter[Line] = field(default_factory=Counter)
    """By line: looks at which it took an element out of an array of jax, or read one."""
    reading: Counter[Line] = field(default_factory=Counter)
    """Of these, those at which it made a number of Python of one."""
    passed_s: float = 0.0
    """From the first to the last."""

    @property
    def in_jax_share(self) -> float:
        """Of the looks, those at which the main thread was in an operation of jax."""
        return self.in_jax / self.count if self.count else 0.0


def steps_of(looks: Looks) -> list[CodeType]:
    """The functions that are called again and again, long enough to be seen, and that do not wait
    for something else most of the time; the outermost first, which holds the others.
    """
    return called_again(looks, lambda code: looks.within[code] >= LOOKS_A_CALL * looks.anew[code])


def short_steps_of(looks: Looks) -> list[CodeType]:
    """The same of functions in which most of the time passes, whose calls may be too short for
    looks that are so far from each other.
    """
    return called_again(looks, lambda code: looks.within[code] >= MOSTLY * looks.count)


def called_again(looks: Looks, may_be: Callable[[CodeType], bool]) -> list[CodeType]:
    """Those of the functions that may be the step which are called often, and are at work."""
    often = [code for code, count in looks.anew.items() if count >= FEWEST_CALLS]
    at_work = [code for code in often if looks.at_work[code] >= LEAST_IN_JAX * looks.within[code]]
    return outermost_first(looks, filter(may_be, at_work))


def outermost_first(looks: Looks, codes: Iterable[CodeType]) -> list[CodeType]:
    """Functions by how deep they were seen, without comprehensions."""
    named = [code for code in codes if not code.co_name.startswith("<")]
    return sorted(named, key=lambda code: looks.depth[code])


def eager_of(code: CodeType, looks: Looks) -> Eager:
    """What the looks tell of a function."""
    share = looks.within[code] / looks.count
    return Eager(
        function=code.co_qualname,
        file=code.co_filename,
        line=code.co_firstlineno,
        call_ms=share * looks.passed_s / looks.anew[code] * 1e3,
        share=share,
    )


def reads_of(*series: Looks) -> Place | None:
    """Where arrays are read element by element, and how much of all looks that is: the function
    that does most of it, and its busiest line.
    """
    elements = sum((looks.elements for looks in series), Counter[Line]())
    functions: Counter[tuple[str, str]] = Counter()
    reading: Counter[tuple[str, str]] = Counter()
    for (function, file, line), count in elements.items():
        functions[function, file] += count
        reading[function, file] += sum(looks.reading[function, file, line] for looks in series)
    if not functions:
        return None
    place, count = functions.most_common(1)[0]
    taken = count - reading[place]
    if reading[place] < SOME_READ * count or taken < reading[place]:  # or it waits for one result
        return None
    lines = {line: n for line, n in elements.items() if line[:2] == place}
    function, file, line = max(lines, key=lambda each: lines[each])
    return Place(
        function=function, file=file, line=line, share=count / sum(looks.count for looks in series)
    )
