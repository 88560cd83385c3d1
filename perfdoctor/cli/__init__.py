"""The command line: parse, call, render, exit code; nothing else."""

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from perfdoctor import __version__
from perfdoctor.cli import bench, check, compare, env, explain, listing, report, schema, workload
from perfdoctor.cli.settings import settings
from perfdoctor.processes import Interrupted, ProcessGroups
from perfdoctor.schema.errors import NothingMeasured, UsageError, meant

USAGE, NO_VERDICT = 2, 3
"""Exit codes of what ends a command before it has an answer."""


class Commands(TyperGroup):
    """Names the nearest command for one that there is not."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command; a UsageError that says which may be meant."""
        name = args[0]
        if not (ctx.resilient_parsing or name.startswith("-") or name in self.commands):
            raise UsageError(f"there is no command {name!r}; {meant(name, self.commands)}")
        return super().resolve_command(ctx, args)


app = typer.Typer(
    name="perfdoctor",
    cls=Commands,
    help="Find why a JAX training run is slow, and prove it by measuring the fix.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("check")(check.command)
app.command("bench")(bench.command)
app.command("compare")(compare.command)
app.command("report")(report.command)
app.command("schema")(schema.command)
app.command("workload")(workload.command)
app.command("explain")(explain.command)
app.command("list")(listing.command)
app.command("env")(env.command)


def show_version(wanted: bool) -> None:
    """Print the version and leave."""
    if wanted:
        print(f"perfdoctor {__version__}")
        raise typer.Exit


SETTABLE = ("check", "bench", "compare", "report")
"""Commands whose options a project can set."""


@app.callback()
def options(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=show_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Find why a JAX training run is slow, and prove it by measuring the fix."""
    group = context.command
    assert isinstance(group, TyperGroup)
    names = {
        name: {each.name for each in group.commands[name].params if each.name and each.opts}
        for name in SETTABLE
    }
    context.default_map = settings(names)


def main() -> None:
    """The entry point of the `perfdoctor` command."""
    groups = ProcessGroups()
    try:
        with groups:
            app(obj=groups)
    except UsageError as error:
        print(f"perfdoctor: {error}", file=sys.stderr)
        sys.exit(USAGE)
    except NothingMeasured as error:
        print(f"perfdoctor: {error}", file=sys.stderr)
        sys.exit(NO_VERDICT)
    except BrokenPipeError:  # `perfdoctor list | head`: nobody reads on, which is no error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Interrupted:
        print("perfdoctor: interrupted; all that it had started has been stopped", file=sys.stderr)
        sys.exit(NO_VERDICT)
    finally:
        groups.close()
