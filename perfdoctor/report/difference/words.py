"""What all renderers of a Difference say alike."""

from perfdoctor.report.words import gain_text
from perfdoctor.schema.difference import Difference, Side, Stayed
from perfdoctor.schema.report import Finding

NEARLY = 0.01
"""A difference in speed, relative, below which two runs are called equally fast."""
ALIKE_MS = 0.005
"""Parts of a step that are shorter on both sides are not told."""


def sentence(difference: Difference) -> str:
    """What changed, in one sentence."""
    counts = [
        (len(difference.gone), "gone"),
        (len(difference.new), "new"),
        (len(difference.stayed), "still there"),
        (len(difference.unclear), "that can't be told"),
    ]
    told = ", ".join(f"{causes(count)} {what}" for count, what in counts if count)
    return f"{told or 'no cause on either side'}; {speed(difference)}"


def causes(count: int) -> str:
    """1 cause, 2 causes."""
    return f"{count} cause{'s' * (count != 1)}"


def speed(difference: Difference) -> str:
    """How the two runs' throughput differs."""
    ratio = difference.speedup
    if ratio is None:
        return "how the speed changed is not known, since one of the runs measured no steps"
    if abs(ratio - 1) < NEARLY:
        return "the run is as fast as it was"
    return f"the run is {ratio:.2f}× as fast as it was (two single runs, so without an interval)"


def gone(finding: Finding) -> str:
    """A cause that is no more, and what its fix had promised."""
    promised = f"; its fix was to gain {gain_text(finding.gain)}" if finding.gain else ""
    return f"{finding.summary}{promised}"


def came(finding: Finding) -> str:
    """A cause that was not there."""
    return finding.summary + (f"; its fix gains {gain_text(finding.gain)}" if finding.gain else "")


def stayed(both: Stayed) -> str:
    """A cause that both have, and what its fix gains on each side."""
    old, new = gain_text(both.before.gain), gain_text(both.after.gain)
    gains = f"; its fix gains {new or 'not known'}, before {old or 'not known'}"
    return both.after.summary + (gains if old or new else "")


def groups(difference: Difference) -> list[tuple[str, str, str]]:
    """All causes: what became of each, its check, and what is to be said of it."""
    return [
        *(("gone", each.check, gone(each)) for each in difference.gone),
        *(("new", each.check, came(each)) for each in difference.new),
        *(("still there", each.after.check, stayed(each)) for each in difference.stayed),
        *(("can't be told", each.id, each.summary) for each in difference.unclear),
    ]


def title(side: Side) -> str:
    """One of the two, in a line."""
    target = " ".join([side.target.name, *side.target.args])
    name = side.name if side.target.kind == "observation" else f"{side.name} ({target})"
    return f"{name}, {side.created}"


def numbers(difference: Difference) -> list[tuple[str, str, str]]:
    """A step and its parts on both sides, in ms; empty where one of them measured no steps."""
    old, new = difference.before.steps, difference.after.steps
    if old is None or new is None:
        return []
    rows = [("a step, traced", old["time_ms"], new["time_ms"])]
    for key, name in (("untraced_ms", "a step"), ("alone_ms", "a step alone")):
        times = [side.get(key) for side in (old, new)]
        if all(isinstance(each, float) for each in times):
            rows.append((name, *times))  # type: ignore[arg-type]
    for name in dict.fromkeys([*old["parts_ms"], *new["parts_ms"]]):
        rows.append((name, old["parts_ms"].get(name, 0.0), new["parts_ms"].get(name, 0.0)))
    return [
        (name, f"{before:.2f} ms", f"{after:.2f} ms")
        for name, before, after in rows
        if max(before, after) >= ALIKE_MS
    ]
