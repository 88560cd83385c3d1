"""The agent in a real process: the program runs as without it, and is recorded."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from perfdoctor.injection import injected
from perfdoctor.observe.agent import waiting, watch
from perfdoctor.observe.agent.compilation import CompilationWatch
from perfdoctor.observe.agent.steadiness import QUIET_S
from perfdoctor.observe.agent.waiting import GAP_S
from perfdoctor.observe.agent.watch import Watcher
from perfdoctor.observe.digest import xplane
from perfdoctor.protocol import ATTACHED, BROKEN, STOP
from perfdoctor.schema.capture import MANIFEST
from perfdoctor.schema.digest import Digest
from tests.benchmarks.watched import Resting

ENDS_S = 100.0
"""The clock of the test: when the program ends."""
LIMIT_S = 120.0
"""Generous: reached only where something is wrong."""
BEGIN = """
import jax, jax.numpy as jnp, os, signal, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
step = jax.jit(lambda p, x: p + jnp.tanh(x @ p).mean(), donate_argnums=0)
p, x, steps = jnp.ones((64, 64)), jnp.ones((8, 64)), 0

def train(p, seconds=0.0, until=None):
    began, steps = time.monotonic(), 0
    while time.monotonic() - began < seconds or (until and not (folder / until).exists()):
        p = step(p, x)
        steps += 1
        if steps % 100 == 0:
            p.block_until_ready()
    return p

print("begins", flush=True)
"""
TRAINING = (
    BEGIN
    + """
try:
    train(p, until="never")
finally:
    print("ends")
"""
)
OLD_JAX = version("jax").startswith("0.8.")
INTERRUPTED = -2
"""How a shell sees a program that Ctrl-C has ended."""


def watched(
    tmp_path: Path,
    program: str,
    answers: Sequence[float] = (),
    window_s: float = 0.5,
    capture_to: Path | None = None,
) -> subprocess.CompletedProcess[str]:
    """A script run under the agent, whose first windows are answered so, and then told to stop."""
    script, folder = tmp_path / "patient.py", tmp_path / "recording"
    script.write_text(program)
    folder.mkdir()
    env = injected(
        os.environ,
        "perfdoctor.observe.agent.watch",
        folder=str(folder),
        steady_within_s=30.0,
        window_s=window_s,
        capture_to=capture_to and str(capture_to),
    )
    child = subprocess.Popen(
        [sys.executable, str(script), str(folder)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        follow(child, folder, list(answers))
        output, errors = child.communicate(timeout=LIMIT_S)
    finally:
        child.kill()
    assert not (folder / BROKEN).exists(), (folder / BROKEN).read_text()
    return subprocess.CompletedProcess(child.args, child.returncode, output, errors)


def follow(child: subprocess.Popen[str], folder: Path, answers: list[float]) -> None:
    """As the doctor does: an answer to each window."""
    until, window = time.monotonic() + LIMIT_S, 1
    while child.poll() is None and time.monotonic() < until:
        time.sleep(0.02)
        if not (folder / f"recorded-{window}").exists():
            continue
        if not answers:
            (folder / STOP).touch()
            return
        beside = folder / "answer"
        beside.write_text(str(answers.pop(0)))
        beside.rename(folder / f"again-{window}")
        window += 1


def recording(tmp_path: Path) -> dict[str, Any]:
    """What the agent wrote."""
    found: dict[str, Any] = json.loads((tmp_path / "recording" / "recording.json").read_text())
    return found


def test_a_program_without_jax_leaves_nothing(tmp_path: Path) -> None:
    answer = watched(tmp_path, "import sys; print(__name__); sys.exit(7)")
    assert (answer.returncode, answer.stdout, answer.stderr) == (7, "__main__\n", "")
    assert list((tmp_path / "recording").iterdir()) == []


def test_a_program_in_which_jax_computes_nothing_leaves_no_recording(tmp_path: Path) -> None:
    answer = watched(tmp_path, "import jax; print(jax.__name__)")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "jax\n", "")
    assert (tmp_path / "recording" / ATTACHED).exists()
    assert not (tmp_path / "recording" / "recording.json").exists()


def test_an_exception_of_the_program_is_its_own(tmp_path: Path) -> None:
    answer = watched(tmp_path, BEGIN + "train(p, 0.1)\nraise ValueError('mine')")
    assert answer.returncode == 1
    assert answer.stderr.splitlines()[-1] == "ValueError: mine"
    assert answer.stderr.count("File ") == 1


def test_a_program_that_ends_before_it_is_steady_has_no_window(tmp_path: Path) -> None:
    made = "jax.config.update('jax_debug_infs', True)\n"
    answer = watched(tmp_path, BEGIN + made + "step(p, x)")
    assert (answer.returncode, answer.stderr) == (0, "")
    seen = recording(tmp_path)
    assert seen["window"] is None
    assert seen["settings"]["jax_debug_infs"] is True
    assert {event["function"] for event in seen["compiles"]} >= {"<lambda>"}


def test_a_program_that_ends_before_it_is_steady_has_told_its_step(tmp_path: Path) -> None:
    short = "for _ in range(300):\n    p = step(p, x)\n    time.sleep(0.001)\nprint('ends')"
    folder = tmp_path / "captured"
    folder.mkdir()
    answer = watched(tmp_path, BEGIN + short, capture_to=folder)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "begins\nends\n", "")
    seen = recording(tmp_path)
    assert seen["window"] is None
    (call,) = seen["step_calls"]["calls"]
    assert {leaf["argument"]: leaf["role"] for leaf in call["leaves"]} == {
        "p": "state",
        "x": "constant",
    }
    assert seen["step_calls"]["time_ms"] >= 1.0
    manifest = json.loads((folder / MANIFEST).read_bytes())
    assert manifest["made"] == ["p", "x"]


def test_a_program_that_ends_in_the_window_is_recorded_until_then(tmp_path: Path) -> None:
    program = BEGIN + "p = train(p, until='open-1')\ntrain(p, 0.3)\nprint('ends')"
    answer = watched(tmp_path, program, window_s=LIMIT_S)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "begins\nends\n", "")
    seen = recording(tmp_path)
    assert seen["window"]["end_ns"] - seen["window"]["start_ns"] < LIMIT_S * 1e9
    assert list((tmp_path / "recording" / "trace").rglob("*.xplane.pb"))


def test_who_never_rests_is_known_before_the_window(tmp_path: Path) -> None:
    begin = "import subprocess\nother = subprocess.Popen([sys.executable, '-c', 'while 1: pass'])\n"
    end = "p = train(p, until='open-1')\ntrain(p, 0.3)\nother.kill()\nother.wait()"
    watched(tmp_path, BEGIN + begin + end, window_s=LIMIT_S)
    (restless,) = recording(tmp_path)["step_calls"]["restless"]
    assert restless["is_process"] and restless["is_program"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training run that was watched until it was asked to stop."""
    folder = tmp_path_factory.mktemp("trained")
    answer = watched(folder, TRAINING)
    assert (answer.returncode, answer.stdout) == (INTERRUPTED, "begins\nends\n")
    assert answer.stderr == ""
    return folder


