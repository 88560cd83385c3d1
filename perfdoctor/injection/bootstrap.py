"""Waits in the target's process for the import of jax; knows only the standard library."""

import importlib
import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from perfdoctor.injection.calls import OWN_FILES
from perfdoctor.kernel import die_with_parent
from perfdoctor.protocol import ATTACHED, BROKEN, RAISED, STOP, Orders


def begin(orders: Orders) -> None:
    """Called before the first line of the program."""
    die_with_parent()
    folder = Path(orders["folder"])
    note_exceptions(folder)
    process = os.getpid()
    orders = {**orders, "environment": dict(os.environ)}

    def attach(jax: ModuleType) -> None:
        if os.getpid() != process:  # a fork of it
            return
        try:
            importlib.import_module(orders["module"]).attach(jax, orders)
            (folder / ATTACHED).touch()
        except Exception:  # the program goes on, unobserved
            (folder / BROKEN).write_text(traceback.format_exc())

    sys.meta_path.insert(0, AfterImport("jax", attach))


class AfterImport:
    """A finder that finds nothing itself, but calls a function once a module is imported."""

    def __init__(self, name: str, then: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._then = then

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's own spec, whose loader calls us after it.

        Programs ask for it without loading it too: `importlib.util.find_spec("jax")`.
        """
        if name != self._name:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((each for each in specs if each is not None), None)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_then(module: ModuleType) -> None:
            del loader.exec_module
            execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._then(module)

        loader.exec_module = execute_then
        return spec


def note_exceptions(folder: Path) -> None:
    """Write down what ends the program; what we end it with ourselves is not shown."""
    shown, process = sys.excepthook, os.getpid()

    def note(kind: type[BaseException], value: BaseException, where: TracebackType | None) -> None:
        if os.getpid() == process:  # not a fork of it
            if stopped(folder):
                return
            with suppress(OSError):
                (folder / RAISED).write_text(in_one_line(kind, value))
        leave_ours_out(value)
        shown(kind, value, without_ours(where))

    shown_of_threads = threading.excepthook

    def note_of_thread(args: Any) -> None:
        if args.exc_value is not None:
            leave_ours_out(args.exc_value)
        shown_of_threads(args)

    sys.excepthook, threading.excepthook = note, note_of_thread


def leave_ours_out(value: BaseException) -> None:
    """Leave our frames out of an exception's traceback, and of those of the exceptions behind it;
    Python shows what they hold.
    """
    todo, done = [value], set()
    while todo:
        error = todo.pop()
        if id(error) in done:
            continue
        done.add(id(error))
        error.__traceback__ = without_ours(error.__traceback__)
        todo += [each for each in (error.__cause__, error.__context__) if each is not None]
        if isinstance(error, BaseExceptionGroup):
            todo += error.exceptions


def without_ours(where: TracebackType | None) -> TracebackType | None:
    """A traceback as it is without our wrapper around jitted functions."""
    entries = []
    while where is not None:
        if where.tb_frame.f_code.co_filename not in OWN_FILES:
            entries.append(where)
        where = where.tb_next
    rest = None
    for entry in reversed(entries):
        rest = TracebackType(rest, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return rest


def in_one_line(kind: type[BaseException], value: BaseException) -> str:
    """An exception as the last line of a traceback has it; where its text has several lines, the
    first that says much. A SyntaxError names its file and line.
    """
    text = next((line for line in str(value).splitlines() if line.strip()), "")
    if isinstance(value, SyntaxError) and value.filename:
        text = f"{value.msg} ({os.path.basename(value.filename)}, line {value.lineno})"  # noqa: PTH119
    return f"{kind.__name__}: {text}" if text else kind.__name__


def stopped(folder: Path) -> bool:
    """Whether the program was asked to stop: what it raises from then on is our doing."""
    return (folder / STOP).exists()


def keep_quiet() -> None:
    """Keep the program's threads from showing how they end, from now on."""
    sys.excepthook = lambda kind, value, where: None
    threading.excepthook = lambda args: None
