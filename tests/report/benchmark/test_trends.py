from perfdoctor.report.benchmark.trends import render
from perfdoctor.schema.benchmark import LevelChange, Trend


def test_each_metric_has_a_plot_and_each_change_a_line() -> None:
    trend = Trend(
        metric="step_time",
        values=(5.0, 5.0, 6.0, 6.0),
        created=tuple(f"2026-01-0{day}T00:00:00Z" for day in range(1, 5)),
        commits=(None, None, "0123456789abcdef", None),
        changes=(LevelChange(index=2, ratio=1.2),),
    )
    assert render([trend]).splitlines() == [
        "",
        " step time            ▁▁██  4 results since 2026-01-01",
        "   +20.0% since 2026-01-03T00:00:00Z, commit 0123456789",
    ]
