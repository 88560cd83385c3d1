"""Events and threads of a profile, made up."""

from types import SimpleNamespace

from perfdoctor.observe.digest.events import Thread, thread_of


def event(name: str, start: int, end: int, **stats: object) -> SimpleNamespace:
    return SimpleNamespace(name=name, start_ns=start, duration_ns=end - start, stats=stats.items())


def thread(*events: tuple[str, int, int]) -> Thread:
    """Of the names, begins and ends of its events."""
    return thread_of([event(*each) for each in events], 0)
