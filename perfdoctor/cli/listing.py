"""`perfdoctor list`."""

import sys

from perfdoctor.cli.output import output_width


def command() -> None:
    """List the checks: what each finds, what it needs of an observation, and if it applies here."""
    from perfdoctor.catalogue import checks
    from perfdoctor.observe.machine import unobserved
    from perfdoctor.report.catalogue import table

    machine = unobserved()
    rows = []
    for check in checks():
        outcome = check(machine)
        no = outcome.kind in ("not-applicable", "crashed")
        rows.append((check.id, check.title, check.needs, f"no: {outcome.summary}" if no else "yes"))
    width = output_width() if sys.stdout.isatty() else sys.maxsize  # grep takes whole lines
    sys.stdout.write(table(rows, width))
