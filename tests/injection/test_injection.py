"""A program with code of ours in it runs as it would without us."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.injection import FOLDER, injected
from perfdoctor.protocol import ATTACHED, BROKEN, RAISED, STOP
from tests.command import ROOT

LOOK = """
import json, os, sys
spec = None if __spec__ is None else [__spec__.name, __spec__.origin]
print(json.dumps({
    "argv": sys.argv,
    "orig_argv": sys.orig_argv,
    "path": sys.path,
    "file": __file__,
    "name": __name__,
    "package": __package__,
    "spec": spec,
    "environment": dict(os.environ),
    "main": sys.modules["__main__"].__dict__ is globals(),
    "customized": getattr(sys.modules.get("sitecustomize"), "__file__", None),
    "input": sys.stdin.read(),
    "folder": os.getcwd(),
}))
"""
NOTES = """
import os
from pathlib import Path

def attach(jax, orders):
    with (Path(orders["folder"]) / "attached-to").open("a") as file:
        print(jax.__name__, os.getpid(), orders["more"], file=file)
    if orders["more"] == "trouble":
        raise RuntimeError("our own trouble")
"""
"""Stands for what we inject."""
JAX = "value = 1\n"
"""Stands for jax: that it is imported is all that matters here."""


class Place:
    """A folder with a program, and with one for what we injected to leave its notes in."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "program"
        self.notes = folder / "notes"
        self.libraries = folder / "libraries"
        for each in (self.program, self.notes, self.libraries):
            each.mkdir()
        (self.libraries / "notes.py").write_text(NOTES)
        (self.libraries / "jax.py").write_text(JAX)

    def write(self, name: str, text: str) -> str:
        file = self.program / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return name

    def run(
        self,
        *command: str,
        ours: bool,
        env: Mapping[str, str] | None = None,
        more: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """A command of Python, with us or without."""
        whole = {**os.environ, "PYTHONPATH": str(self.libraries), **(env or {})}
        if ours:
            whole = injected(whole, "notes", folder=str(self.notes), more=more)
        return subprocess.run(
            [sys.executable, *command],
            env=whole,
            cwd=self.program,
            input="from stdin",
            capture_output=True,
            text=True,
            timeout=120,
        )

    def both(
        self, *command: str, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """The same with us and without."""
        without, with_us = (self.run(*command, ours=ours, env=env) for ours in (False, True))
        assert with_us.stdout == without.stdout
        assert with_us.stderr == without.stderr
        assert with_us.returncode == without.returncode
        return with_us

    @property
    def attached(self) -> list[str]:
        """The processes in which jax was imported."""
        file = self.notes / "attached-to"
        return file.read_text().splitlines() if file.exists() else []


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Without a program yet."""
    return Place(tmp_path)


def seen_by(answer: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """What the program saw of its world."""
    assert answer.returncode == 0, answer.stderr
    seen: dict[str, Any] = json.loads(answer.stdout)
    return seen


def test_a_script_sees_what_it_would_without_us(place: Place) -> None:
    place.write("train.py", LOOK)
    seen = seen_by(place.both("train.py", "--epochs", "1"))
    assert seen["argv"] == ["train.py", "--epochs", "1"]
    assert seen["name"] == "__main__"
    assert seen["spec"] is None
    assert seen["input"] == "from stdin"
    added = seen["environment"].keys() - os.environ.keys()
    assert not any("perfdoctor" in name.lower() for name in added)
    assert str(FOLDER) not in seen["path"]


@pytest.mark.parametrize("script", ["scripts/train.py", "./train.py"])
def test_a_script_in_another_folder(place: Place, script: str) -> None:
    place.write(script, LOOK)
    seen = seen_by(place.both(script))
    assert seen["path"][0] == str((place.program / script).parent)


def test_a_script_beside_its_modules(place: Place) -> None:
    place.write("model.py", "width = 3\n")
    script = place.write("train.py", "import model\nprint(model.width)\n")
    assert place.both(script).stdout == "3\n"


def test_a_module_with_relative_imports(place: Place) -> None:
    place.write("project/__init__.py", "")
    place.write("project/model.py", "width = 3\n")
    place.write("project/train.py", "from .model import width\n" + LOOK)
    seen = seen_by(place.both("-m", "project.train", "x"))
    assert seen["package"] == "project"
    assert seen["spec"][0] == "project.train"
    assert seen["argv"] == [str(place.program / "project" / "train.py"), "x"]


def test_a_package_with_a_main_module(place: Place) -> None:
    place.write("project/__init__.py", "")
    place.write("project/__main__.py", LOOK)
    assert seen_by(place.both("-m", "project"))["spec"][0] == "project.__main__"


@pytest.mark.parametrize("path", ["", "{}", "{}:/nowhere", ":{}", "{}:", "/nowhere::{}", "{}:{}"])
def test_the_path_of_the_user_is_kept(place: Place, path: str) -> None:
    script = place.write("sub/train.py", LOOK.replace("dict(os.environ)", '"x"'))
    env = {"PYTHONPATH": path.format(place.libraries, place.libraries)}
    answer = place.both(script, env=env)
    assert (str(place.libraries) in seen_by(answer)["path"]) == bool(path)


@pytest.mark.parametrize("path", ["{}", "{}:/nowhere", ":{}", "{}:"])
def test_the_variable_too_is_as_the_user_set_it(place: Place, path: str) -> None:
    script = place.write("train.py", LOOK)
    env = {"PYTHONPATH": path.format(place.libraries)}
    assert seen_by(place.both(script, env=env))["environment"]["PYTHONPATH"] == env["PYTHONPATH"]


def test_without_a_path_of_the_user_there_is_none(place: Place) -> None:
    script = place.write("train.py", LOOK)
    env = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    with_us = injected(env, "notes", folder=str(place.notes))
    command = [sys.executable, script]
    answer = subprocess.run(
        command, env=with_us, cwd=place.program, input="", capture_output=True, text=True
    )
    assert "PYTHONPATH" not in seen_by(answer)["environment"]


def test_a_sitecustomize_of_the_user_is_still_imported(place: Place) -> None:
    (place.libraries / "sitecustomize.py").write_text("import os; os.environ['THEIRS'] = '1'\n")
    script = place.write("train.py", LOOK)
    seen = seen_by(place.both(script))
    assert seen["customized"] == str(place.libraries / "sitecustomize.py")
    assert seen["environment"]["THEIRS"] == "1"


def test_a_sitecustomize_of_the_user_that_fails_says_what_it_would_without_us(
    place: Place,
) -> None:
    (place.libraries / "sitecustomize.py").write_text("raise ValueError('theirs')\n")
    script = place.write("train.py", "print('goes on')")
    without, with_us = (place.run(script, ours=ours) for ours in (False, True))
    assert with_us.stdout == without.stdout == "goes on\n"
    assert with_us.stderr.splitlines()[-1] == without.stderr.splitlines()[-1]


@pytest.mark.parametrize(
    "ending",
    [
        "sys.exit(7)",
        "sys.exit('a word')",
        "sys.exit()",
        "os._exit(3)",
        "os.abort()",
        "os.kill(os.getpid(), 9)",
        "os.kill(os.getpid(), 2)",
        "raise SystemExit(9)",
        "raise KeyboardInterrupt",
        "raise ValueError('mine')",
        "raise ExceptionGroup('two', [ValueError('a'), KeyError('b')])",
        "f(3)",
        "import no_such_module_at_all",
        "exec('x ==')",
        "pass",
    ],
)
@pytest.mark.parametrize("module", [False, True], ids=["script", "module"])
def test_a_program_ends_as_it_would_without_us(place: Place, ending: str, module: bool) -> None:
    program = f"""
import atexit, os, sys, jax
atexit.register(print, "at exit")
def f(depth):
    return f(depth - 1) if depth else 1 / 0
print("begins", flush=True)
{ending}
"""
    place.write("train.py", program)
    answer = place.both(*(["-m", "train"] if module else ["train.py"]))
    assert answer.stdout.startswith("begins\n")


def test_a_script_that_is_no_python(place: Place) -> None:
    script = place.write("train.py", "import jax\nx ==\n")
    answer = place.both(script)
    assert "SyntaxError" in answer.stderr
    assert (place.notes / RAISED).read_text() == "SyntaxError: invalid syntax (train.py, line 2)"


def test_a_script_that_is_not_there(place: Place) -> None:
    assert "No such file" in place.both("absent.py").stderr


def test_an_exception_of_a_thread(place: Place) -> None:
    threads = "import threading\nt = threading.Thread(target=int, args='x')\nt.start(); t.join()\n"
    script = place.write("train.py", threads + "print('goes on')")
    assert place.both(script).stdout == "goes on\n"
    assert not (place.notes / RAISED).exists()


def test_what_ends_the_program_is_written_down(place: Place) -> None:
    script = place.write("train.py", "raise ValueError('two\\nlines')")
    place.both(script)
    assert (place.notes / RAISED).read_text() == "ValueError: two"


def test_a_hook_of_the_program_has_the_last_word(place: Place) -> None:
    hook = "import sys\nsys.excepthook = lambda *args: print('hook', args[1])\nraise ValueError(1)"
    assert place.both(place.write("train.py", hook)).stdout == "hook 1\n"


def test_once_it_was_asked_to_stop_the_program_shows_no_traceback(place: Place) -> None:
    script = place.write("train.py", "raise KeyboardInterrupt")
    (place.notes / STOP).touch()
    assert place.run(script, ours=True).stderr == ""


def test_jax_is_attached_to_when_it_is_imported(place: Place) -> None:
    script = place.write("train.py", "import jax, os\nprint(jax.value, os.getpid())")
    answer = place.run(script, ours=True, more="yes")
    assert place.attached == [f"jax {answer.stdout.split()[1]} yes"]
    assert (place.notes / ATTACHED).exists()
    assert not (place.notes / BROKEN).exists()


def test_a_program_without_jax_is_not(place: Place) -> None:
    place.both(place.write("train.py", LOOK))
    assert list(place.notes.iterdir()) == []


def test_a_program_that_asks_for_jax_before_it_imports_it(place: Place) -> None:
    ask = "import importlib.util\nprint(importlib.util.find_spec('jax').origin)\nimport jax\n"
    place.both(place.write("train.py", ask))
    assert len(place.attached) == 1


def test_our_own_trouble_is_none_of_the_program(place: Place) -> None:
    script = place.write("train.py", "import jax\nprint(jax.value)")
    answer = place.run(script, ours=True, more="trouble")
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, "1\n", "")
    assert "our own trouble" in (place.notes / BROKEN).read_text()
    assert not (place.notes / ATTACHED).exists()


WORKERS = """
import multiprocessing, os, sys

def work(number):
    import jax
    hidden = [name for name in os.environ if "PERFDOCTOR" in name]
    return number * jax.value, hidden

if __name__ == "__main__":
    if "after" in sys.argv:
        import jax
    context = multiprocessing.get_context(sys.argv[1])
    with context.Pool(2) as pool:
        print(pool.map(work, range(4)))
    import jax
"""


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_work_and_are_left_alone(place: Place, method: str, when: str) -> None:
    place.both(place.write("train.py", WORKERS), method, when)
    assert len(place.attached) == 1


FORKS: Sequence[str] = (
    "sys.exit(0)",
    "raise ValueError('of the fork')",
    "os._exit(0)",
    "pass",
)


@pytest.mark.parametrize("end", FORKS)
def test_a_fork_leaves_no_notes(place: Place, end: str) -> None:
    fork = f"""
import os, sys
child = os.fork()
if child == 0:
    import jax
    {end}
else:
    os.waitpid(child, 0)
    print("parent")
"""
    place.both(place.write("train.py", fork))
    assert list(place.notes.iterdir()) == []


def test_subprocesses_of_the_program_are_left_alone(place: Place) -> None:
    place.write("helper.py", LOOK)
    script = place.write(
        "train.py",
        "import subprocess, sys\nsubprocess.run([sys.executable, 'helper.py', 'x'], check=True)",
    )
    assert seen_by(place.both(script))["customized"] is None
    assert list(place.notes.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="asks the kernel")
def test_a_program_does_not_outlive_who_started_it(place: Place) -> None:
    script = place.write("train.py", "import time\nprint('ready', flush=True)\ntime.sleep(600)")
    starter = f"""
import os, subprocess, sys
from perfdoctor.injection import injected
env = injected(os.environ, "notes", folder={str(place.notes)!r})
child = subprocess.Popen([sys.executable, {script!r}], env=env, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid)
"""
    answer = subprocess.run(
        [sys.executable, "-c", starter],
        cwd=place.program,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    stat = Path(f"/proc/{int(answer.stdout)}/stat")
    while stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z":
        os.sched_yield()
