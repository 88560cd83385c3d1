"""A trial that runs out of memory is reported as such, and the run goes on."""

import json
import subprocess
import sys
from pathlib import Path

GIB = 2**30
TRIAL = """
import json, resource, sys, time
from perfdoctor.patient import patient_of_workload
from perfdoctor.processes import Ward
from perfdoctor.schema.fix import Change, Fix
from perfdoctor.schema.observation import Target
from perfdoctor.targets.workload import convert
from perfdoctor.trials.trial import Laboratory, on_the_program

folder = sys.argv[1]
small = {"name": "mlp", "width": 8}
data = {"examples": 50, "image_size": 8, "folder": folder}
plan = convert({"model": small, "data": data, "training": {"batch_size": 4}}, "test")
with Ward() as ward:
    target = Target(kind="workload", name="test", workload=plan)
    patient = patient_of_workload(target, ward, print)  # writes the data set
    limit = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    deadline = time.monotonic() + 300
    laboratory = Laboratory(on_the_program(patient.plays("")), deadline, 0.05, lambda text: None)
    huge = Change(workload={"model.width": 16_384, "model.depth": 3})
    larger = Change(workload={"training.batch_size": 8})
    fixes = [Fix(summary="", how="huge", change=huge), Fix(summary="", how="larger", change=larger)]
    tried = laboratory.best_of("memory", fixes, ladder=False)
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
