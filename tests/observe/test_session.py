from perfdoctor.observe.run import Watched
from perfdoctor.observe.session import reasons
from perfdoctor.schema.digest import Digest
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.run import Failure

OTHER_PARTS = {
    "schema",
    "perfdoctor",
    "created",
    "target",
    "host",
    "gpus",
    "libraries",
    "environment",
    "set_in_code",
    "sources",
    "timeline",
    "iterations",
    "backend",
    "failure",
    "ended_s",
    "alone",
    "eager",
    "tried",
    "not_measured",
}
PARTS = set(Observation.__struct_fields__) - OTHER_PARTS


def test_a_failure_is_the_reason_for_every_missing_part() -> None:
    failure = Failure(stage="run", kind="killed", message="signal 9", seconds=1.0)
    found = reasons(Watched(None, None, None, failure))
    assert set(found) == PARTS
    assert all("signal 9" in why for why in found.values())


UNSEEN = Digest(
    compiles=(),
    garbage=None,
    steps=None,
    program=None,
    executable=None,
    not_measured={"steps": "too few"},
)


def test_the_digest_gives_its_own_reasons() -> None:
    assert reasons(Watched(None, UNSEEN, None, None)) == {"steps": "too few"}


def test_without_steps_a_failure_says_more_than_that_there_are_none() -> None:
    failure = Failure(stage="run", kind="raised", message="OSError: no data", seconds=1.0)
    found = reasons(Watched(None, UNSEEN, None, failure))
    assert found == {"steps": "the run failed: OSError: no data"}
