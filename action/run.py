"""The step of the GitHub Action that runs perfdoctor, and writes its report in all formats.

Reads the action's inputs as JSON from INPUTS; runs in the user's environment.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

COMMANDS = ("check", "bench")
OPTIONS = {
    "check": ("budget", "select", "ignore", "min-gain"),
    "bench": ("budget", "against", "threshold", "on-inconclusive"),
}
"""Inputs that are options of the command, by the same name."""
FILES = {
    "markdown": "report.md",
    "html": "report.html",
    "sarif": "report.sarif",
    "junit": "report.xml",
    "trace": "report.trace.json",
}
"""Formats that are written beside the JSON, as far as the command has them."""


def main(inputs: Mapping[str, str], environment: Mapping[str, str]) -> None:
    """Leaves the exit code, and where the files are, as outputs of the step."""
    folder = Path(tempfile.mkdtemp(prefix="perfdoctor-", dir=environment.get("RUNNER_TEMP")))
    saved = folder / "report.json"
    code = perfdoctor(*command(inputs, saved))
    outputs = {"exit-code": str(code)}
    if saved.exists():
        outputs["folder"] = str(folder)
        outputs |= written(saved)
        perfdoctor("report", str(saved), "--format", "github")
    if "markdown" in outputs and "GITHUB_STEP_SUMMARY" in environment:
        with Path(environment["GITHUB_STEP_SUMMARY"]).open("a", encoding="utf-8") as summary:
            summary.write(Path(outputs["markdown"]).read_text(encoding="utf-8"))
    with Path(environment["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as file:
        file.writelines(f"{name}={value}\n" for name, value in outputs.items())


def perfdoctor(*arguments: str) -> int:
    """Its exit code; what it says goes to the job's log."""
    return subprocess.run([sys.executable, "-m", "perfdoctor", *arguments]).returncode


def command(inputs: Mapping[str, str], saved: Path) -> list[str]:
    """The command line, without `perfdoctor`."""
    name = inputs.get("command") or "check"
    if name not in COMMANDS:
        sys.exit(f"perfdoctor: there is no command {name!r} here; expected check or bench")
    line = [name, "--format", "json", "--output", str(saved)]
    for option in OPTIONS[name]:
        if inputs.get(option):
            line += [f"--{option}", inputs[option]]
    if name == "check" and inputs.get("try-fixes"):
        line.append("--try-fixes" if inputs["try-fixes"] == "true" else "--no-try-fixes")
    if name == "check" and inputs.get("exit-zero") == "true":
        line.append("--exit-zero")
    line += shlex.split(inputs.get("options", ""))
    line += ["-m", inputs["module"]] if inputs.get("module") else []
    line += [inputs["target"]] if inputs.get("target") else []
    arguments = shlex.split(inputs.get("arguments", ""))
    return [*line, "--", *arguments] if arguments else line


def written(saved: Path) -> dict[str, str]:
    """The files by format; one that can't be written is left out, and the log says why."""
    from perfdoctor.report.formats import BENCHMARK, REPORT

    known = BENCHMARK if "perfdoctor.benchmark" in saved.read_text()[:200] else REPORT
    files = {}
    for format, name in FILES.items():
        file = saved.with_name(name)
        if format in known and not perfdoctor(
            "report", str(saved), "--format", format, "--output", str(file)
        ):
            files[format] = str(file)
    return files


if __name__ == "__main__":
    main(json.loads(os.environ["INPUTS"]), os.environ)
