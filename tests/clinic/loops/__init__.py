"""The steps of training scripts, written by hand as loops with nothing on the host.

A module for each style of tests/clinic/patients, and for each script of the ward, named `ward_…`:
the script's own model, optimiser, functions and options of jit, and one batch of the usual sizes,
which lies on the device, as do the constants. `run(n)` makes n steps, feeds the state back, and
waits for the end; nothing is loaded, printed or read. That is what the step takes when it is alone,
to which a measurement of it can be compared. What a script keeps inside of its `main` is written
here once more.

The ward's scripts lie outside of this repository: in the folder `patients` of $WARD.
"""

import contextlib
import importlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax

ROOT = Path(__file__).parents[3]
PATIENTS = Path(__file__).parents[1] / "patients"
WARD = Path(os.environ.get("WARD", ROOT.parent / "shared" / "ward")).resolve()
Run = Callable[[int], None]


def names() -> list[str]:
    """Of all loops."""
    files = Path(__file__).parent.glob("*.py")
    return sorted(each.stem for each in files if not each.stem.startswith("__"))


def prepared(name: str) -> Run:
    """The loop of a script; what its loading writes goes to a folder that is removed."""
    module = importlib.import_module(f"{__name__}.{name}")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        run: Run = module.prepare()
    return run


def style(name: str, module: str = "train") -> Any:
    """A module of a style's folder."""
    return imported(PATIENTS / name, module)


def ward(name: str) -> Any:
    """A script of the ward."""
    return imported(WARD / "patients", name)


def imported(folder: Path, module: str) -> Any:
    """As if it were run in its folder, which stays as it is."""
    sys.dont_write_bytecode = True
    sys.path.insert(0, str(folder))
    return importlib.import_module(module)


def fed_back(step: Callable[..., Any], state: Iterable[Any], *others: Any) -> Run:
    """A loop of a function whose first arguments are what it returns, but for one last thing."""
    now, rest = list(state), jax.device_put(others)

    def run(n: int) -> None:
        made = None
        for _ in range(n):
            *now[:], made = step(*now, *rest)
        jax.block_until_ready((now, made))

    return run
