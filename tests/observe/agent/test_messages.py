"""Warnings that bear on performance are kept, and shown as ever."""

import os
import subprocess
import sys
import warnings
from typing import Any

import pytest

from perfdoctor.observe.agent.messages import MessageWatch

DONATED = "Some donated buffers were not usable: ShapedArray(float32[3,4])."
DONATING = """
import sys, warnings
import jax, jax.numpy as jnp
if sys.argv[1] == "with us":
    from perfdoctor.observe.agent.messages import MessageWatch
    watch = MessageWatch()
    watch.install()
step = jax.jit(lambda p, x: (p @ x).sum(), donate_argnums=0)
for size in (3, 3, 4):
    step(jnp.ones((size, 4)), jnp.ones(4)).block_until_ready()
warnings.warn("theirs")
if sys.argv[1] == "with us":
    for message in watch.messages:
        print(message.splitlines()[0])
"""


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the program shows of its warnings."""
    found: list[tuple[Any, ...]] = []
    monkeypatch.setattr(warnings, "showwarning", lambda *args, **more: found.append(args))
    return found


def warn(watch: MessageWatch, *texts: str) -> None:
    for text in texts:
        watch(UserWarning(text), UserWarning, "train.py", 7)


def test_what_bears_on_performance_is_kept_once(shown: list[tuple[Any, ...]]) -> None:
    watch = MessageWatch()
    warn(watch, DONATED, "The loss is high.", DONATED)
    assert list(watch.messages) == [DONATED]


def test_every_warning_is_shown(shown: list[tuple[Any, ...]]) -> None:
    warn(MessageWatch(), DONATED, "The loss is high.")
    assert [str(each[0]) for each in shown] == [DONATED, "The loss is high."]
    assert shown[0][1:] == (UserWarning, "train.py", 7)


def test_warnings_go_through_it_once_it_is_installed(shown: list[tuple[Any, ...]]) -> None:
    watch = MessageWatch()
    watch.install()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(DONATED, stacklevel=1)
    assert list(watch.messages) == [DONATED]
    assert len(shown) == 1


def donating(who: str, filters: str) -> subprocess.CompletedProcess[str]:
    """A program of the installed jax that donates in vain."""
    return subprocess.run(
        [sys.executable, "-c", DONATING, who],
        env={**os.environ, "PYTHONWARNINGS": filters},
        capture_output=True,
        text=True,
        check=True,
    )


def test_a_warning_of_the_installed_jax_is_kept() -> None:
    kept = donating("with us", "always").stdout.splitlines()
    assert len(kept) == 2
    for message, shape in zip(kept, ("3,4", "4,4"), strict=True):
        assert message.startswith("Some donated buffers were not usable: ")
        assert shape in message


@pytest.mark.parametrize("filters", ["default", "always", "ignore"])
def test_the_program_writes_what_it_would_without_us(filters: str) -> None:
    assert donating("with us", filters).stderr == donating("without", filters).stderr
