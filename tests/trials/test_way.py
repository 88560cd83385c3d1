"""Which ways there are to measure a change."""

from perfdoctor.schema.fix import Change
from perfdoctor.trials.way import on_the_program


def test_a_variable_that_the_program_sets_itself_can_not_be_changed_from_outside() -> None:
    def play(change: Change, until: float) -> list[float]:
        raise AssertionError

    (way,) = on_the_program({"steps": play}, set_in_code=("XLA_FLAGS",))
    assert not way.can(Change(env={"XLA_FLAGS": None, "NPROC": None}))
    assert way.can(Change(env={"NPROC": None}))
    assert not way.can(Change(step={"donated": True}))
