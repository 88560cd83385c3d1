"""Commits that make a script slower, compared with the commit before: is the cause named?

python -m tests.clinic.commits [NAME …]

A repository is made of a script of tests/clinic/patients; then it is compared with its last commit
by `perfdoctor bench --against git:…`, as in a pull request: unchanged, with a comment more, and
with each of the faults that are edits of the script. The first cause that the comparison names
should be the fault.
"""

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.clinic.patient import Patient, lay_out, patients
from tests.saved import save

BUDGET_S = 240
NAME = "commits"
STYLES = ("plain_mlp", "callbacks_trainer", "linen_text")
"""That are compared with themselves too."""
FAULTS = (
    "plain_mlp-x64",
    "eqx_lm-double_precision",
    "callbacks_trainer-loss_in_logs",
    "linen_text-metrics_each_step",
    "eqx_series-jit_each_epoch",
    "callbacks_trainer-static_smoothing",
    "optax_cnn-decode_again",
    "callbacks_trainer-collect_each_step",
    "recsys-not_donated",
)
VERDICTS = {0: "pass", 1: "regressed", 3: "no verdict"}


@dataclass(frozen=True)
class Row:
    """What was said of one commit."""

    name: str
    expected: str | None
    """The check that is to be named; None: nothing got slower."""
    exit_code: int
    change: float | None
    """Of the step time, relative."""
    pairs: int
    causes: tuple[str, ...]
    exact: tuple[str, ...]
    """What else differs that no noise touches."""
    seconds: float

    @property
    def is_right(self) -> bool:
        """Whether the verdict is, and the first cause."""
        if self.expected is None:
            return self.exit_code == 0
        first = self.causes[0].partition(":")[0] if self.causes else ""
        return self.exit_code == 1 and first == self.expected


def git(folder: Path, *arguments: str) -> None:
    """In a repository."""
    who = ("-c", "user.name=clinic", "-c", "user.email=clinic@example.org")
    command = ["git", "-C", str(folder), *who, "-c", "commit.gpgsign=false", *arguments]
    subprocess.run(command, check=True, capture_output=True)


def committed(folder: Path, message: str) -> None:
    """All that lies there."""
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", message)


def compared(name: str, expected: str | None, command: tuple[str, ...], folder: Path) -> Row:
    """The repository's last commit with the one before, as a user compares them."""
    start = time.monotonic()
    answer = subprocess.run(
        [
            *(sys.executable, "-m", "perfdoctor", "bench", *command, "--against", "git:HEAD~1"),
            *("--budget", str(BUDGET_S), "--format", "json", "--script-output", "../output.txt"),
        ],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    seconds = round(time.monotonic() - start, 1)
    if not answer.stdout:
        print(answer.stderr, file=sys.stderr)
        return Row(name, expected, answer.returncode, None, 0, (), (), seconds)
    found = json.loads(answer.stdout)["comparison"]
    steps = [each["change"] for each in found["metrics"] if each["name"] == "step_time"]
    return Row(
        name=name,
        expected=expected,
        exit_code=answer.returncode,
        change=steps[0] if steps else None,
        pairs=found["pairs"],
        causes=tuple(found["causes"]),
        exact=tuple(each["name"] for each in found["exact"]),
        seconds=seconds,
    )


def with_commits(kind: str, healthy: Patient, ill: Patient | None) -> Row:
    """A repository with two commits: `same`, `comment`, or a patient that got ill."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "repository"
        lay_out(healthy, folder)
        git(folder, "init", "--quiet")
        committed(folder, "healthy")
        if ill is not None:
            lay_out(ill, folder)
        elif kind == "comment":
            script = next(each for each in folder.rglob("*.py") if each.name == "train.py")
            script.write_text(f"{script.read_text()}\n# a comment\n")
        committed(folder, kind)
        name = ill.name if ill else f"{healthy.style}, {kind}"
        return compared(name, ill.cause if ill else None, healthy.command, folder)


def line(row: Row) -> str:
    """A row of the printed table."""
    change = f"{row.change:+.1%}" if row.change is not None else "-"
    verdict = VERDICTS.get(row.exit_code, str(row.exit_code))
    cause = row.causes[0] if row.causes else ""
    return (
        f"{row.name:<36} {row.expected or '-':<14} {verdict:<10} {change:>8} {row.pairs:>5} "
        f"{row.seconds:>4.0f} s  {'right' if row.is_right else 'WRONG':<5}  {cause[:90]}"
    )


HEADING = (
    f"{'commit':<36} {'brings':<14} {'verdict':<10} {'step':>8} {'pairs':>5} {'took':>6}  "
    f"{'':<5}  the first cause that is named"
)


def main() -> None:
    """All, or those that are named."""
    everyone = {each.name: each for each in patients()}
    names = sys.argv[1:] or [*STYLES, *FAULTS]
    rows: list[Row] = []
    print(HEADING, flush=True)
    for name in names:
        healthy, ill = everyone[everyone[name].style], everyone[name]
        same = ill.cause is None
        for kind in ("same", "comment") if same else ("ill",):
            rows.append(with_commits(kind, healthy, None if same else ill))
            print(line(rows[-1]), flush=True)
            right = sum(row.is_right for row in rows)
            lines = [HEADING, *map(line, rows), "", f"right: {right} of {len(rows)}"]
            save(NAME, lines, [asdict(row) for row in rows], shown=False)
    print(f"\nright: {sum(row.is_right for row in rows)} of {len(rows)}")


if __name__ == "__main__":
    main()
