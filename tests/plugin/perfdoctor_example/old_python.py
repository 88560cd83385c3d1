"""The interpreter is an old one.

What it finds
-------------
Python before 3.11.

Why it costs
------------
Python 3.11 made the interpreter about a quarter faster.

How it is measured
------------------
The version of the interpreter that runs the target.

How to fix
----------
Install a newer Python.

References
----------
What's new in Python 3.11, "Faster CPython".
"""

from perfdoctor import Evidence, Fix, Observation, Outcome, hint, needed, ok

ID = "old-python"
NEEDS = ("libraries",)
FASTER = (3, 11)


def check(observation: Observation) -> Outcome:
    """Compares the version."""
    python = needed(observation.libraries).python
    evidence = Evidence(name="Python", value=python, unit="", source="platform")
    if tuple(int(part) for part in python.split(".")[:2]) >= FASTER:
        return ok(f"Python {python}", evidence)
    fix = Fix(summary="use a newer Python", how="conda install python=3.13")
    return hint(f"Python {python} is an old one", [evidence], [fix])
