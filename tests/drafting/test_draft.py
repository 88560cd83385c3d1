"""Drafts of workload modules: each is run, as a user would run it."""

import ast
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from perfdoctor.drafting.draft import CHOICES, Choice, Draft, drafted
from perfdoctor.drafting.inputs import inputs_of
from perfdoctor.drafting.program import program_of
from perfdoctor.drafting.site import parameters_of, site_of
from perfdoctor.schema.calls import Call, Leaf, Role

FLAT = """
'''A plain script.'''
import sys, time
import numpy as np

RATE = 0.1
rng = np.random.default_rng(0)

def load(n):
    # this comment is kept
    return rng.normal(size=(n, 3)).astype("float32")

def step(params, x):
    return params - RATE * x.mean(0), float(x.sum())

print("no part of it")
params = np.ones(3, "float32")
for epoch in range(10):
    for x in (load(8) for _ in range(5)):
        params, loss = step(params, x)
        print(loss)
"""
GUARDED = """
import argparse
import numpy as np

def make(size):
    return {"w": np.ones(size, "float32")}

def train_step(params, batch, scale):
    new = {"w": params["w"] * scale}
    return new, batch["y"].sum(), batch["x"].sum()

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", type=int, default=2)
    args = parser.parse_args()
    params, scale = make(args.size), 0.5
    data = iter(lambda: {"x": np.ones((4, 2)), "y": np.zeros(4)}, None)
    while True:
        batch = next(data)
        params, loss, other = train_step(params, batch, scale)

if __name__ == "__main__":
    main()
"""
CLOSURE = """
import numpy as np

def main(rate=0.25):
    model = lambda w, x: (w * x).mean()
    def train_step(w, x):
        return w - rate * model(w, x), 0.0
    w = np.ones(2)
    for count in range(3):
        out = train_step(w, np.full(2, count))
        w = out[0]

main()
"""
UNKNOWN = """
import numpy as np

def step(params, x):
    return params, x.sum()

def train(params, loader):
    for x, y in loader:
        params, loss = step(params, x)
"""
FEEDING_BACK = """
import numpy as np

def step(params, seen):
    return params, seen + 1

params, seen = np.ones(2), np.zeros(3)
while True:
    params, seen = step(params, seen)
"""
STARRED = """
import numpy as np
class Trainer:
    pass
trainer = Trainer()
trainer.params = np.ones(2)
def update(params, x, y):
    return params + 1, (x - y).sum()
fast = jit_of = (lambda f: f)(update)
def batches():
    while True:
        yield np.ones((5, 2)), np.zeros((5, 2))
for batch in batches():
    trainer.params, loss = update(trainer.params, *batch)
"""


def leaf(argument: str, role: Role, shape: tuple[int, ...], source: int | None = None) -> Leaf:
    return Leaf(
        argument=argument,
        role=role,
        kind="host",
        shape=shape,
        dtype="float32",
        bytes=4,
        source=None if source is None else (0, source),
    )


def call_of(function: str, *leaves: Leaf) -> Call:
    return Call(
        function=function,
        leaves=leaves,
        before_ms=0.0,
        before_cpu_ms=0.0,
        inside_ms=0.0,
        inside_cpu_ms=0.0,
    )


def draft_of(
    folder: Path, text: str, call: Call, choice: Choice = CHOICES[0], *arguments: str
) -> Draft:
    file = folder / "train.py"
    file.write_text(text)
    program = program_of(file, "train", "train.py", arguments, str(folder))
    site = site_of(call.function, program.tree)
    assert site is not None
    inputs = inputs_of(site, call, parameters_of(call.function, program.tree))
    return drafted(program, site, inputs, choice, "workload")