def test_a_training_run_is_traced_when_steady_and_then_asked_to_stop(trained: Path) -> None:
    seen = recording(trained)
    assert seen["window"]["steady"]
    assert seen["window"]["end_ns"] > seen["window"]["start_ns"]
    assert {event["function"] for event in seen["compiles"]} >= {"<lambda>"}
    assert len(seen["samples"]) > 20
    assert seen["live_objects"] > 1000
    assert list((trained / "recording" / "trace").rglob("*.xplane.pb"))
    assert not (trained / "recording" / "open-2").exists()


def test_a_glance_was_taken_before_the_window(trained: Path) -> None:
    folder = trained / "recording"
    preview, window = (xplane.read(folder / name) for name in ("preview", "trace"))
    assert preview is not None and window is not None
    for each in preview.runs.keys() & window.runs.keys():  # jax 0.8 tells of none
        earlier, later = preview.runs[each].last, window.runs[each].first
        assert earlier.number < later.number
        assert earlier.begin_ns < later.begin_ns


def test_its_own_code_is_told(trained: Path) -> None:
    seen = recording(trained)
    assert seen["own"] == [str(trained)]
    assert [str(trained / "patient.py"), "train"] in [
        [file, name] for stack in seen["calls"]["<lambda>"] for file, _, name in stack
    ]


def test_its_memory_is_sampled_over_the_window(trained: Path) -> None:
    seen = recording(trained)
    instants = [sample["at_s"] for sample in seen["memory_samples"]]
    assert len(instants) >= 2
    assert instants == sorted(instants)
    assert [8, 64] in [each["shape"] for each in seen["arrays"]]
    assert {len(each["counts"]) for each in seen["arrays"]} == {len(instants)}
    assert min(seen["peak_rss_bytes"], seen["rss_bytes"]) > 0


