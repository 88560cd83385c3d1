"""What other programs take of the cores, who they are, and what that costs."""

from perfdoctor import BusyProcess, Evidence, Fix, Gain, Load, spared
from perfdoctor_checks._limits import GOOD_PART, MOSTLY, SLIGHT


def rivals_cores(load: Load) -> float:
    """What others take all the time: a command that ended at once is no rival of a training run."""
    lasting = load.other_cores if load.lasting_cores is None else load.lasting_cores
    return min(load.other_cores, lasting)


def summary(load: Load, cores: float) -> str:
    """Who, and how much."""
    blamed = culprits(load)[:3]
    names = ", ".join(f"{each.name} ({each.pid}) {each.cores:.1f}" for each in blamed)
    text = f"others take {rivals_cores(load):.1f} of {cores:g} cores"
    text += f": {names}" if names else ""
    steal = f"; the hypervisor gives {load.steal_cores:.1f} cores to others"
    return text + (steal if load.steal_cores >= SLIGHT else "")


def culprits(load: Load) -> list[BusyProcess]:
    """The processes that take a good part of a core each, the busiest first; none where they don't
    take most of what others take: to stop one of many small ones would change nothing.
    """
    large = [each for each in load.others if each.cores >= GOOD_PART]
    return large if sum(each.cores for each in large) >= MOSTLY * load.other_cores else []


def why_nobody(load: Load) -> str:
    """Why no process is named that takes the time."""
    seen_cores = sum(each.cores for each in load.others)
    if seen_cores < MOSTLY * load.other_cores or load.steal_cores > load.other_cores:
        return "the processes that take the time can't be seen from here"
    return f"many processes take a little of it each, the largest {load.others[0].cores:.1f} cores"


def gain(load: Load, cores: float) -> Gain:
    """The share of the run that was lost to others, between half and all of what they took."""
    taken = (rivals_cores(load) + load.steal_cores) / cores
    own_cores = load.own_cores + load.steal_cores
    stolen = load.steal_cores / own_cores if own_cores > 0 else 0.0
    waited = taken if load.lost_share is None else load.lost_share + stolen
    lost = min(taken, waited)
    return spared(1.0, lost, lost / 2, taken)


def facts(load: Load) -> list[Evidence]:
    """What the finding rests on; what this machine does not tell is left out."""
    found: list[tuple[str, float | None, str, str]] = [
        ("training", load.own_cores, "cores", "CPU time of its processes"),
        ("others", load.other_cores, "cores", "/proc/stat"),
        ("steal", load.steal_cores, "cores", "/proc/stat"),
        ("threads ready without a core", load.lost_share, "share", "/proc/<pid>/task/*/schedstat"),
        ("CPU pressure", load.pressure_share, "share", "/proc/pressure/cpu"),
        ("load average", load.load_average, "", "getloadavg"),
    ]
    processes = [
        Evidence(each.name, round(each.cores, 2), "cores", f"pid {each.pid}")
        for each in load.others[:5]
    ]
    return processes + [
        Evidence(name, round(value, 3), unit, source)
        for name, value, unit, source in found
        if value is not None
    ]


def fix(load: Load) -> Fix:
    """What the user can do; a machine should do nothing by itself to other people's programs."""
    found = culprits(load)
    if not found or load.steal_cores > load.other_cores:
        return Fix(
            summary="move the training to a machine, or cores, of its own",
            how=f"ask for dedicated cores; {why_nobody(load)}",
        )
    busiest = found[0]
    return Fix(
        summary=f"stop {busiest.name}, or keep it off the training's cores",
        how=f"taskset -cp 0 {busiest.pid}  # or stop it: {busiest.command}",
    )
