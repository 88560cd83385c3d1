import json
import logging
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from perfdoctor.injection import calls
from perfdoctor.observe.agent.compilation import (
    CACHE_HIT,
    CACHE_MISS,
    CALLS,
    DEPTH,
    RECOMPILED,
    CompilationWatch,
    callers,
)
from perfdoctor.schema.recording import Frame

NEW_TYPES = """\
TRACING CACHE MISS at /home/me/train.py:7:20 (<module>):
  for step defined at /home/me/train.py:4
  all previously seen cache keys differ. For the closest previous key:
  different input types:
  * at x, now f32[5] and before f32[4]"""
NEW_FUNCTION = """\
TRACING CACHE MISS at /home/me/train.py:7 (<module>):
  never seen function:
    step id=139657333396864 defined at /home/me/train.py:4"""
OLD_TYPES = """\
TRACING CACHE MISS at /home/me/train.py:7:20 (<module>) costing 0.919 ms because:
  for step defined at /home/me/train.py:4
  all previously seen cache keys are different. Closest previous key:
  * key with different input types:
      types now: p: f32[3], x: f32[5]
        * at x, now f32[5] and before f32[4]"""
TRACE, LOWER, COMPILE = (
    "/jax/core/compile/jaxpr_trace_duration",
    "/jax/core/compile/jaxpr_to_mlir_module_duration",
    "/jax/core/compile/backend_compile_duration",
)

PROGRAM = """
import json, logging, sys
import jax
from perfdoctor.observe.agent.compilation import CompilationWatch

watch = CompilationWatch()
watch.install(jax)

@jax.jit
def step(x):
    return x + 1

def train(size):
    step(jax.numpy.zeros(size)).block_until_ready()

train(4)
train(5)
phases = [event.phase for event in watch.events if event.function == "step"]
reason = watch.reasons["step"]
quiet = watch.quiet_for_s()
calls = [[function for _, _, function in stack] for stack in watch.calls["step"]]
print(json.dumps({"phases": phases, "reason": reason, "quiet": quiet, "calls": calls}))
"""
CACHED = """
import json, sys
import jax
from perfdoctor.observe.agent.compilation import CompilationWatch

watch = CompilationWatch()
watch.install(jax)
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.jit(lambda x: x + 1)(jax.numpy.zeros(4)).block_until_ready()
print(json.dumps(list(watch.cache.values())))
"""


def record(message: str, *arguments: object) -> logging.LogRecord:
    return logging.LogRecord("jax", logging.WARNING, __file__, 1, message, arguments, None)


@pytest.mark.parametrize("message", [NEW_TYPES, NEW_FUNCTION, OLD_TYPES])
def test_an_explanation_is_kept_and_not_logged(message: str) -> None:
    watch = CompilationWatch()
    assert not watch.filter(record(message))
    assert list(watch.reasons) == ["step"]


@pytest.mark.parametrize("message", [NEW_TYPES, OLD_TYPES])
def test_a_reason_names_the_argument_that_differs(message: str) -> None:
    watch = CompilationWatch()
    watch.filter(record(message))
    assert "at x, now f32[5] and before f32[4]" in watch.reasons["step"]
    assert "TRACING CACHE MISS" not in watch.reasons["step"]


def test_the_reason_of_a_new_function_says_so() -> None:
    watch = CompilationWatch()
    watch.filter(record(NEW_FUNCTION))
    assert watch.reasons["step"].startswith("never seen function:")


def test_the_newest_reason_counts() -> None:
    watch = CompilationWatch()
    watch.filter(record(NEW_FUNCTION))
    watch.filter(record(NEW_TYPES))
    assert "different input types" in watch.reasons["step"]


@pytest.mark.parametrize("name", ["<lambda>", "make.<locals>.step", "Model.__call__"])
def test_functions_with_odd_names(name: str) -> None:
    watch = CompilationWatch()
    watch.filter(record(NEW_TYPES.replace("for step ", f"for {name} ")))
    assert list(watch.reasons) == [name]


def test_an_explanation_that_names_no_function_is_still_not_logged() -> None:
    watch = CompilationWatch()
    assert not watch.filter(record("TRACING CACHE MISS, told in some way to come"))
    assert watch.reasons == {}


def test_other_messages_are_logged_as_ever() -> None:
    watch = CompilationWatch()
    assert watch.filter(record("for step defined at %s", "train.py"))
    assert watch.reasons == {}


def test_arguments_of_a_message_are_filled_in() -> None:
    watch = CompilationWatch()
    assert not watch.filter(record("%s", NEW_TYPES))
    assert list(watch.reasons) == ["step"]


