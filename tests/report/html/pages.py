"""Reports whose pages show everything, much of it, or what harms."""

from collections.abc import Callable

from msgspec.structs import replace

from perfdoctor.catalogue import checks, chosen
from perfdoctor.doctor import diagnosed
from perfdoctor.report.html import report as html
from perfdoctor.schema.figures import (
    Excerpt,
    Lane,
    LayerShare,
    Mark,
    SourceLines,
    Span,
    Sweep,
    SweepPoint,
    TriedFix,
)
from perfdoctor.schema.fix import Fix, Gain
from perfdoctor.schema.report import CheckResult, Evidence, Finding, Report, ReportTarget
from tests.recorded import recorded
from tests.report.reports import REPORTS, measured

HOSTILE = (
    "<script>window.harmed = 1</script><img src=x onerror='window.harmed = 2'>"
    '"\'></pre></textarea></style><svg onload="window.harmed = 3"> {{ 7 * 191 }} {% raw %}'
    " &lt;b&gt; ]]> --> \u202efdp.exe\u2066 \x00\x07\x1b[31m\ud800 \u05d0\u05d1 ${window.harmed=4}"
)
MOST_BYTES = 1_500_000
FIXES = Gain(speedup=1.8, low=1.7, high=1.9, basis="measured")


def of_recording(name: str) -> Report:
    """The whole report of a recorded Observation."""
    target = ReportTarget(kind="observation", name=f"{name}.json", args=())
    return diagnosed(recorded(name), chosen(checks(), (), ()), 0.05, target)


def complete() -> Report:
    """With a plot of every kind."""
    points = [(16, 900.0), (32, 1500.0), (64, 1550.0)]
    sweeps = [
        Sweep(
            of=of,  # type: ignore[arg-type]
            name=name,
            points=tuple(
                SweepPoint(
                    setting=x,
                    samples_per_s=y,
                    low=0.95 * y,
                    high=1.05 * y,
                    is_observed=x == 16,
                    is_best=x == 32,
                )
                for x, y in points
            ),
        )
        for of, name in [("batch size", "batch size"), ("threads", "loader threads")]
    ]
    together = TriedFix(check="", how="all fixes together", gain=FIXES)
    found = of_recording("several_causes")
    return replace(found, sweeps=tuple(sweeps), tried=(*found.tried, together))


def hostile() -> Report:
    """Everything that is a text is meant to do harm."""
    excerpt = Excerpt(
        function=HOSTILE,
        first_step=1,
        window_steps=3,
        borders_ms=(0.0, 1.0, 2.0),
        lanes=(Lane(name=HOSTILE, kind="main", spans=(Span("gc", 0.0, 1.0),)),),
        marks=(Mark(kind="collection", start_ms=0.0, end_ms=1.0, text=HOSTILE),),
    )
    finding = Finding(
        check=HOSTILE,
        rank=1,
        summary=HOSTILE,
        evidence=(Evidence(HOSTILE, HOSTILE, HOSTILE, HOSTILE),),
        fix=Fix(summary=HOSTILE, how=HOSTILE),
        gain=FIXES,
    )
    lines = SourceLines(place=HOSTILE, file=HOSTILE, line=1, first_line=1, lines=(HOSTILE,))
    layer = LayerShare(name=HOSTILE, function=HOSTILE, place=HOSTILE, share=1.0, flops=1.0)
    base = measured()
    assert base.steps is not None
    return replace(
        base,
        perfdoctor=HOSTILE,
        created=HOSTILE,
        target=ReportTarget(kind="script", name=HOSTILE, args=(HOSTILE,)),
        environment={
            **base.environment,
            "os": HOSTILE,
            "cpu": HOSTILE,
            "backend": HOSTILE,
            "packages": {HOSTILE: HOSTILE},
            "variables": {HOSTILE: HOSTILE},
            "settings": {HOSTILE: HOSTILE},
        },
        steps={**base.steps, "not_replayed": HOSTILE, "function": HOSTILE},
        findings=(finding,),
        checks=(CheckResult(id=HOSTILE, outcome="crashed", summary=HOSTILE),),
        timeline=excerpt,
        tried=(TriedFix(check=HOSTILE, how=HOSTILE, gain=None, failure=HOSTILE),),
        layers=(layer,),
        sources=(lines,),
    )


def steps_of(count: int) -> Excerpt:
    """A timeline of so many steps of a millisecond each; one of them is a long one."""
    long = count // 3
    ends = [0.0]
    for index in range(count):
        ends.append(ends[-1] + (50.0 if index == long else 1.0))
    main = tuple(Span("etl", ends[i], ends[i] + 0.3) for i in range(count) if i != long)
    longest = Span("gc", ends[long], ends[long] + 49.0)
    device = tuple(Span("device", ends[i] + 0.4, ends[i] + 0.9) for i in range(count))
    return Excerpt(
        function="step",
        first_step=1,
        window_steps=count,
        borders_ms=tuple(ends),
        lanes=(
            Lane(name="main thread", kind="main", spans=(*main[:long], longest, *main[long:])),
            Lane(name="device", kind="device", spans=device),
        ),
        marks=(Mark(kind="outlier", start_ms=ends[long], end_ms=ends[long + 1], text="long"),),
    )


def large(findings: int, steps: int) -> Report:
    """So many of each."""
    base = complete()
    first = base.findings[0]
    many = tuple(
        replace(first, rank=rank, check=f"check-{rank}", summary=f"{rank}: {first.summary * 3}")
        for rank in range(1, findings + 1)
    )
    checked = tuple(
        CheckResult(id=each.check, outcome="issue", summary=each.summary) for each in many
    )
    return replace(base, findings=many, checks=checked, timeline=steps_of(steps))


def page(make: Callable[[], Report]) -> str:
    """As HTML."""
    return html.render(make())


SHOWN: dict[str, Callable[[], Report]] = {**REPORTS, "complete": complete, "hostile": hostile}
