import os
import time

import msgspec
import psutil
import pytest

from perfdoctor.observe import load
from perfdoctor.observe.load import (
    Glance,
    Reading,
    between,
    busiest,
    difference,
    glance,
    lasting_cores,
    other_processes,
    pressure_s,
    read,
    scheduled,
    used_s,
)
from perfdoctor.schema.surroundings import Load

PRESSURE = """\
some avg10=1.23 avg60=0.00 avg300=0.00 total=2500000
full avg10=0.00 avg60=0.00 avg300=0.00 total=999
"""


def reading(
    instant: float = 0.0,
    *,
    busy: float = 0.0,
    steal: float = 0.0,
    own: float = 0.0,
    doctor: float = 0.0,
    others: dict[tuple[int, float], float] | None = None,
    ran: float = 0.0,
    waited: float = 0.0,
    pressure: float | None = None,
    throttled_ms: float | None = None,
    of_kernel: int = 0,
) -> Reading:
    others = others or {}
    return Reading(
        instant=instant,
        busy=busy,
        steal=steal,
        own=own,
        doctor=doctor,
        others=others,
        ran=ran,
        waited=waited,
        pressure=pressure,
        throttled_ms=throttled_ms,
        names={
            pid: (f"name{pid}", "" if pid == of_kernel else f"command {pid}") for pid, _ in others
        },
    )


def test_pressure_is_the_total_of_some_in_seconds() -> None:
    assert pressure_s(PRESSURE) == 2.5


@pytest.mark.parametrize("text", ["", "full avg10=0.00 total=5\n"])
def test_no_pressure_where_the_kernel_does_not_count_it(text: str) -> None:
    assert pressure_s(text) is None


def test_cores_are_cpu_time_over_wall_time() -> None:
    load = between(
        reading(10.0, busy=100.0, own=20.0, doctor=5.0, steal=1.0),
        reading(14.0, busy=107.0, own=24.0, doctor=6.0, steal=3.0),
    )
    assert load.seconds == 4.0
    assert load.own_cores == 1.0
    assert load.other_cores == 0.5
    assert load.steal_cores == 0.5


def test_a_child_that_ended_does_not_make_cpu_time_negative() -> None:
    load = between(reading(0.0, own=9.0, busy=9.0), reading(1.0, own=2.0, busy=9.5))
    assert load.own_cores == 0.0
    assert load.other_cores == 0.5


def test_other_cores_are_never_negative() -> None:
    load = between(reading(), reading(1.0, own=2.0, busy=1.5))
    assert load.other_cores == 0.0


def test_threads_of_the_kernel_are_no_other_program() -> None:
    before = reading(busy=5.0, others={(1, 0.0): 1.0, (2, 0.0): 2.0}, of_kernel=2)
    after = reading(1.0, busy=6.0, others={(1, 0.0): 1.5, (2, 0.0): 2.25}, of_kernel=2)
    load = between(before, after)
    assert load.other_cores == 0.75
    assert [process.pid for process in load.others] == [1]


def test_lost_share_is_waiting_over_wanting() -> None:
    load = between(reading(ran=1.0, waited=1.0), reading(1.0, ran=4.0, waited=2.0))
    assert load.lost_share == 0.25


def test_lost_share_is_unknown_where_nothing_is_counted() -> None:
    assert between(reading(), reading(1.0)).lost_share is None


def test_counters_that_a_machine_lacks_stay_unknown() -> None:
    load = between(reading(pressure=1.0), reading(1.0, throttled_ms=3.0))
    assert load.pressure_share is None
    assert load.throttled_ms is None


def test_pressure_is_a_share_and_throttling_a_time() -> None:
    load = between(
        reading(0.0, pressure=1.0, throttled_ms=5.0), reading(4.0, pressure=2.0, throttled_ms=8.0)
    )
    assert load.pressure_share == 0.25
    assert load.throttled_ms == 3.0


