"""Runs the steps of a composite action as GitHub's runner does, as far as ours needs it.

Steps with `run` are run by bash; those with `uses` are kept with their inputs.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.command import ROOT

ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
LIMIT_S = 300


@dataclass
class Job:
    """A job of a workflow, whose only step is the action."""

    folder: Path
    """A git repository."""
    event: Mapping[str, Any]
    api: str = "http://127.0.0.1:9"
    outputs: dict[str, dict[str, str]] = field(default_factory=dict)
    used: dict[str, dict[str, str]] = field(default_factory=dict)
    """Steps with `uses`, by what they use."""
    log: str = ""
    failed: str | None = None
    """The first step that failed."""
    summary: str = ""

    def run(self, **inputs: str) -> None:
        """All steps; after one that failed, none."""
        known = {name.replace("-", "_"): name for name, each in ACTION["inputs"].items() if each}
        given = {name: str(each.get("default", "")) for name, each in ACTION["inputs"].items()}
        given |= {known[name]: value for name, value in inputs.items()}
        given["token"] = self.told(given["token"], given)
        for step in ACTION["runs"]["steps"]:
            if self.failed is None and self.wanted(step.get("if", ""), given):
                self.step(step, given)

    def step(self, step: Mapping[str, Any], inputs: Mapping[str, str]) -> None:
        """One step."""
        if "uses" in step:
            self.used[step["uses"].partition("@")[0]] = {
                name: self.told(str(value), inputs) for name, value in step["with"].items()
            }
            return
        assert step["shell"] == "bash"
        files = {name: self.folder.parent / name for name in ("event", "output", "summary")}
        files["event"].write_text(json.dumps(self.event))
        files["output"].write_text("")
        answer = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            env={
                **os.environ,
                **{name: self.told(each, inputs) for name, each in step.get("env", {}).items()},
                "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                "GITHUB_ACTION_PATH": str(ROOT),
                "GITHUB_API_URL": self.api,
                "GITHUB_EVENT_PATH": str(files["event"]),
                "GITHUB_OUTPUT": str(files["output"]),
                "GITHUB_REPOSITORY": "owner/repository",
                "GITHUB_STEP_SUMMARY": str(files["summary"]),
                "NO_PROXY": "127.0.0.1",
                "RUNNER_TEMP": str(self.folder.parent),
            },
            cwd=self.folder / self.told(step.get("working-directory", "."), inputs),
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
        self.log += answer.stdout + answer.stderr
        pairs = (line.partition("=") for line in files["output"].read_text().splitlines())
        self.outputs[step.get("id", "")] = {name: value for name, _, value in pairs}
        self.summary = files["summary"].read_text() if files["summary"].exists() else ""
        if answer.returncode:
            self.failed = step["name"]

    def wanted(self, condition: str, inputs: Mapping[str, str]) -> bool:
        """Whether a step's `if` holds."""
        return all(self.holds(each.strip(), inputs) for each in condition.split("&&") if each)

    def holds(self, term: str, inputs: Mapping[str, str]) -> bool:
        """A comparison with a text, or whether something is there."""
        found = re.fullmatch(r"(\S+) (==|!=) '([^']*)'", term)
        if found is None:
            return bool(self.value(term, inputs))
        is_equal: bool = self.value(found[1], inputs) == found[3]
        return is_equal == (found[2] == "==")

    def told(self, text: str, inputs: Mapping[str, str]) -> str:
        """With its expressions."""
        return re.sub(r"\$\{\{ (.*?) \}\}", lambda m: str(self.value(m[1], inputs)), text)

    def value(self, name: str, inputs: Mapping[str, str]) -> Any:
        """Of one expression; an error for one that this runner does not know."""
        if name == "toJSON(inputs)":
            return json.dumps(inputs)
        if name == "github.token":
            return "the-token"
        if name == "github.event.pull_request":
            return self.event.get("pull_request")
        kind, _, rest = name.partition(".")
        if kind == "inputs":
            return inputs[rest]
        step, _, output = rest.partition(".outputs.")
        assert kind == "steps", name
        return self.outputs.get(step, {}).get(output, "")
