import os
import sys
import time
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from perfdoctor.injection.bootstrap import ATTACHED, RAISED, STOP
from perfdoctor.observe import session
from perfdoctor.observe.probing import Settings
from perfdoctor.observe.session import (
    Watched,
    compile_cache,
    digested,
    how_ended,
    last_line,
    memory,
    read_recording,
    reasons,
    settings_made,
    watch,
    why_failed,
    within,
)
from perfdoctor.processes import Ward
from perfdoctor.schema.digest import Digest
from perfdoctor.schema.launch import Launch
from perfdoctor.schema.memory import DeviceMemory, LiveArrays, MemorySample
from perfdoctor.schema.observation import Observation
from perfdoctor.schema.recording import Recording
from perfdoctor.schema.run import CompileCache, Failure
from tests.recorded import recorded

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
    "backend",
    "failure",
    "ended_s",
    "alone",
    "tried",
    "not_measured",
}
PARTS = set(Observation.__struct_fields__) - OTHER_PARTS


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """That of a run which logged nothing and left no recording."""
    (tmp_path / "log").write_text("")
    return tmp_path


def test_a_run_that_ended_well_did_not_fail(folder: Path) -> None:
    assert why_failed(folder, 0, 1.0) is None


def test_a_run_that_raised_failed(folder: Path) -> None:
    (folder / "log").write_text("Traceback …\nValueError: no such file\n")
    found = why_failed(folder, 1, 2.0)
    assert found is not None
    assert (found.stage, found.kind, found.seconds) == ("run", "raised", 2.0)
    assert found.message == "ValueError: no such file"


def test_what_ended_a_run_counts_more_than_what_it_wrote_last(folder: Path) -> None:
    (folder / "log").write_text("Traceback …\n  in two\nlines of its message\n")
    (folder / RAISED).write_text("ValueError: in two")
    found = why_failed(folder, 1, 2.0)
    assert found is not None
    assert (found.kind, found.message) == ("raised", "ValueError: in two")


def test_a_run_whose_output_went_elsewhere_tells_what_it_raised(folder: Path) -> None:
    (folder / RAISED).write_text("MemoryError: 80 GiB")
    found = why_failed(folder, 1, 1.0)
    assert found is not None
    assert (found.kind, found.message) == ("out-of-memory", "MemoryError: 80 GiB")


@pytest.mark.parametrize("code", [-2, 1, -9, None])
def test_a_run_that_was_asked_to_stop_before_it_made_steps_hung(
    folder: Path, code: int | None
) -> None:
    (folder / STOP).touch()
    (folder / "log").write_text("loading the data\n")
    found = why_failed(folder, code, 12.0)
    assert found is not None
    assert (found.kind, found.message) == ("hung", "no training step within 12 s")


@pytest.mark.parametrize(("bound", "usable"), [(0, 3.5), (2, 2.0), (4, 3.5), (8, 3.5)])
def test_a_program_that_binds_itself_to_fewer_cores_uses_those(bound: int, usable: float) -> None:
    machine = replace(recorded("healthy").host, affinity_cores=4, usable_cores=3.5)
    found = within(machine, bound)
    assert found.usable_cores == usable
    assert found.affinity_cores == (bound if bound == 2 else 4)


def test_a_run_that_left_nothing_is_put_in_words(folder: Path) -> None:
    assert how_ended(folder, 1.25).endswith("never imported jax")
    (folder / ATTACHED).touch()
    assert how_ended(folder, 1.25) == "the program ended after 1.2 s, and jax computed nothing"


def test_a_run_without_an_end_hung(folder: Path) -> None:
    found = why_failed(folder, None, 63.2)
    assert found is not None
    assert found.kind == "hung"
    assert "63 s" in found.message


def test_exhausted_memory_is_its_own_kind(folder: Path) -> None:
    (folder / "log").write_text("RESOURCE_EXHAUSTED: 9 GiB\n\nFor simplicity, …\n")
    found = why_failed(folder, 1, 1.0)
    assert found is not None
    assert found.kind == "out-of-memory"
    assert found.message == "RESOURCE_EXHAUSTED: 9 GiB"


def test_a_signal_kills_whatever_was_logged(folder: Path) -> None:
    (folder / "log").write_text("step 100: loss 0.3\n")
    found = why_failed(folder, -9, 1.0)
    assert found is not None
    assert (found.kind, found.message) == ("killed", "signal 9")


def test_a_failure_without_a_word_tells_its_status(folder: Path) -> None:
    found = why_failed(folder, 3, 1.0)
    assert found is not None
    assert (found.kind, found.message) == ("killed", "status 3")


