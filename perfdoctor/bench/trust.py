"""Why the numbers of a benchmark can't be trusted, in words."""

from collections.abc import Sequence

from perfdoctor.schema.benchmark import LaunchRecord, Metric

FEWEST_LAUNCHES, FEWEST_STEPS = 3, 20
"""Launches, and steps of each, with fewer of which the numbers say little."""
BUSY_CORES = 0.2
"""Cores that other programs keep busy, from which on they slow a step that uses all cores by as
much as a gate is to see."""
WIDE = 0.1
"""Half the width of the step time's interval, as a share of it, from which on the user is
warned."""


def warnings(launches: Sequence[LaunchRecord], step_time: Metric | None) -> tuple[str, ...]:
    """Each a sentence; none if all is well."""
    count = len(launches)
    found = []
    if count < FEWEST_LAUNCHES:
        launched = "launch was" if count == 1 else "launches were"
        found.append(f"only {count} {launched} measured; a longer --budget allows more")
    if (unsteady := sum(not launch.steady for launch in launches)) > 0:
        found.append(f"{unsteady} of {count} launches never got steady")
    if any(launch.steps < FEWEST_STEPS for launch in launches):
        fewest = min(launch.steps for launch in launches)
        found.append(f"a launch made only {fewest} steps while it was timed")
    if count and (cores := sum(launch.other_cores for launch in launches) / count) > BUSY_CORES:
        found.append(f"other programs kept {cores:.1f} cores busy meanwhile")
    if any(launch.throttled_ms > 0 for launch in launches):
        found.append("the CPU quota of this container held the steps back")
    if step_time is not None and step_time.low is not None and step_time.high is not None:
        half = (step_time.high - step_time.low) / 2 / step_time.value
        if half > WIDE:
            found.append(f"launches differ, so that the step time is known to ±{half:.0%} only")
    return tuple(found)
