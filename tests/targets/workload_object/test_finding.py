"""From package.module:name to a workload's parts, or to a sentence."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from perfdoctor.targets.workload_object.finding import LOG_EVERY, Given, Refused, given

WHOLE = """
class Whole:
    def init(self): return 0
    def step(self, state, batch): return state, batch
    def batches(self): yield 1

class Sized(Whole):
    batch_size, log_every = 8, 1
    def batches(self, batch_size=8): yield batch_size

class Inferring(Whole):
    def infer(self, state, batch): return state + batch

def make(): return Whole()
def make_of(size): return Whole()
def make_nothing(): return {}

whole, sized, inferring = Whole(), Sized(), Inferring()

class holder:
    inner = whole
"""
CASES = {
    "only_init": (
        "class W:\n    def init(self): return 0\nw = W()",
        "w",
        "a W without step(state,",
    ),
    "no_batches": (
        "class W:\n    def init(self): 0\n    def step(self, state, batch): 0\nw = W()",
        "w",
        "without batches()",
    ),
    "an_attribute": (WHOLE + "whole.step = 3", "whole", "whose step can't be called"),
    "one_argument": (
        WHOLE + "whole.step = lambda state: state",
        "whole",
        "its step can't be called as step(state, batch): too many positional arguments",
    ),
    "three_arguments": (
        WHOLE + "whole.step = lambda state, x, y: state",
        "whole",
        "missing a required argument: 'y'",
    ),
    "init_of_a_seed": (WHOLE + "whole.init = lambda seed: 0", "whole", "as init(): missing"),
    "no_name": (WHOLE, "whol", "has no 'whol'; did you mean whole?"),
    "a_factory_of_one": (WHOLE, "make_of", "make_of can't be called as make_of(): missing"),
    "a_dict": (WHOLE, "make_nothing", "make_nothing() gave a dict, which is no workload"),
    "a_number": (WHOLE + "number = 3", "number", "is an int without init()"),
    "no_infer": (WHOLE, "whole.infer", "without infer(state, batch)"),
    "a_size_of_text": (WHOLE + "sized.batch_size = '8'", "sized", "batch_size is '8'; expected an"),
    "a_size_of_none": (WHOLE + "sized.batch_size = 0", "sized", "batch_size is 0; expected an"),
    "logs_backwards": (WHOLE + "sized.log_every = -1", "sized", "log_every is -1"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory, from which modules come; they are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def of(folder: Path, module: str, source: str, name: str) -> Given:
    (folder / f"{module}.py").write_text(source)
    return given(f"{module}:{name}")


@pytest.mark.parametrize("name", ["whole", "Whole", "make", "holder.inner"])
def test_an_object_a_class_and_a_factory_are_workloads(folder: Path, name: str) -> None:
    found = of(folder, "objects_of_all_kinds", WHOLE, name)
    assert found.init() == 0 and found.step(1, 2) == (1, 2) and list(found.batches()) == [1]
    assert (found.batch_size, found.takes_batch_size, found.log_every) == (None, False, LOG_EVERY)


def test_a_module_that_has_the_parts_can_name_itself(folder: Path) -> None:
    source = """
import sys
def init(): return 0
def step(state, batch): return state, batch
def batches(): yield 1
workload = sys.modules[__name__]
"""
    assert of(folder, "its_own_workload", source, "workload").init() == 0


def test_what_it_offers_is_told(folder: Path) -> None:
    found = of(folder, "sized_workload", WHOLE, "sized")
    assert (found.batch_size, found.takes_batch_size, found.log_every) == (8, True, 1)
    assert list(found.batches(batch_size=32)) == [32]


def test_its_inference_is_a_step_that_keeps_the_state(folder: Path) -> None:
    found = of(folder, "inferring_workload", WHOLE, "inferring.infer")
    assert found.step(3, 4) == (3, 7)


def test_a_module_in_a_package_is_found(folder: Path) -> None:
    (folder / "a_package").mkdir()
    (folder / "a_package" / "__init__.py").touch()
    (folder / "a_package" / "inner.py").write_text(WHOLE)
    assert given("a_package.inner:whole").init() == 0


@pytest.mark.parametrize("case", CASES)
def test_what_is_no_workload_is_refused_in_a_sentence(folder: Path, case: str) -> None:
    source, name, says = CASES[case]
    with pytest.raises(Refused) as caught:
        of(folder, case, source, name)
    message = str(caught.value)
    assert says in message
    assert message.splitlines() == [message]


@pytest.mark.parametrize("name", ["not_there_at_all:w", "json.not_there:w"])
def test_a_module_that_is_not_there_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(Refused, match=r"there is no module '.*not_there"):
        given(name)


@pytest.mark.parametrize("source", ["import not_installed_anywhere", "1 / 0", "def f(:"])
def test_what_the_users_module_raises_is_the_users(folder: Path, source: str) -> None:
    with pytest.raises((ModuleNotFoundError, ZeroDivisionError, SyntaxError)):
        of(folder, f"raising_{abs(hash(source))}", source, "w")