def test_a_log_that_is_no_text_can_be_read(folder: Path) -> None:
    (folder / "log").write_bytes(b"\xff\xfe broken\nlast words\n")
    found = why_failed(folder, 1, 1.0)
    assert found is not None
    assert found.message == "last words"


def test_no_recording_where_none_was_left(folder: Path) -> None:
    assert read_recording(folder) is None


def made(
    at_import: Settings, in_the_end: Settings, env: dict[str, str]
) -> list[tuple[str, object, str]]:
    settings = settings_made(at_import, Recording(start_ns=0, settings=in_the_end), env)
    return [(setting.name, setting.value, setting.origin) for setting in settings]


def test_a_setting_that_changed_after_the_import_came_from_code() -> None:
    assert made({"jax_debug_nans": False}, {"jax_debug_nans": True}, {}) == [
        ("jax_debug_nans", True, "code")
    ]


def test_a_setting_that_the_environment_names_came_from_there() -> None:
    settings: Settings = {"jax_enable_x64": True, "jax_log_compiles": False}
    assert made(settings, settings, {"JAX_ENABLE_X64": "1"}) == [
        ("jax_enable_x64", True, "environment")
    ]


def test_code_has_the_last_word_over_the_environment() -> None:
    env = {"JAX_ENABLE_X64": "1"}
    assert made({"jax_enable_x64": True}, {"jax_enable_x64": False}, env) == [
        ("jax_enable_x64", False, "code")
    ]


def test_defaults_are_not_listed() -> None:
    settings: Settings = {"jax_enable_x64": False, "jax_platforms": None}
    assert made(settings, settings, {"HOME": "/home/me"}) == []


def test_a_failure_is_the_reason_for_every_missing_part() -> None:
    failure = Failure(stage="run", kind="killed", message="signal 9", seconds=1.0)
    found = reasons(Watched(None, None, None, failure))
    assert set(found) == PARTS
    assert all("signal 9" in why for why in found.values())


def test_the_digest_gives_its_own_reasons() -> None:
    digest = Digest(
        compiles=(),
        garbage=None,
        steps=None,
        program=None,
        executable=None,
        not_measured={"steps": "too few"},
    )
    assert reasons(Watched(None, digest, None, None)) == {"steps": "too few"}


def test_memory_is_what_was_recorded_and_what_is_left() -> None:
    found = memory(Recording(start_ns=0, rss_bytes=10, peak_rss_bytes=20))
    assert (found.rss_bytes, found.peak_rss_bytes) == (10, 20)
    assert 0 <= found.available_bytes <= psutil.virtual_memory().total


def test_memory_keeps_what_was_sampled() -> None:
    sample = MemorySample(at_s=0.5, rss_bytes=10, array_bytes=3)
    arrays = LiveArrays(shape=(3,), dtype="int8", counts=(1,), bytes_each=3)
    device = DeviceMemory(
        in_use_bytes=1, peak_bytes=2, limit_bytes=3, largest_free_bytes=None, pool_bytes=None
    )
    found = memory(
        Recording(
            start_ns=0,
            swapped_bytes=7,
            memory_samples=[sample],
            arrays=[arrays],
            device_memory=[device],
        )
    )
    assert found.swapped_bytes == 7
    assert (found.samples, found.arrays, found.devices) == ((sample,), (arrays,), (device,))


def cache_of(folder: str | None, hits: int = 0, misses: int = 0) -> CompileCache:
    settings: Settings = {"jax_compilation_cache_dir": folder}
    return compile_cache(
        Recording(start_ns=0, settings=settings, cache_hits=hits, cache_misses=misses)
    )


def test_the_cache_in_use_has_its_folder_and_counts() -> None:
    assert cache_of("/home/me/cache", 3, 1) == CompileCache(
        folder="/home/me/cache", hits=3, misses=1
    )


@pytest.mark.parametrize("folder", [None, ""])
def test_a_cache_without_a_folder_is_not_in_use(folder: str | None) -> None:
    assert cache_of(folder).folder is None
    assert compile_cache(Recording(start_ns=0)).folder is None


