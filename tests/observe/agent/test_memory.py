"""The memory of a program, in a process of its own: arrays of other tests live in this one."""

import ctypes
import json
import subprocess
import sys
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from perfdoctor.observe.agent.memory import (
    MOST,
    MemoryWatch,
    allocated_bytes,
    device_memory,
    rss_bytes,
    size_bytes,
)
from perfdoctor.schema.memory import MemorySample

PROGRAM = """
import sys
import jax, jax.numpy as jnp, msgspec, numpy as np
from perfdoctor.observe.agent import memory
from perfdoctor.observe.agent.memory import MemoryWatch, device_memory

memory.TOO_MANY = int(sys.argv[1])
weights, key = jax.device_put(np.ones((64, 32), np.float32)), jax.random.key(0)
kept, watch = [], MemoryWatch()
for instant in range(4):
    kept += [jnp.copy(weights), jax.device_put(np.ones(7, np.int8))]
    gone = jnp.copy(weights)
    gone.delete()
    passing = jnp.copy(weights)
    jax.block_until_ready([kept, passing])  # what is not computed does not count
    watch.look(jax)
    del passing
    watch.look(jax)
    watch.sample(0.5 * instant)
found = {"arrays": watch.arrays(), "samples": watch.samples, "devices": device_memory(jax)}
print(msgspec.json.encode(found).decode())
"""


