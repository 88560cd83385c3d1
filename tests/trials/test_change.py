import msgspec
import pytest

from perfdoctor.schema.fix import Change
from perfdoctor.schema.workload import Workload
from perfdoctor.trials.change import changed_env, changed_workload, merged


def test_changes_are_merged_and_later_ones_win() -> None:
    first = Change(env={"A": "1", "B": "1"}, workload={"data.prefetch": 4, "training.jit": True})
    second = Change(env={"B": None}, workload={"data.prefetch": 2})
    assert merged([first, second]) == Change(
        env={"A": "1", "B": None}, workload={"data.prefetch": 2, "training.jit": True}
    )


def test_no_changes_make_no_change() -> None:
    assert merged([]) == Change()
    assert changed_workload(Workload(), Change()) == Workload()
    assert changed_env({"A": "1"}, Change()) == {"A": "1"}


def test_merging_leaves_its_parts_alone() -> None:
    first, second = Change(env={"A": "1"}), Change(env={"A": "2"})
    merged([first, second])
    assert (first, second) == (Change(env={"A": "1"}), Change(env={"A": "2"}))


def test_a_workload_is_changed_in_the_named_fields_only() -> None:
    change = Change(workload={"data.prefetch": 7, "training.dtype": "mixed"})
    changed = changed_workload(Workload(), change)
    assert changed.data.prefetch == 7
    assert changed.training.dtype == "mixed"
    assert changed_workload(changed, Change(workload={"data.prefetch": 2})) == Workload(
        training=changed.training
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data.prefetch", -1),
        ("training.dtype", "float8"),
        ("training.batch_size", 0),
        ("data.threads", "two"),
        ("data.prefetches", 2),
    ],
)
def test_a_change_out_of_bounds_is_refused(field: str, value: int | str) -> None:
    with pytest.raises(msgspec.ValidationError, match=field.split(".")[1]):
        changed_workload(Workload(), Change(workload={field: value}))


def test_variables_are_set_replaced_and_removed() -> None:
    env = {"KEPT": "1", "REPLACED": "old", "REMOVED": "x"}
    change = Change(env={"REPLACED": "new", "REMOVED": None, "ADDED": "", "ABSENT": None})
    assert changed_env(env, change) == {"KEPT": "1", "REPLACED": "new", "ADDED": ""}
    assert env == {"KEPT": "1", "REPLACED": "old", "REMOVED": "x"}
