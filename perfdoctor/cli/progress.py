"""Says on stderr what is being measured, and how much of the budget is left."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(budget_s: float, *, beside_output: bool = False) -> Iterator[Callable[[str], None]]:
    """Yields a function that names the current work; silent where stderr is no terminal.

    `beside_output`: a script writes there too, so that each text gets a line of its own.
    """
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    if beside_output:
        yield lambda text: print(f"perfdoctor: {text}", file=sys.stderr, flush=True)
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        TextColumn(f"of {budget_s:.0f} s at most"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task("starting")
        yield lambda text: display.update(task, description=text)
