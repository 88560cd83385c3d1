"""Our use of the profiler beside the program's own, in a process with jax."""

import subprocess
import sys
from pathlib import Path

import pytest

BEGIN = """
import sys
from pathlib import Path
import jax
from perfdoctor.observe.agent.profiler import Profiler

profiler = Profiler(jax)
ours, theirs = (Path(sys.argv[1]) / name for name in ("ours", "theirs"))
step = jax.jit(lambda x: x + 1)
step(1.0).block_until_ready()
"""
TWICE = """
try:
    jax.profiler.start_trace(str(theirs))
except RuntimeError as error:
    print(error)
"""


def ran(folder: Path, program: str) -> str:
    """What a program prints after it has made a Profiler."""
    answer = subprocess.run(
        [sys.executable, "-c", BEGIN + program, str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout.strip()


def traced(folder: Path) -> list[str]:
    """Whose traces were written."""
    return sorted(
        each.name for each in folder.iterdir() if len(list(each.rglob("*.xplane.pb"))) == 1
    )


def test_a_trace_of_ours(tmp_path: Path) -> None:
    told = "print(profiler.start(ours), profiler.tracing, profiler.taken)\n"
    stop = "step(1.0); profiler.stop(); print(profiler.tracing, profiler.taken)"
    assert ran(tmp_path, told + stop).split() == ["True", "True", "False", "False", "False"]
    assert traced(tmp_path) == ["ours"]


def test_no_copy_of_the_profile_is_written_as_json_but_of_the_programs_own(tmp_path: Path) -> None:
    own = "jax.profiler.start_trace(str(theirs)); step(1.0); jax.profiler.stop_trace()"
    ran(tmp_path, f"profiler.start(ours); step(1.0); profiler.stop()\n{own}")
    copies = {each.relative_to(tmp_path).parts[0] for each in tmp_path.rglob("*.json*")}
    assert copies == {"theirs"}


def test_stopping_what_was_not_started_is_nothing(tmp_path: Path) -> None:
    ran(tmp_path, "profiler.stop(); profiler.start(ours); profiler.stop(); profiler.stop()")
    assert traced(tmp_path) == ["ours"]


@pytest.mark.parametrize(
    "theirs",
    [
        "jax.profiler.start_trace(str(theirs)); step(1.0); jax.profiler.stop_trace()",
        "jax.profiler.start_trace(log_dir=theirs); step(1.0); jax.profiler.stop_trace()",
        "with jax.profiler.trace(str(theirs), create_perfetto_link=False): step(1.0)",
        "from jax.profiler import start_trace as s; s(theirs); step(1); jax.profiler.stop_trace()",
    ],
)
def test_the_programs_own_trace_ends_ours_and_works(tmp_path: Path, theirs: str) -> None:
    told = "print(profiler.start(ours))\n" + theirs + "\nprint(profiler.tracing, profiler.taken)"
    assert ran(tmp_path, told).split() == ["True", "False", "False"]
    assert traced(tmp_path) == ["ours", "theirs"]


def test_while_the_program_traces_we_do_not(tmp_path: Path) -> None:
    begins = "jax.profiler.start_trace(str(theirs))\n"
    told = "print(profiler.taken, profiler.start(ours), profiler.tracing)\n"
    ends = "profiler.stop()\njax.profiler.stop_trace()\nprint(profiler.taken, profiler.start(ours))"
    assert ran(tmp_path, begins + told + ends + "\nprofiler.stop()").split() == [
        "True",
        "False",
        "False",
        "False",
        "True",
    ]
    assert traced(tmp_path) == ["ours", "theirs"]


def test_stopping_what_the_program_never_started_fails_as_without_us(tmp_path: Path) -> None:
    stop = "try: jax.profiler.stop_trace()\nexcept RuntimeError as error: print(error)\n"
    told = ran(tmp_path, f"profiler.start(ours)\n{stop}print(profiler.taken, profiler.start(ours))")
    assert told.splitlines() == ["No profile started", "False True"]


def test_a_program_that_starts_twice_hears_what_it_would_without_us(tmp_path: Path) -> None:
    start = "jax.profiler.start_trace(str(theirs))"
    with_us = ran(tmp_path, f"{start}\n{TWICE}\njax.profiler.stop_trace()")
    without = f"import jax, sys\ntheirs = sys.argv[1] + '/again'\n{start}\n{TWICE}"
    answer = subprocess.run(
        [sys.executable, "-c", f"{without}\njax.profiler.stop_trace()", str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert with_us == answer.stdout.strip() != ""


def test_it_looks_like_the_function_that_it_stands_before(tmp_path: Path) -> None:
    look = "print(jax.profiler.start_trace.__name__, 'log_dir' in jax.profiler.start_trace.__doc__)"
    assert ran(tmp_path, look) == "start_trace True"
