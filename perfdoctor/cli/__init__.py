"""The command line: parse, call, render, exit code; nothing else."""

import os
import sys

import typer
from typer.core import TyperGroup

from perfdoctor import __version__
from perfdoctor.cli import bench, check, compare, env, explain, listing
from perfdoctor.cli.settings import settings
from perfdoctor.processes import Interrupted, Ward
from perfdoctor.schema.errors import NothingMeasured, UsageError

USAGE, NO_VERDICT = 2, 3

app = typer.Typer(
    name="perfdoctor",
    help="Find why a JAX training run is slow, and prove it by measuring the fix.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("check")(check.command)
app.command("bench")(bench.command)
app.command("compare")(compare.command)
app.command("explain")(explain.command)
app.command("list")(listing.command)
app.command("env")(env.command)


def show_version(wanted: bool) -> None:
    """Print the version and leave."""
    if wanted:
        print(f"perfdoctor {__version__}")
        raise typer.Exit


SETTABLE = ("check", "bench", "compare")
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
    ward = Ward()
    try:
        with ward:
            app(obj=ward)
    except UsageError as error:
        print(f"perfdoctor: {error}", file=sys.stderr)
        sys.exit(USAGE)
    except NothingMeasured as error:
        print(f"perfdoctor: {error}", file=sys.stderr)
        sys.exit(NO_VERDICT)
    except BrokenPipeError:  # `perfdoctor list | head`: nobody reads on, which is no error
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Interrupted:
        print("perfdoctor: interrupted; everything it had started is ended", file=sys.stderr)
        sys.exit(NO_VERDICT)
    finally:
        ward.close()