def watched(too_many: int = 1000) -> dict[str, Any]:
    """What is seen of a program that keeps a copy of its weights each half second."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(too_many)], capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def seen() -> dict[str, Any]:
    return watched()


def of(seen: dict[str, Any], *shape: int) -> dict[str, Any]:
    found: list[dict[str, Any]] = [e for e in seen["arrays"] if e["shape"] == list(shape)]
    assert len(found) == 1
    return found[0]


def test_arrays_that_pile_up_are_counted_at_each_instant(seen: dict[str, Any]) -> None:
    weights = of(seen, 64, 32)
    assert (weights["dtype"], weights["bytes_each"]) == ("float32", 4 * 64 * 32)
    assert weights["counts"] == [2, 3, 4, 5]


def test_the_shape_that_takes_most_memory_stands_first(seen: dict[str, Any]) -> None:
    assert seen["arrays"][0] == of(seen, 64, 32)
    assert of(seen, 7)["counts"] == [1, 2, 3, 4]


def test_samples_tell_when_and_how_much(seen: dict[str, Any]) -> None:
    samples = seen["samples"]
    assert [each["at_s"] for each in samples] == [0.0, 0.5, 1.0, 1.5]
    growth = {b["array_bytes"] - a["array_bytes"] for a, b in pairwise(samples)}
    assert growth == {4 * 64 * 32 + 7}
    assert all(each["rss_bytes"] > each["array_bytes"] for each in samples)


def test_keys_of_random_numbers_do_not_break_it(seen: dict[str, Any]) -> None:
    assert {"uint32", "key<fry>"} & {each["dtype"] for each in seen["arrays"]}


def test_the_cpu_keeps_no_account_of_its_own(seen: dict[str, Any]) -> None:
    assert seen["devices"] == []


def test_too_many_arrays_are_counted_once() -> None:
    assert len(watched(too_many=3)["samples"]) == 1


def test_nothing_is_listed_before_the_first_sample() -> None:
    assert MemoryWatch().arrays() == []


def array(number: int) -> SimpleNamespace:
    return SimpleNamespace(
        shape=(number,),
        dtype="int8",
        nbytes=number,
        is_deleted=lambda: number == 0,
        is_ready=lambda: number != 4,
    )


@pytest.mark.parametrize(("held", "grew"), [((), 0), ((5,), 0), ((5, 3), 0), ((5, 9, 8), 3)])
def test_what_arrays_have_grown_by_since_the_first_sample(held: tuple[int, ...], grew: int) -> None:
    watch = MemoryWatch()
    watch.samples = [MemorySample(at_s=0.0, rss_bytes=0, array_bytes=each) for each in held]
    assert watch.growth_bytes == grew


def test_of_many_shapes_the_largest_are_kept() -> None:
    watch = MemoryWatch()
    watch.look(SimpleNamespace(live_arrays=lambda: map(array, range(30))))
    watch.sample(0.0)
    assert [each.shape for each in watch.arrays()] == [(n,) for n in range(29, 29 - MOST, -1)]


def test_a_shape_that_was_not_there_before_counted_nothing_then() -> None:
    watch = MemoryWatch()
    watch.look(SimpleNamespace(live_arrays=list))
    watch.sample(0.0)
    watch.look(SimpleNamespace(live_arrays=lambda: [array(5)]))
    watch.sample(1.0)
    assert [each.counts for each in watch.arrays()] == [(0, 1)]


def test_what_is_not_computed_yet_or_gone_by_now_does_not_count() -> None:
    def taken_meanwhile() -> bool:
        raise RuntimeError("Array has been deleted.")

    gone = SimpleNamespace(is_deleted=lambda: False, is_ready=taken_meanwhile)
    watch = MemoryWatch()
    watch.look(SimpleNamespace(live_arrays=lambda: [array(0), array(4), array(5), gone]))
    watch.sample(0.0)
    assert [each.shape for each in watch.arrays()] == [(5,)]


def test_of_several_looks_the_fewest_of_each_shape_count() -> None:
    watch = MemoryWatch()
    for held in ([3, 3, 3, 8], [3, 3, 8, 8], [3, 3, 3, 8, 5]):
        watch.look(SimpleNamespace(live_arrays=lambda held=held: map(array, held)))
    watch.sample(0.5)
    watch.sample(1.0)  # nothing was looked at since
    assert {each.shape: each.counts for each in watch.arrays()} == {(3,): (2,), (8,): (1,)}
    assert [(each.at_s, each.array_bytes) for each in watch.samples] == [(0.5, 2 * 3 + 8)]


def test_what_has_no_size_takes_no_memory() -> None:
    assert size_bytes(object()) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="read from /proc")
def test_the_memory_of_this_process() -> None:
    assert rss_bytes() == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)


def allocator(**stats: int) -> SimpleNamespace:
    return SimpleNamespace(memory_stats=lambda: stats or None)


def test_accelerators_report_what_their_allocator_knows() -> None:
    whole = allocator(
        bytes_in_use=3,
        peak_bytes_in_use=5,
        bytes_limit=10,
        largest_free_block_bytes=4,
        pool_bytes=8,
    )
    jax = SimpleNamespace(local_devices=lambda: [whole, allocator(bytes_in_use=3), allocator()])
    first, second = device_memory(jax)
    assert (first.in_use_bytes, first.peak_bytes, first.limit_bytes) == (3, 5, 10)
    assert (first.largest_free_bytes, first.pool_bytes) == (4, 8)
    assert (second.in_use_bytes, second.peak_bytes, second.limit_bytes) == (3, 3, None)


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="asks glibc 2.33")
def test_allocated_memory_is_what_was_not_freed() -> None:
    before = allocated_bytes()
    kept = [bytearray(2**20) for _ in range(32)]
    assert 32 * 2**20 <= allocated_bytes() - before < 34 * 2**20
    kept.clear()
    assert allocated_bytes() - before < 2**20


FREED = """
import ctypes
from perfdoctor.observe.agent.memory import give_back_freed, rss_bytes
malloc, free = ctypes.CDLL(None).malloc, ctypes.CDLL(None).free
malloc.restype, free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
pieces = [malloc(50_000) for _ in range(2000)]
for piece in pieces:
    ctypes.memset(ctypes.c_void_p(piece), 1, 50_000)
last = malloc(50_000)
for piece in pieces:
    free(piece)
before = rss_bytes()
give_back_freed()
print(before - rss_bytes())
"""


def test_what_was_freed_goes_back_to_the_kernel() -> None:
    ran = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    assert int(ran.stdout) > 50_000_000