def ran(draft: Draft, steps: int = 3) -> tuple[Any, Any, list[Any]]:
    """The state after some steps, the metrics of each, and the batches."""
    space: dict[str, Any] = {"__name__": "workload"}
    exec(compile(ast.parse(draft.text), "workload.py", "exec"), space)
    workload = space["workload"]
    state, told = workload.init(), []
    batches = list(islice(workload.batches(), steps))
    for batch in batches:
        state, metrics = workload.step(state, batch)
        told.append(metrics)
    return state, told, batches


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """What drafts import and add to the path."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "train", raising=False)


STEP = call_of("step", leaf("params", "state", (3,), 0), leaf("x", "new", (8, 3)))


def test_a_flat_script_is_taken_apart(tmp_path: Path) -> None:
    draft = draft_of(tmp_path, FLAT, STEP)
    state, losses, batches = ran(draft)
    assert draft.left == ()
    assert state.shape == (3,) and [type(each) for each in losses] == [float] * 3
    assert [each.shape for each in batches] == [(8, 3)] * 3
    assert "# this comment is kept" in draft.text
    assert "print" not in draft.text and "MADE UP" not in draft.text
    assert "batch_size = 8" in draft.text


def test_its_random_numbers_are_the_scripts_own(tmp_path: Path) -> None:
    """The batches start anew with each call, as the script starts with each launch."""
    draft = draft_of(tmp_path, FLAT, STEP)
    space: dict[str, Any] = {}
    exec(draft.text, space)
    first, *_ = space["workload"].batches()
    assert first.shape == (8, 3)


def test_a_guarded_script_is_imported_with_the_arguments_it_was_run_with(tmp_path: Path) -> None:
    call = call_of(
        "train_step",
        leaf("params['w']", "state", (7,), 0),
        leaf("batch['x']", "new", (4, 2)),
        leaf("batch['y']", "new", (4,)),
    )
    draft = draft_of(tmp_path, GUARDED, call, CHOICES[0], "--size", "7")
    state, losses, batches = ran(draft)
    assert draft.left == ()
    assert "from train import" in draft.text and "def make(" not in draft.text
    assert state["w"].tolist() == [0.5**3] * 7
    assert losses == [(0.0, 8.0)] * 3
    assert set(batches[0]) == {"x", "y"}


def test_a_step_that_is_defined_beside_its_loop_is_copied_with_what_it_needs(
    tmp_path: Path,
) -> None:
    call = call_of("train_step", leaf("w", "state", (2,), 0), leaf("x", "new", (2,)))
    draft = draft_of(tmp_path, CLOSURE, call)
    state, _, batches = ran(draft)
    assert draft.left == ()
    assert [each.tolist() for each in batches] == [[0, 0], [1, 1], [2, 2]]
    assert state.tolist() == [1 - 0.25 * (0.0 + 1.0 + 2 * 0.75)] * 2
    assert "jax.tree.unflatten" in draft.text  # the state is a part of the result


def test_what_the_script_does_not_tell_is_made_up_and_the_module_says_so(tmp_path: Path) -> None:
    call = call_of("step", leaf("params[0]['w']", "state", (2, 3), 0), leaf("x", "new", (4, 3)))
    draft = draft_of(tmp_path, UNKNOWN, call)
    assert draft.text.count("MADE UP") == 2
    state, losses, batches = ran(draft)
    assert [each["w"].shape for each in state] == [(2, 3)]
    assert batches[0].shape == (4, 3) and batches[0].dtype == "float32"
    assert losses[0] == batches[0].sum()


def test_a_state_of_an_unknown_class_is_left_to_the_user(tmp_path: Path) -> None:
    call = call_of("step", leaf("params.w", "state", (2, 3), 0), leaf("x", "new", (4, 3)))
    draft = draft_of(tmp_path, UNKNOWN, call)
    assert len(draft.left) == 1 and draft.left[0].startswith("init: ")
    assert "LEFT TO DO: init" in draft.text
    with pytest.raises(NotImplementedError, match=r"params\.w float32\[2, 3\]"):
        ran(draft)


def test_what_comes_back_from_the_step_is_no_batch(tmp_path: Path) -> None:
    call = call_of("step", leaf("params", "state", (2,), 0), leaf("seen", "new", (3,)))
    draft = draft_of(tmp_path, FEEDING_BACK, call)
    assert "batches: MADE UP" in draft.text
    ran(draft)


def test_stars_and_attributes_are_passed_on(tmp_path: Path) -> None:
    call = call_of(
        "update",
        leaf("params", "state", (2,), 0),
        leaf("x", "new", (5, 2)),
        leaf("y", "new", (5, 2)),
    )
    draft = draft_of(tmp_path, STARRED, call)
    state, losses, _ = ran(draft)
    assert (state.tolist(), losses) == ([4.0, 4.0], [10.0] * 3)


@pytest.mark.parametrize("choice", CHOICES, ids=str)
@pytest.mark.parametrize("text", [FLAT, UNKNOWN], ids=["flat", "unknown"])
def test_every_choice_gives_a_module_that_runs(tmp_path: Path, text: str, choice: Choice) -> None:
    _, losses, batches = ran(draft_of(tmp_path, text, STEP, choice))
    assert len(losses) == len(batches) == 3


def test_a_call_outside_of_any_loop_is_no_site() -> None:
    assert site_of("step", ast.parse("def step(x): return x\nstep(1)")) is None
    assert site_of("step", ast.parse("for x in y:\n    other(x)")) is None


@pytest.mark.parametrize(
    "text",
    [
        "train = jax.jit(step)\nfor x in y:\n    s = train(s, x)",
        "class T:\n    def fit(self):\n        self.go = jax.jit(step)\n        while 1:\n"
        "            with m:\n                self.s = self.go(self.s, 1)",
        "for x in y:\n    try:\n        losses.append(step(x))\n    finally:\n        pass",
    ],
)
def test_a_call_is_found_by_the_names_of_the_function(text: str) -> None:
    assert site_of("step", ast.parse(text)) is not None


def test_a_static_argument_that_changes_comes_with_the_batch_and_options_stay(
    tmp_path: Path,
) -> None:
    text = """
import numpy as np

def step(params, x, rate, scale=1.0):
    return params + rate * scale, x.sum()

params, options = np.zeros(2), {"scale": 10.0}
for number in range(100):
    x = np.ones((4, 3))
    rate = 0.5 * number
    params, loss = step(params, x, rate, **options)
"""
    call = call_of("step", leaf("params", "state", (2,), 0), leaf("x", "new", (4, 3)))
    draft = draft_of(tmp_path, text, call)
    state, _, batches = ran(draft)
    assert draft.left == ()
    assert [rate for _, rate in batches] == [0.0, 0.5, 1.0]
    assert state.tolist() == [15.0, 15.0]


def test_a_loop_under_the_guard_itself_is_found(tmp_path: Path) -> None:
    text = FLAT.replace("params = np.ones", "if __name__ == '__main__':\n  params = np.ones")
    text = text.replace("\nfor epoch", "\n  for epoch").replace("\n    for", "\n      for")
    draft = draft_of(tmp_path, text, STEP)
    state, _, batches = ran(draft)
    assert draft.left == () and state.shape == (3,) and len(batches) == 3
