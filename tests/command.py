"""Runs the `perfdoctor` command as a user would, in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
SAMPLES = ROOT / "sample_configs"
LIMIT_S = 400.0


def perfdoctor(
    *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Its exit code and what it wrote."""
    return subprocess.run(
        [sys.executable, "-m", "perfdoctor", *arguments],
        env={**os.environ, **(env or {})},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )
