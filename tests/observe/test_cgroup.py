from pathlib import Path

import pytest

from perfdoctor.observe.cgroup import (
    groups,
    memory_limit_bytes,
    memory_used_bytes,
    numbers,
    quota_cores,
    throttled_ms,
)

V2 = "0::/slice/job\n"
V1 = "4:memory:/job\n3:cpu,cpuacct:/job\n2:cpuset:/\n1:name=systemd:/job\n"


@pytest.fixture
def version_1(tmp_path: Path) -> Path:
    """The root as systemd lays it out: one folder for two controllers, and links to it."""
    put(tmp_path / "cpu,cpuacct" / "job")
    (tmp_path / "cpu").symlink_to("cpu,cpuacct")
    return tmp_path


def put(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def test_groups_of_version_2_run_from_ours_up_to_the_root(tmp_path: Path) -> None:
    job = tmp_path / "slice" / "job"
    job.mkdir(parents=True)
    assert list(groups("cpu", tmp_path, V2)) == [job, job.parent, tmp_path]


def test_groups_of_version_1_are_those_of_the_controller(tmp_path: Path) -> None:
    for controller in ("cpu", "memory", "cpuset"):
        (tmp_path / controller / "job").mkdir(parents=True)
    expected = [tmp_path / "memory" / "job", tmp_path / "memory"]
    assert list(groups("memory", tmp_path, V1)) == expected


def test_groups_that_the_container_does_not_show_are_skipped(tmp_path: Path) -> None:
    assert list(groups("cpu", tmp_path, V2)) == [tmp_path]


def test_no_group_where_the_kernel_lists_none(tmp_path: Path) -> None:
    assert list(groups("cpu", tmp_path, "")) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [("50000 100000\n", [50000, 100000]), ("max 100000\n", [None, 100000]), ("-1\n", [-1])],
)
def test_numbers_of_a_file(tmp_path: Path, text: str, expected: list[int | None]) -> None:
    put(tmp_path, file=text)
    assert numbers(tmp_path / "file") == expected


def test_a_missing_file_has_no_numbers(tmp_path: Path) -> None:
    assert numbers(tmp_path / "absent") == []


def test_quota_of_version_2(tmp_path: Path) -> None:
    put(tmp_path / "slice" / "job", cpu__max="150000 100000\n")
    assert quota_cores(tmp_path, V2) == 1.5


@pytest.mark.parametrize("controllers", ["cpu,cpuacct", "cpuacct,cpu", "cpu"])
def test_quota_of_version_1(version_1: Path, controllers: str) -> None:
    job = version_1 / "cpu" / "job"
    put(job, cpu__cfs_quota_us="50000\n", cpu__cfs_period_us="100000\n")
    assert quota_cores(version_1, f"3:{controllers}:/job\n") == 0.5


def test_the_tightest_quota_counts_wherever_it_is_set(tmp_path: Path) -> None:
    put(tmp_path / "slice" / "job", cpu__max="400000 100000\n")
    put(tmp_path / "slice", cpu__max="200000 100000\n")
    assert quota_cores(tmp_path, V2) == 2.0


@pytest.mark.parametrize("text", ["max 100000\n", ""])
def test_no_quota_of_version_2(tmp_path: Path, text: str) -> None:
    put(tmp_path / "slice" / "job", cpu__max=text)
    assert quota_cores(tmp_path, V2) is None


def test_minus_one_is_no_quota_of_version_1(version_1: Path) -> None:
    job = version_1 / "cpu" / "job"
    put(job, cpu__cfs_quota_us="-1\n", cpu__cfs_period_us="100000\n")
    assert quota_cores(version_1, V1) is None


def test_the_tightest_memory_limit_counts(tmp_path: Path) -> None:
    put(tmp_path / "slice" / "job", memory__max="max\n")
    put(tmp_path / "slice", memory__max="1073741824\n")
    put(tmp_path, memory__max="2147483648\n")
    assert memory_limit_bytes(tmp_path, V2) == 2**30


def test_the_huge_number_of_version_1_is_no_memory_limit(tmp_path: Path) -> None:
    put(tmp_path / "memory" / "job", memory__limit_in_bytes="9223372036854771712\n")
    assert memory_limit_bytes(tmp_path, V1) is None


def test_memory_used_is_that_of_our_own_group(tmp_path: Path) -> None:
    put(tmp_path / "slice" / "job", memory__current="123\n")
    put(tmp_path / "slice", memory__current="456\n")
    assert memory_used_bytes(tmp_path, V2) == 123


def test_memory_used_in_version_1(tmp_path: Path) -> None:
    put(tmp_path / "memory" / "job", memory__usage_in_bytes="789\n")
    assert memory_used_bytes(tmp_path, V1) == 789


def test_memory_used_is_unknown_without_a_counter(tmp_path: Path) -> None:
    assert memory_used_bytes(tmp_path, V2) is None


def test_throttled_time_of_version_2_is_in_microseconds(tmp_path: Path) -> None:
    put(tmp_path / "slice" / "job", cpu__stat="nr_throttled 3\nthrottled_usec 2500\n")
    assert throttled_ms(tmp_path, V2) == 2.5


def test_throttled_time_of_version_1_is_in_nanoseconds(version_1: Path) -> None:
    put(version_1 / "cpu" / "job", cpu__stat="nr_throttled 3\nthrottled_time 2500000\n")
    assert throttled_ms(version_1, V1) == 2.5


def test_throttled_time_is_unknown_without_a_counter(tmp_path: Path) -> None:
    put(tmp_path / "slice" / "job", cpu__stat="usage_usec 17\n")
    assert throttled_ms(tmp_path, V2) is None
