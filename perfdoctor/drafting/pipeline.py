"""The pipeline of `perfdoctor workload`: script → observation → the call of its step → a module."""

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfdoctor.drafting.draft import CHOICES, Draft, drafted
from perfdoctor.drafting.inputs import inputs_of
from perfdoctor.drafting.program import Program, program_of
from perfdoctor.drafting.site import Site, parameters_of, site_of
from perfdoctor.observe.following import Within
from perfdoctor.observe.session import observe
from perfdoctor.processes import ProcessGroups
from perfdoctor.runner import output_of, runner_of
from perfdoctor.schema.calls import Call
from perfdoctor.schema.errors import NothingMeasured, UsageError
from perfdoctor.schema.fix import Change
from perfdoctor.schema.observation import Observation, Target
from perfdoctor.targets import named
from perfdoctor.targets.script import MODULE, module, script

OBSERVING_SHARE = 0.6
"""The share of the budget that the observed run may take; the rest is for trying the drafts."""
POLL_S = 0.05
"""Seconds between two looks at what runs."""
MODULE_NAME, TRIED = "workload", "drafted_by_perfdoctor"
"""The module's name; and another while it is tried, for there may be one of that name already: the
empty file that a shell makes for the output."""


@dataclass(frozen=True)
class Request:
    """What the user asks for."""

    script: str | None
    module: str | None = None
    arguments: Sequence[str] = ()
    budget_s: float = 90.0
    script_output: Path | None = None
    name: str = MODULE_NAME
    """Of the module."""

    @property
    def target(self) -> Target:
        """The script; a UsageError if there is none."""
        if self.module is not None:
            first = [] if self.script is None else [self.script]
            return module(self.module, [*first, *self.arguments])
        if self.script is None or not self.script.endswith(".py"):
            given = "nothing" if self.script is None else self.script
            raise UsageError(f"a draft is made of a script; expected a .py file or -m, not {given}")
        return script(Path(self.script), self.arguments)


@dataclass(frozen=True)
class Answer:
    """A draft, and whether it runs."""

    draft: Draft
    problem: str | None
    """Why it does not; None if its first steps were run."""


def draft(request: Request, groups: ProcessGroups, say: Callable[[str], None]) -> Answer:
    """Observe the script, and write a workload module of what was seen.

    Raises:
        NothingMeasured: no step was seen, or its call is nowhere in the script.
    """
    until = time.monotonic() + request.budget_s
    target = request.target
    programs = programs_of(target)
    with output_of(request.script_output) as output:
        runner = runner_of(target, groups, output, say, copied=False)
        within_s = Within.at_most(OBSERVING_SHARE * request.budget_s)
        seen = observe(target, runner.launch, groups, within_s, say)
    function = function_of(seen)
    program, site = found_in(programs, function, target.name)
    inputs = inputs_of(site, call_of(seen, function), parameters_of(function, program.tree))
    drafts = [drafted(program, site, inputs, choice, request.name) for choice in CHOICES]
    return first_that_runs(drafts, groups, until, say)


def first_that_runs(
    drafts: Sequence[Draft], groups: ProcessGroups, until: float, say: Callable[[str], None]
) -> Answer:
    """The first of the drafts whose first steps run; if none does, the first, and why not."""
    answers = []
    for each in dict.fromkeys(drafts):
        say("running the draft's first steps")
        answers.append(Answer(each, "; ".join(each.left) or why_not(each.text, groups, until)))
        if answers[-1].problem is None:
            return answers[-1]
    return answers[0]


def call_of(seen: Observation, function: str) -> Call | None:
    """The step's call of a function; None if it was not seen."""
    calls = seen.calls.calls if seen.calls is not None else ()
    return next((each for each in calls if each.function == function), None)


def function_of(seen: Observation) -> str:
    """The function that makes the steps."""
    if seen.eager is not None and (seen.calls is None or seen.eager.is_step):
        return seen.eager.function
    if seen.calls is not None:
        with_state = [c for c in seen.calls.calls if any(leaf.role == "state" for leaf in c.leaves)]
        return (with_state or list(seen.calls.calls))[-1].function
    why = seen.failure.message if seen.failure else seen.not_measured.get("calls", "none was seen")
    raise NothingMeasured(f"no training step was seen, so no workload can be drafted: {why}")


def programs_of(target: Target) -> list[Program]:
    """The script, and the other files beside it; read before it runs."""
    if target.name.startswith(MODULE):
        dotted = target.name.removeprefix(MODULE)
        place = Path(*dotted.split("."))
        files = [place.with_suffix(".py"), place / "__main__.py"]
        file = next((each for each in files if each.is_file()), None)
        if file is None:
            raise UsageError(
                f"{target.name} is not in this folder; expected a module that lies here"
            )
        folder, root = "", Path()
    else:
        file, root = Path(target.name), Path(target.name).parent
        folder = "" if root == Path() else str(root)
    others = sorted(each for each in file.parent.glob("*.py") if each != file)
    return [
        program_of(
            each,
            ".".join(each.relative_to(root).with_suffix("").parts),
            each.name,
            target.args,
            folder,
        )
        for each in (file, *others)
        if is_python(each)
    ]


def is_python(file: Path) -> bool:
    """Whether its text can be understood."""
    try:
        program_of(file, "", "", ())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return False
    return True


def found_in(programs: Sequence[Program], function: str, name: str) -> tuple[Program, Site]:
    """The program that calls the function in a loop; NothingMeasured if none does."""
    for program in programs:
        if (site := site_of(function, program.tree)) is not None:
            return program, site
    raise NothingMeasured(
        f"{name} trains by {function}(), but no call of it in a loop is in the text of its files; "
        "write the workload by hand: docs/workload.md shows one"
    )


def why_not(text: str, groups: ProcessGroups, until: float) -> str | None:
    """Why a draft's first steps can't be run; None if they were."""
    folder = groups.folder()
    (folder / f"{TRIED}.py").write_text(text)
    told = folder / "told"
    launch = named.launch(f"{TRIED}:workload", Change(), folder / "orders.json", told)
    path = launch.env.get("PYTHONPATH", "")
    env = {**launch.env, "PYTHONPATH": f"{folder}:{path}" if path else str(folder)}
    with (folder / "log").open("wb") as log:
        child = groups.spawn([sys.executable, *launch.command], env=env, stdout=log, stderr=log)
        while not told.exists() and child.poll() is None and time.monotonic() < until:
            time.sleep(POLL_S)
        groups.end(child)
    lines = (folder / "log").read_text(errors="replace").strip().splitlines()
    try:
        is_run = named.parts_told(told) is not None
    except UsageError as error:
        return str(error)
    finally:
        groups.discard(folder)
    return None if is_run else (lines[-1] if lines else "its first steps took too long")
