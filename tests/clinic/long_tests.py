"""The tests that CI leaves out since they take minutes, and what they came to.

python -m tests.clinic.long_tests [ARGUMENTS OF PYTEST …]
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from tests.saved import save


def outcome_of(case: ElementTree.Element) -> str:
    """Of a test, as JUnit's XML has it."""
    found = {each.tag for each in case}
    return next((tag for tag in ("failure", "error", "skipped") if tag in found), "passed")


def main() -> None:
    """Run them, and keep how each ended."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tests.xml"
        command = [sys.executable, "-m", "pytest", "-m", "long", f"--junit-xml={file}"]
        code = subprocess.run([*command, *sys.argv[1:]], check=False).returncode
        tests = [
            {
                "test": f"{case.get('classname')}::{case.get('name')}",
                "seconds": float(case.get("time", "nan")),
                "outcome": outcome_of(case),
            }
            for case in ElementTree.parse(file).iter("testcase")
        ]
    passed = sum(each["outcome"] == "passed" for each in tests)
    lines = [f"{each['seconds']:6.0f} s  {each['outcome']:8s} {each['test']}" for each in tests]
    save("long_tests", [*lines, "", f"{passed} of {len(tests)} passed"], tests)
    sys.exit(code)


if __name__ == "__main__":
    main()
