"""A trial that runs out of memory is reported as such, and the run goes on."""

import json
import subprocess
import sys
from pathlib import Path

GIB = 2**30
TRIAL = """
import json, resource, sys, time, types
from perfdoctor.runner import workload_runner
from perfdoctor.processes import ProcessGroups
from perfdoctor.schema.fix import Change, Fix
from perfdoctor.schema.observation import Target
from perfdoctor.targets.workload import convert
from perfdoctor.trials.trial import Laboratory

folder = sys.argv[1]
small = {"name": "mlp", "width": 8}
data = {"examples": 50, "image_size": 8, "folder": folder}
plan = convert({"model": small, "data": data, "training": {"batch_size": 4}}, "test")
with ProcessGroups() as groups:
    target = Target(kind="workload", name="test", workload=plan)
    runner = workload_runner(target, groups, print)  # writes the data set
    limit = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    deadline, seen = time.monotonic() + 300, types.SimpleNamespace(set_in_code=())
    laboratory = Laboratory(runner.ways(seen), deadline, 0.05, lambda text: None)
    huge = Change(workload={"model.width": 16_384, "model.depth": 3})
    larger = Change(workload={"training.batch_size": 8})
    fixes = [Fix(summary="", how="huge", change=huge), Fix(summary="", how="larger", change=larger)]
    tried = laboratory.best_of("memory", fixes, sweep=False)
    print(json.dumps([[t.fix.how, len(t.log_ratios), t.failure] for t in tried]))
"""


def test_it_is_reported_and_the_next_fix_is_tried(tmp_path: Path) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", TRIAL, str(tmp_path), str(5 * GIB)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert answer.returncode == 0, answer.stderr
    (first, pairs, fine), (second, none, failure) = json.loads(answer.stdout.splitlines()[-1])
    assert (first, fine, second, none) == ("larger", None, "huge", 0)
    assert pairs >= 1
    assert "out of memory" in failure
