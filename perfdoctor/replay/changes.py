"""What the host does beside a step without what a fix takes away."""

import msgspec

from perfdoctor.replay.conditions import Host
from perfdoctor.schema.capture import Conditions, growth
from perfdoctor.schema.fix import Scalar


def changed(host: Host, change: dict[str, Scalar]) -> Conditions:
    """The conditions with what a fix changes about the step; see `Change.step`."""
    conditions = host.as_observed
    for name, value in change.items():
        if name == "loading":
            conditions = loading_elsewhere(conditions, host, str(value))
        elif name == "waits":
            conditions = waiting_less(conditions, host.reading_ms, float(value or 0.0))
        elif name == "collecting":
            spared = 1 - float(value or 0.0)
            conditions = less_work(conditions, spared * host.collecting_ms)
        elif name == "handling":
            conditions = only(conditions, host.loading_share, host.awaiting_share)
        elif name == "sleeping":
            conditions = only(conditions, 1.0, float(value or 0.0))
        elif name == "restless":
            conditions = msgspec.structs.replace(conditions, restless=0, restless_threads=0)
        elif name == "program" and value == "together":
            conditions = by_one_thread(conditions)
        elif name == "program":
            of_loading = host.loading_share, host.awaiting_share, 1.0
            growing = of_loading if change.get("growing", 1) else (0.0, 0.0, 0.0)
            conditions = with_program(conditions, str(value), *growing)
        elif name in ("compiled", "growing"):
            continue  # a replayed program is compiled once, see `rare_ms`; for the other, above
        else:
            conditions = msgspec.convert(
                {**msgspec.to_builtins(conditions), name: value}, Conditions
            )
    return conditions


def rare_ms(host: Host, change: dict[str, Scalar]) -> float:
    """What is left of what is done now and then: collections are the most of it, if it is that, and
    nothing is compiled but once.
    """
    spared_ms = (1 - float(change.get("collecting", 1.0) or 0.0)) * host.rarely_collecting_ms
    spared_ms += host.compiling_ms if "compiled" in change else 0.0
    return max(0.0, host.rare_ms - spared_ms)


def with_program(
    conditions: Conditions,
    program: str,
    working_share: float,
    sleeping_share: float,
    beside_share: float,
) -> Conditions:
    """Larger batches take longer to load, by as much as they are larger.

    `working_share`, `sleeping_share`, `beside_share`: of what the host works, and sleeps, and of
    what other threads and processes work for the step, that which grows so.
    """
    more = growth(program) - 1
    times = only(conditions, 1 + working_share * more, 1 + sleeping_share * more)
    return msgspec.structs.replace(
        times,
        program=program,
        threads_ms=(1 + beside_share * more) * conditions.threads_ms,
        children_ms=(1 + beside_share * more) * conditions.children_ms,
    )


def by_one_thread(conditions: Conditions) -> Conditions:
    """The requests of all threads in one call; what the threads do besides stays to be done."""
    return msgspec.structs.replace(
        conditions,
        program="together",
        spin_ms=tuple(conditions.callers * each for each in conditions.spin_ms),
        sleep_ms=(),
        callers=1,
    )


def loading_elsewhere(conditions: Conditions, host: Host, where: str) -> Conditions:
    """`where`: thread, process, or nowhere, for what is loaded and prepared once for all.

    Other threads and processes that rest while the step stands still work for the step: they load.
    What threads do while they are waited for takes a core all the same, where nobody waits; and a
    step waits where what loads for it falls behind.
    """
    moved_ms = host.loading_share * conditions.work_ms
    slept_ms = sum(conditions.sleep_ms)
    unawaited_ms = max(conditions.threads_ms, host.threads_ms - slept_ms)
    awaited_ms = host.awaiting_share * slept_ms
    in_threads_ms = max(unawaited_ms, min(host.threads_ms, unawaited_ms + awaited_ms))
    threads_ms, children_ms = {
        "thread": (in_threads_ms + moved_ms, conditions.children_ms),
        "process": (0.0, conditions.children_ms + in_threads_ms + moved_ms),
        "nowhere": (0.0, 0.0),
    }[where]
    return msgspec.structs.replace(
        only(conditions, 1 - host.loading_share, 1 - host.awaiting_share),
        threads_ms=threads_ms,
        threads_set_pace=conditions.callers == 1,
        children_ms=children_ms,
        children_set_pace=conditions.callers == 1,
        children=0,
    )


def only(conditions: Conditions, working: float, sleeping: float) -> Conditions:
    """Of what the calling thread works, and of what it sleeps, this share is left."""
    return msgspec.structs.replace(
        conditions,
        spin_ms=tuple(working * each for each in conditions.spin_ms),
        sleep_ms=tuple(sleeping * each for each in conditions.sleep_ms),
        awaited_ms=sleeping * conditions.awaited_ms,
        overlap_ms=working * conditions.overlap_ms,
    )


def waiting_less(conditions: Conditions, reading_ms: float, waits: float) -> Conditions:
    """Results are read in so many of the steps, and worked on."""
    left = min(1.0, waits / conditions.waits) if conditions.waits > 0 else 1.0
    conditions = less_work(conditions, (1 - left) * reading_ms)
    return msgspec.structs.replace(conditions, waits=waits)


def less_work(conditions: Conditions, saved_ms: float) -> Conditions:
    """The conditions with so much less of the host's own work, wherever in the step it is done."""
    whole_ms = conditions.work_ms
    left = max(0.0, 1 - saved_ms / whole_ms) if whole_ms > 0 else 1.0
    return msgspec.structs.replace(
        conditions,
        spin_ms=tuple(left * each for each in conditions.spin_ms),
        overlap_ms=left * conditions.overlap_ms,
    )