def test_difference_of_a_counter() -> None:
    assert difference(1.0, 4.0, 2.0) == 1.5
    assert difference(None, 4.0, 2.0) is None
    assert difference(1.0, None, 2.0) is None


def test_the_busiest_come_first_and_the_idle_not_at_all() -> None:
    before = reading(others={(1, 0.0): 5.0, (2, 0.0): 1.0, (3, 0.0): 50.0})
    after = reading(others={(1, 0.0): 5.5, (2, 0.0): 3.0, (3, 0.0): 50.001})
    found = busiest(before, after, 1.0)
    assert [process.pid for process in found] == [2, 1]
    assert found[0].name == "name2"
    assert found[0].command == "command 2"
    assert found[0].cores == 2.0


def test_a_process_that_started_meanwhile_counts_from_zero() -> None:
    found = busiest(reading(), reading(others={(7, 1.0): 0.5}), 1.0)
    assert [process.cores for process in found] == [0.5]


def test_a_reused_pid_is_another_process() -> None:
    found = busiest(reading(others={(7, 1.0): 9.0}), reading(others={(7, 2.0): 0.25}), 1.0)
    assert [process.cores for process in found] == [0.25]


def test_ten_processes_are_listed_at_most() -> None:
    found = busiest(reading(), reading(others={(pid, 0.0): float(pid) for pid in range(30)}), 1.0)
    assert [process.pid for process in found] == list(range(29, 19, -1))


def test_other_processes_are_all_but_ours() -> None:
    seconds, names = other_processes({os.getpid()})
    assert os.getpid() not in names
    assert {pid for pid, _ in seconds} == set(names)
    seconds, names = other_processes(set())
    assert names[os.getpid()][1]  # a command line, as no thread of the kernel has


def test_scheduled_time_of_a_process_that_is_gone_is_nothing() -> None:
    assert scheduled([2**22 + 1]) == (0.0, 0.0)


def test_two_readings_of_this_process_make_a_load() -> None:
    before = read(psutil.Process())
    while read(psutil.Process()).own == before.own:
        sum(range(100_000))
    load = between(before, read(psutil.Process()))
    assert load.seconds > 0
    assert load.own_cores > 0
    assert os.getpid() not in {process.pid for process in load.others}
    assert msgspec.json.decode(msgspec.json.encode(load), type=Load) == load


def glances(*cores: float) -> list[Glance]:
    """One each quarter of a second, between which others took so many cores."""
    found = [Glance(10.0, 5.0)]
    for each in cores:
        last = found[-1]
        found.append(Glance(last.instant + 0.25, last.others + 0.25 * each))
    return found


@pytest.mark.parametrize(
    ("cores", "lasting"),
    [
        ((1.0, 1.0, 1.0, 1.0), 1.0),
        ((0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0), 0.0),  # a command of half a second
        ((0.5, 0.0, 0.5, 0.5, 0.0), 0.5),
        ((-0.1, -0.1, -0.1), 0.0),
        ((1.0, 1.0), None),  # too short to tell
        ((), None),
    ],
)
def test_what_lasts_is_taken_in_half_of_the_time(
    cores: tuple[float, ...], lasting: float | None
) -> None:
    assert lasting_cores(glances(*cores)) == pytest.approx(lasting)


def test_no_glance_at_all_tells_nothing() -> None:
    assert lasting_cores([]) is None
    assert between(reading(0.0), reading(2.0, busy=1.0)).lasting_cores is None


def test_what_is_ours_is_not_taken_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "used_s", lambda: (10.0, 0.0))
    monkeypatch.setattr(load, "cpu_seconds", lambda process: 2.0)
    assert glance([psutil.Process()]).others == 10.0 - 2.0 - 2.0  # the target, and the doctor


def test_the_machine_uses_what_a_process_does() -> None:
    before, _ = used_s()
    busy_until = time.process_time() + 0.5
    while time.process_time() < busy_until:
        pass
    assert used_s()[0] - before >= 0.4
