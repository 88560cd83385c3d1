"""What a replay process does before it answers."""

import json
import subprocess
import sys

CODE = """
import json, resource, sys
import numpy as np
from perfdoctor.replay.__main__ import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    np.ones(2**21)  # 16 MiB
print(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before))
"""


def test_what_is_freed_is_used_again() -> None:
    """Without a fault for each page each time."""
    command = [sys.executable, "-c", CODE, "kept"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    assert json.loads(done.stdout) < 2 * 2**24 / 4096
