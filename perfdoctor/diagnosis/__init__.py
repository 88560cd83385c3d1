"""Examines the loop of this very process, while it goes on: `perfdoctor.diagnose()`.

The same observer as in a script that `perfdoctor check` runs sits beside the loop for some seconds,
and goes: jitted calls are heard and probed, a step is captured, some steps are traced. Then the
step is replayed in a child process. Whatever goes wrong is a sentence in the report; the loop goes
on.
"""

from perfdoctor.diagnosis.handle import Diagnosis, diagnose

__all__ = ["Diagnosis", "diagnose"]