def test_its_threads_are_counted(trained: Path) -> None:
    threads = recording(trained)["threads"]
    assert threads["ran"] >= 1
    assert sum(threads["by_name"].values()) >= threads["ran"]
    assert threads["children"] == 0


def test_its_programs_are_written_down(trained: Path) -> None:
    seen = recording(trained)
    (step,) = (each for each in seen["executables"] if each["name"] == "jit__lambda")
    assert step["alias_bytes"] == 4 * 64 * 64
    assert (trained / "recording" / "executables" / step["file"]).exists()
    assert seen["failures"] == {}


def test_the_digest_understands_what_was_recorded(trained: Path) -> None:
    folder = trained / "recording"
    command = [sys.executable, "-m", "perfdoctor.observe.digest", str(folder)]
    subprocess.run(command, check=True)
    found = msgspec.json.decode((folder / "digest.json").read_bytes(), type=Digest)
    assert found.steps is not None and found.executable is not None
    assert (found.steps.function, found.steps.threads) == ("<lambda>", 1)
    assert len(found.steps.busy_shares) == recording(trained)["devices"]
    assert found.program is not None and found.program.function == "<lambda>"
    assert "executable" not in found.not_measured
    assert found.next_window_s is None


RESTING = BEGIN + "p = train(p, 0.1)\ntime.sleep(2.5)\ntrain(p, until='never')"


def test_a_window_follows_the_other_for_as_long_as_it_is_asked_for(tmp_path: Path) -> None:
    answer = watched(tmp_path, RESTING, answers=[0.2, 0.7])
    assert (answer.stdout, answer.stderr) == ("begins\n", "")
    folder = tmp_path / "recording"
    assert {f"{name}-3" for name in ("open", "closed", "recorded")} <= {
        file.name for file in folder.iterdir()
    }
    window = recording(tmp_path)["window"]
    assert window["end_ns"] - window["start_ns"] >= 0.7e9
    (trace,) = (folder / "trace").rglob("*.xplane.pb")
    assert b"PjitFunction(" in trace.read_bytes()
    instants = [at_ns for at_ns, _ in recording(tmp_path)["samples"]]
    assert window["start_ns"] <= min(instants) <= max(instants) <= window["end_ns"] + 1e9


def test_a_program_that_takes_leave_of_ctrl_c_may_do_so(tmp_path: Path) -> None:
    program = f"""{BEGIN}
try:
    train(p, until="never")
except KeyboardInterrupt:
    print("saved a checkpoint")
    sys.exit(4)
"""
    answer = watched(tmp_path, program)
    assert (answer.returncode, answer.stdout) == (4, "begins\nsaved a checkpoint\n")
    assert answer.stderr == ""


def test_a_program_that_ignores_ctrl_c_goes_on(tmp_path: Path) -> None:
    program = f"""{BEGIN}
signal.signal(signal.SIGINT, signal.SIG_IGN)
p = train(p, until="stop")
train(p, 0.5)
print("ends by itself")
"""
    answer = watched(tmp_path, program)
    assert (answer.returncode, answer.stdout) == (0, "begins\nends by itself\n")
    assert answer.stderr == ""
    assert recording(tmp_path)["window"] is not None


def test_a_program_that_ends_just_as_it_is_asked_to_stop_ends_well(tmp_path: Path) -> None:
    answer = watched(tmp_path, BEGIN + "train(p, until='stop')\nprint('ends')")
    assert answer.stderr == ""
    assert recording(tmp_path)["window"] is not None


FORKING = f"""{BEGIN}
import warnings
warnings.simplefilter("ignore")
train(p, 0.1)
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
print(sorted(file.name for file in folder.iterdir() if file.name.startswith("recording")))
"""


@pytest.mark.skipif(OLD_JAX, reason="jax 0.8 hangs in such a fork without us too")
def test_a_fork_that_exits_normally_writes_nothing(tmp_path: Path) -> None:
    answer = watched(tmp_path, FORKING, window_s=LIMIT_S)
    assert (answer.returncode, answer.stdout) == (0, "begins\n[]\n")
    assert answer.stderr == ""
    assert (tmp_path / "recording" / "recording.json").exists()


FORKED_FIRST = """
import os, sys, time, jax, warnings
warnings.simplefilter("ignore")
child = os.fork()
if child == 0:
    jax.jit(lambda x: x + 1)(1.0).block_until_ready()
    time.sleep(2)
    sys.exit(0)
os.waitpid(child, 0)
print(sorted(os.listdir(sys.argv[1])))
"""