def test_compile_events_are_written_down() -> None:
    watch = CompilationWatch()
    watch(TRACE, 0.5, fun_name="step")
    watch(COMPILE, 2.0, fun_name="jit(step)")
    assert [(event.phase, event.function, event.seconds) for event in watch.events] == [
        ("jaxpr_trace_duration", "step", 0.5),
        ("backend_compile_duration", "step", 2.0),
    ]


def test_other_events_of_jax_are_ignored() -> None:
    watch = CompilationWatch()
    watch("/jax/checkpoint/write/duration", 1.0)
    assert watch.events == []
    assert watch.last_ns == 0


def test_an_event_without_a_function_is_kept() -> None:
    watch = CompilationWatch()
    watch(COMPILE, 1.0)
    assert watch.events[0].function == ""


def test_nothing_is_quiet_before_anything_compiled() -> None:
    assert CompilationWatch().quiet_for_s() == 0.0


def test_nothing_is_quiet_while_xla_compiles() -> None:
    watch = CompilationWatch()
    watch(LOWER, 0.1, fun_name="step")
    watch.last_ns -= 10**9
    assert watch.quiet_for_s() == 0.0


def test_quiet_is_counted_from_the_last_event() -> None:
    watch = CompilationWatch()
    watch(LOWER, 0.1, fun_name="step")
    watch(COMPILE, 0.1, fun_name="step")
    watch.last_ns -= 10**9
    assert watch.quiet_for_s() >= 1.0


def test_of_the_last_seconds_the_share_is_told_in_which_something_compiled() -> None:
    watch = CompilationWatch()
    assert watch.share_of_last(2.0) == 1.0  # nothing is known yet
    compiled(watch, "init", 1)
    assert watch.share_of_last(2.0) == 1.0  # not of so long
    for event in watch.events:
        event.end_ns -= 10 * 10**9
    assert watch.share_of_last(2.0) == 0.0
    compiled(watch, "step", 1, seconds=0.5)
    assert watch.share_of_last(2.0) == pytest.approx(0.25)
    watch(LOWER, 0.1, fun_name="step")
    assert watch.share_of_last(2.0) == 1.0  # something compiles


def test_a_compilation_without_lowering_leaves_nothing_open() -> None:
    watch = CompilationWatch()
    watch(COMPILE, 0.1, fun_name="step")
    watch(LOWER, 0.1, fun_name="step")
    assert watch.quiet_for_s() == 0.0


def test_what_is_compiled_for_the_first_time_is_told_from_what_is_compiled_again() -> None:
    watch = CompilationWatch()
    assert not watch.is_compiling_something_new
    for function, is_new in (("init", True), ("step", True), ("step", False)):
        watch(LOWER, 0.1, fun_name=function)
        assert watch.is_compiling_something_new is is_new
        watch(COMPILE, 0.1, fun_name=f"jit({function})")
        assert not watch.is_compiling_something_new


def compiled(watch: CompilationWatch, function: str, times: int, seconds: float = 0.1) -> None:
    """A function is compiled so often, each time for so long."""
    for _ in range(times):
        watch(TRACE, seconds / 2, fun_name=function)
        watch(LOWER, seconds / 4, fun_name=function)
        watch(COMPILE, seconds / 4, fun_name=f"jit({function})")


def test_a_function_that_is_compiled_again_and_again_never_rests() -> None:
    watch = CompilationWatch()
    compiled(watch, "init", 1)
    compiled(watch, "step", RECOMPILED - 1)
    assert not watch.never_rests()
    compiled(watch, "step", 1)
    assert watch.never_rests()


def test_small_helpers_compiled_for_many_shapes_come_to_rest() -> None:
    watch = CompilationWatch()
    compiled(watch, "step", 1, seconds=20.0)
    compiled(watch, "reshape", 5 * RECOMPILED, seconds=0.01)
    assert not watch.never_rests()


def test_many_functions_compiled_once_come_to_rest() -> None:
    watch = CompilationWatch()
    for number in range(5 * RECOMPILED):
        compiled(watch, f"layer_{number}", 1)
    assert not watch.never_rests()


def test_nothing_compiled_is_at_rest() -> None:
    assert not CompilationWatch().never_rests()


def test_hits_and_misses_of_the_cache_are_counted() -> None:
    watch = CompilationWatch()
    for name in (CACHE_MISS, CACHE_HIT, CACHE_HIT, "/jax/checkpoint/restore"):
        watch.count(name, extra="x")
    assert watch.cache == {CACHE_HIT: 2, CACHE_MISS: 1}