TRAINING = """
import sys, time
from pathlib import Path
import jax, jax.numpy as jnp

@jax.jit
def step(x):
    return jnp.tanh(x @ x)

def train(x, seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for _ in range(10):
            x = step(x)
        x.block_until_ready()

print("begins", flush=True)
"""


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows of less than a second."""
    monkeypatch.setattr(session, "WINDOW_S", 0.6)


def watched(
    folder: Path, program: str, limit_s: float = 60.0, output: int | None = None
) -> tuple[Watched, list[str]]:
    """A script that was watched, and what was said meanwhile; nothing of it is left."""
    (folder / "patient.py").write_text(program)
    said: list[str] = []
    launch = Launch(command=("patient.py",), env=dict(os.environ), folder=folder, output=output)
    with Ward() as ward:
        found = watch(launch, ward, limit_s, said.append, None)
        assert (ward._children, ward._folders) == ([], [])
    return found, said


def test_a_run_that_goes_on_is_ended_once_enough_was_seen(short: None, tmp_path: Path) -> None:
    seen, said = watched(tmp_path, TRAINING + "train(jnp.ones((99, 99)), 600)")
    assert seen.failure is None
    assert seen.digest is not None and seen.digest.steps is not None
    assert seen.digest.steps.function == "step"
    assert seen.recording is not None and seen.recording.own == [str(tmp_path)]
    assert seen.load is not None and seen.gpus is not None
    assert "reading the trace" in said


def test_a_run_that_ends_by_itself_is_understood_too(short: None, tmp_path: Path) -> None:
    seen, _ = watched(tmp_path, TRAINING + "train(jnp.ones((99, 99)), 5)\nsys.exit(3)")
    assert seen.recording is not None and seen.recording.window is not None
    assert seen.digest is not None


def test_its_output_goes_where_it_is_wanted(short: None, tmp_path: Path) -> None:
    with (tmp_path / "output").open("wb") as file:
        watched(tmp_path, TRAINING + "train(jnp.ones((99, 99)), 600)", output=file.fileno())
    assert (tmp_path / "output").read_text() == "begins\n"


def test_a_program_without_jax_is_told_from_one_that_failed(tmp_path: Path) -> None:
    seen, _ = watched(tmp_path, "print('nothing to do with it')")
    assert (seen.failure, seen.recording, seen.digest) == (None, None, None)
    assert seen.ended is not None and seen.ended.endswith("never imported jax")
    assert set(reasons(seen).values()) == {seen.ended}


def test_a_program_that_raises_before_its_steps_failed(tmp_path: Path) -> None:
    seen, _ = watched(tmp_path, "import jax\nraise ValueError('no such\\nfile')")
    assert seen.failure is not None
    assert (seen.failure.kind, seen.failure.message) == ("raised", "ValueError: no such")


def test_a_program_that_makes_no_step_in_time_hung(short: None, tmp_path: Path) -> None:
    seen, _ = watched(tmp_path, "import time\ntime.sleep(600)", limit_s=2.0)
    assert seen.failure is not None
    assert seen.failure.kind == "hung"


def test_a_program_that_will_not_stop_is_ended(
    short: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "LEAVE_S", 0.5)
    deaf = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    seen, _ = watched(tmp_path, TRAINING + deaf + "train(jnp.ones((99, 99)), 600)")
    assert seen.failure is None
    assert seen.digest is not None and seen.digest.steps is not None


EAGER = """
import jax, jax.numpy as jnp
params, x = [jnp.full((16, 16), 0.01) for _ in range(100)], jnp.ones((8, 16))

def loss(params, x):
    for w in params:
        x = jnp.tanh(x @ w) + x
    return x.mean()

while True:
    params = [p - 0.1 * g for p, g in zip(params, jax.grad(loss)(params, x))]
"""


def test_a_step_of_a_thousand_operations_is_understood_although_the_time_is_up(
    tmp_path: Path,
) -> None:
    begin = time.monotonic()
    seen, _ = watched(tmp_path, EAGER, limit_s=12.0)
    assert time.monotonic() - begin < 12.0 + 10.0
    if seen.digest is not None and seen.digest.steps is not None:
        assert seen.failure is None
    else:
        assert seen.failure is not None


def test_a_trace_that_takes_too_long_to_read_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for_ever = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(session, "python_module", lambda *arguments: for_ever)
    monkeypatch.setattr(session, "READING_S", 0.2)
    with Ward() as ward:
        assert digested(tmp_path, ward, time.monotonic()) is None
        assert ward._children == []
    assert last_line(tmp_path) == "the budget ended before its trace was read; give it more"


DONATING = """
import jax, jax.numpy as jnp
step = jax.jit(lambda p, x: (p @ x).sum(), donate_argnums=0)
for size in (3, 3, 4):
    step(jnp.ones((size, 4)), jnp.ones(4)).block_until_ready()
print("no warning")
"""


def test_a_warning_of_the_installed_jax_becomes_a_message(tmp_path: Path) -> None:
    seen, _ = watched(tmp_path, DONATING)
    assert seen.failure is None
    assert seen.recording is not None
    messages = seen.recording.messages
    assert len(messages) == 2
    for message, shape in zip(messages, ("3,4", "4,4"), strict=True):
        assert message.startswith("Some donated buffers were not usable: ")
        assert shape in message