def test_a_fork_that_compiles_is_not_watched(tmp_path: Path) -> None:
    answer = watched(tmp_path, FORKED_FIRST, window_s=LIMIT_S)
    assert answer.returncode == 0
    assert "open-1" not in answer.stdout and "recording.json" not in answer.stdout


TRACES_IN_WINDOW = f"""{BEGIN}
p = train(p, until="open-1")
jax.profiler.start_trace(str(folder / "theirs"))
p = train(p, 0.2)
jax.profiler.stop_trace()
train(p, until="never")
"""


def test_a_program_that_traces_itself_ends_our_window(tmp_path: Path) -> None:
    answer = watched(tmp_path, TRACES_IN_WINDOW, answers=[0.3], window_s=LIMIT_S)
    assert answer.stderr == ""
    folder = tmp_path / "recording"
    assert len(list((folder / "theirs").rglob("*.xplane.pb"))) == 1
    assert len(list((folder / "trace").rglob("*.xplane.pb"))) == 1
    assert (folder / "recorded-2").exists()


TRACES_FIRST = f"""{BEGIN}
with jax.profiler.trace(str(folder / "theirs")):
    p = train(p, 2.5)
    print(time.time_ns())
train(p, until="never")
"""


def test_a_program_that_already_traces_is_waited_for(tmp_path: Path) -> None:
    answer = watched(tmp_path, TRACES_FIRST)
    assert answer.stderr == ""
    theirs_ns = int(answer.stdout.split()[1])
    assert recording(tmp_path)["window"]["start_ns"] > theirs_ns
    assert len(list((tmp_path / "recording" / "theirs").rglob("*.xplane.pb"))) == 1


