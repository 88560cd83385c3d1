"""A check with the id of another."""

from perfdoctor import Observation, Outcome, ok

ID = "etl"
NEEDS = ()


def check(observation: Observation) -> Outcome:
    """Says that all is well, whatever it is."""
    return ok("all is well")