def test_two_watches_count_for_themselves() -> None:
    first, second = CompilationWatch(), CompilationWatch()
    first.count(CACHE_HIT)
    assert second.cache[CACHE_HIT] == 0


def cached(folder: Path) -> tuple[int, int]:
    """Hits and misses of a run of the installed jax."""
    command = [sys.executable, "-c", CACHED, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    hits, misses = json.loads(done.stdout)
    return hits, misses


def test_the_cache_of_the_installed_jax_is_watched(tmp_path: Path) -> None:
    hits, misses = cached(tmp_path)
    assert hits == 0 and misses > 0
    assert cached(tmp_path) == (misses, 0)


def test_the_installed_jax_is_understood(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    seen = json.loads(done.stdout)
    assert seen["phases"].count("backend_compile_duration") == 2
    assert "at x, now f32[5] and before f32[4]" in seen["reason"]
    assert seen["quiet"] > 0
    assert seen["calls"] == [["train", "<module>"]] * 2
    assert "TRACING CACHE MISS" not in done.stderr


def test_the_first_event_is_told_once() -> None:
    told: list[bool] = []
    watch = CompilationWatch(first=lambda: told.append(True))
    watch("/jax/checkpoint/write/duration", 1.0)
    assert told == []
    compiled(watch, "step", 2)
    assert told == [True]


def test_only_the_first_stacks_of_a_function_are_kept() -> None:
    watch = CompilationWatch()
    compiled(watch, "step", 2 * CALLS)
    compiled(watch, "helper", 1)
    assert {name: len(stacks) for name, stacks in watch.calls.items()} == {
        "step": CALLS,
        "helper": 1,
    }


def deep(levels: int) -> list[Frame]:
    return deep(levels - 1) if levels else callers()


def test_the_callers_of_jax_are_told_innermost_first() -> None:
    found = deep(1)
    assert [function for _, _, function in found][:2] == [
        "deep",
        "test_the_callers_of_jax_are_told_innermost_first",
    ]
    assert found[0][0] == __file__


def test_a_deep_stack_loses_its_outermost_frames() -> None:
    assert [function for _, _, function in deep(2 * DEPTH)] == ["deep"] * DEPTH


def test_what_jax_says_of_its_cache_because_of_us_stays_out_of_the_log() -> None:
    watch = CompilationWatch()
    told = record("PERSISTENT COMPILATION CACHE MISS for 'jit_step' with key 'jit_step-49'")
    told.levelno = logging.WARNING
    assert not watch.filter(told)
    watch.explains_for_us = False  # the program asked for it itself
    assert watch.filter(told)
    told.levelno = logging.DEBUG  # as jax says it without being asked
    watch.explains_for_us = True
    assert watch.filter(told)


def config(dumps_to: str) -> Any:
    """Stands for jax."""
    values = {"jax_dump_ir_to": dumps_to}
    return SimpleNamespace(config=SimpleNamespace(values=values, update=values.__setitem__))


def test_what_we_compile_ourselves_is_neither_counted_nor_dumped() -> None:
    watch, jax = CompilationWatch(), config("/ours")
    with watch.deaf(jax):
        watch(COMPILE, 1.0, fun_name="step")
        assert jax.config.values["jax_dump_ir_to"] == ""
    assert (watch.events, watch.last_ns) == ([], 0)
    assert jax.config.values["jax_dump_ir_to"] == "/ours"
    watch(COMPILE, 1.0, fun_name="step")
    assert len(watch.events) == 1


def test_where_the_program_dumps_itself_that_stays() -> None:
    watch, jax = CompilationWatch(), config("/theirs")
    watch.dumps_for_us = False
    with watch.deaf(jax):
        assert jax.config.values["jax_dump_ir_to"] == "/theirs"


def test_it_hears_again_after_an_error() -> None:
    watch, jax = CompilationWatch(), config("/ours")
    with pytest.raises(ZeroDivisionError), watch.deaf(jax):
        raise ZeroDivisionError
    watch(COMPILE, 1.0, fun_name="step")
    assert len(watch.events) == 1
    assert jax.config.values["jax_dump_ir_to"] == "/ours"


def test_our_own_frames_are_not_among_the_callers() -> None:
    found: list[list[Frame]] = []

    def compiles() -> None:
        found.append(callers())

    exec(compile("compiles()", calls.__file__, "exec"), {"compiles": compiles})
    assert calls.__file__ not in [file for file, _, _ in found[0]]
    assert found[0][0][2] == "test_our_own_frames_are_not_among_the_callers"