class Clock:
    """Time that passes only while the watcher waits; stands in for `time` and for its event."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def time_ns(self) -> int:
        return round(self.now_s * 1e9)

    def wait(self, seconds: float) -> bool:
        self.now_s += seconds
        return self.is_set()

    def is_set(self) -> bool:
        return self.now_s > 1000.0 + ENDS_S


class Compilations:
    """As the watch sees them, at these seconds from the begin."""

    events: Sequence[object] = ()

    def __init__(self, clock: Clock, *at_s: float) -> None:
        self._clock, self._begin_s, self._at_s = clock, clock.now_s, at_s

    def quiet_for_s(self) -> float:
        passed_s = self._clock.now_s - self._begin_s
        return passed_s - max(at_s for at_s in self._at_s if at_s <= passed_s)

    def share_of_last(self, seconds: float) -> float:
        """All of it until they rest: what compiles now and then has tests of its own."""
        return float(self.quiet_for_s() < seconds)


class Traces:
    """A profiler that notes when it stopped."""

    taken = False

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.stopped_s: list[float] = []

    def start(self, folder: Path) -> bool:
        folder.mkdir()
        return True

    def stop(self) -> None:
        self.stopped_s.append(self._clock.now_s)


def waited_for(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    *compiled_s: float,
    kind: type[Watcher] = Watcher,
) -> tuple[float, list[float]]:
    """When a program that compiles then counts as steady, and when previews of it ended."""
    clock = Clock()
    monkeypatch.setattr(watch, "time", clock)
    monkeypatch.setattr(waiting, "time", clock)
    watcher, traces = kind(folder, steady_within_s=60.0, window_s=0.5), Traces(clock)
    watcher.jax = SimpleNamespace(default_backend=lambda: backend)
    watcher.profiler = traces  # type: ignore[assignment]
    watcher.compilation = Compilations(clock, *compiled_s)  # type: ignore[assignment]
    watcher._ended = clock  # type: ignore[assignment]
    listeners: Any = SimpleNamespace(
        compilation=watcher.compilation,
        step=SimpleNamespace(glance=lambda: None),
        eager=SimpleNamespace(sample=lambda: None, candidates=[]),
    )
    watcher._waiting = waiting.Waiting(
        folder / "preview", watcher._ended, listeners, watcher._may_open
    )
    watcher._wait()
    return clock.now_s - 1000.0, [each - 1000.0 for each in traces.stopped_s]


def test_a_preview_is_taken_again_if_something_compiles_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steady_s, previews_s = waited_for(tmp_path, monkeypatch, "cpu", 0.0, 0.6)
    assert len(previews_s) == 2
    assert previews_s[0] < 0.6 < previews_s[1] < steady_s - GAP_S
    assert 0.6 + QUIET_S < steady_s < 0.6 + QUIET_S + 0.1  # no later than without it
    assert (tmp_path / "preview").exists()


def test_no_preview_is_taken_on_an_accelerator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steady_s, previews_s = waited_for(tmp_path, monkeypatch, "gpu", 0.0)
    assert previews_s == []
    assert QUIET_S < steady_s < QUIET_S + 0.1


@pytest.mark.parametrize(
    ("compiling", "seen"),
    [
        ([True, False], [None, None]),
        ([True, True, True], [None, None, "calls"]),
        ([False], [None]),
        ([True], ["calls"]),
    ],
)
def test_a_set_up_that_seems_calm_is_looked_at_again_once_the_step_is_compiled(
    tmp_path: Path, compiling: list[bool], seen: list[Any]
) -> None:
    """`compiling`, `seen`: after each look, whether something compiles, and the calls."""
    watcher = Watcher(tmp_path, steady_within_s=60.0, window_s=0.5)
    waits: list[int] = []
    left = list(zip(compiling, seen, strict=True))

    def look() -> None:
        is_compiling, watcher.step.calls = left.pop(0)
        watcher.compilation._pending = int(is_compiling)

    watcher.listeners.look_at_the_step = look  # type: ignore[method-assign]
    watcher._wait = lambda: waits.append(len(left))  # type: ignore[method-assign]
    watcher._learn_the_step()
    assert not left and len(waits) == len(seen) - 1


def test_a_window_is_not_opened_while_a_set_up_compiles_its_step(tmp_path: Path) -> None:
    for set_up_within_s, is_late in ((None, True), (60.0, False)):
        watcher = Watcher(
            tmp_path, steady_within_s=0.0, window_s=0.5, set_up_within_s=set_up_within_s
        )
        watcher.compilation = CompilationWatch()
        assert watcher._is_late()
        watcher.compilation("/jax/core/compile/jaxpr_to_mlir_module_duration", 0.1, fun_name="step")
        assert watcher._is_late() is is_late


def test_a_program_that_dispatches_operations_is_looked_at_once_though_it_compiles(
    tmp_path: Path,
) -> None:
    watcher = Watcher(tmp_path, steady_within_s=60.0, window_s=0.5)
    looks: list[str] = []

    def look() -> None:
        looks.append("look")
        watcher.eager.candidates = [SimpleNamespace()]  # type: ignore[list-item]
        watcher.compilation._pending = 1

    watcher.listeners.look_at_the_step = look  # type: ignore[method-assign]
    watcher._learn_the_step()
    assert looks == ["look"]


def test_the_observer_that_the_projects_own_gate_measures_never_opens_its_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    until_s, previews_s = waited_for(tmp_path, monkeypatch, "cpu", 0.0, kind=Resting)
    assert until_s > ENDS_S
    assert len(previews_s) == 1


@pytest.mark.parametrize(
    ("asked_s", "steady", "window_s", "usual"),
    [(0.5, True, 0.5, True), (0.5, False, 1.0, True), (3.0, True, 3.0, False)],
)
def test_only_a_length_that_was_asked_for_spares_a_trace_its_budget(
    asked_s: float,
    steady: bool,
    window_s: float,
    usual: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[Any] = []

    def trace(number: int, length_s: float, *, usual: bool, **others: Any) -> bool:
        seen.append((length_s, usual))
        return False

    watcher = Watcher(tmp_path, steady_within_s=1.0, window_s=0.5)
    watcher.windows = SimpleNamespace(trace=trace)  # type: ignore[assignment]
    monkeypatch.setattr(watch, "is_steady", lambda compilation: steady)
    watcher._trace_window(1, asked_s)
    assert seen == [(window_s, usual)]


@pytest.mark.parametrize(("text", "answer"), [("0.5", (0.5, False)), ("12.0 known", (12.0, True))])
def test_the_doctors_answer_is_understood(
    text: str, answer: tuple[float, bool], tmp_path: Path
) -> None:
    (tmp_path / "again-3").write_text(text)
    assert Watcher(tmp_path, steady_within_s=1.0, window_s=2.0)._answer(3) == answer


def test_a_stop_is_an_answer_too(tmp_path: Path) -> None:
    (tmp_path / STOP).touch()
    assert Watcher(tmp_path, steady_within_s=1.0, window_s=2.0)._answer(1) == (None, False)
