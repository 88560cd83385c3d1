from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfdoctor.schema.fix import Change
from perfdoctor.schema.workload import Workload
from perfdoctor.trials.change import changed_env, changed_workload, go_together, merged

FOLDER = Path("/tmp/trial")


def test_changes_are_merged_and_later_ones_win() -> None:
    first = Change(env={"A": "1", "B": "1"}, workload={"data.prefetch": 4, "training.jit": True})
    second = Change(env={"B": None}, workload={"data.prefetch": 2})
    assert merged([first, second]) == Change(
        env={"A": "1", "B": None}, workload={"data.prefetch": 2, "training.jit": True}
    )


def test_what_one_change_asks_of_the_collector_the_merged_one_asks() -> None:
    together = merged([Change(gc_freeze=True), Change(gc_skip_collect=True), Change()])
    assert together == Change(gc_freeze=True, gc_skip_collect=True)


def test_no_changes_make_no_change() -> None:
    assert merged([]) == Change()
    assert changed_workload(Workload(), Change()) == Workload()
    assert changed_env({"A": "1"}, Change(), FOLDER) == {"A": "1"}


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
    assert changed_env(env, change, FOLDER) == {"KEPT": "1", "REPLACED": "new", "ADDED": ""}
    assert env == {"KEPT": "1", "REPLACED": "old", "REMOVED": "x"}


def test_a_folder_is_one_of_the_trial() -> None:
    change = Change(env={"ADDED": "1"}, folders=("CACHE",))
    changed = changed_env({"KEPT": "1", "CACHE": "/home/me/cache"}, change, FOLDER)
    assert changed == {"KEPT": "1", "ADDED": "1", "CACHE": str(FOLDER / "CACHE")}


def test_a_folder_is_the_same_for_each_launch_and_none_is_made(tmp_path: Path) -> None:
    change = Change(folders=("CACHE", "DUMP"))
    first, second = (changed_env({}, change, tmp_path) for _ in range(2))
    assert first == second
    assert len(set(first.values())) == 2
    assert list(tmp_path.iterdir()) == []


def test_folders_of_several_changes_are_together() -> None:
    several = [Change(folders=("A", "B")), Change(folders=("B", "C")), Change()]
    assert merged(several).folders == ("A", "B", "C")


NAMES = st.sampled_from(["A", "B", "C", "D"])
CHANGES = st.builds(
    Change,
    env=st.dictionaries(NAMES, st.none() | st.text(max_size=3)),
    folders=st.lists(NAMES, max_size=2).map(tuple),
)


@given(st.dictionaries(NAMES, st.text(max_size=3)), CHANGES)
def test_an_environment_is_changed_where_the_change_says_so_only(
    env: dict[str, str], change: Change
) -> None:
    changed = changed_env(env, change, FOLDER)
    touched = {*change.env, *change.folders}
    assert {k: v for k, v in changed.items() if k not in touched} == {
        k: v for k, v in env.items() if k not in touched
    }
    assert all(changed[name] == str(FOLDER / name) for name in change.folders)


def test_changes_that_want_different_programs_do_not_go_together() -> None:
    single, larger = (Change(step={"program": name}) for name in ("float32", "batch-8-to-32"))
    assert go_together([single, Change(step={"waits": 0.0}), Change(env={"A": "1"})])
    assert not go_together([single, larger])
