"""What the kernel tells of processes, read without letting go of Python's lock.

Python lets go of it for each file that is opened, read or closed, and gets it back when the program
lets go of it: at once, or after a collection of 50 ms. In such a program, two readings of the files
of twenty threads took 7 s (CPython 3.11); with the lock held, they take some milliseconds in any.
"""

import ctypes
import os
import sys

import psutil

_FIRST_BYTES = 16_384
"""Most files of a process have fewer."""


def text(file: str) -> str:
    """What is in a file of /proc; empty where there is none, or no longer."""
    return _LIBC.text(file) if _LIBC is not None else ""


def files(pattern: str) -> list[str]:
    """Files of /proc by a pattern, as the shell understands it."""
    return _LIBC.files(pattern) if _LIBC is not None else []


def family() -> list[int]:
    """This process and its descendants."""
    own = os.getpid()
    if not files(f"/proc/{own}/task/*/children"):  # no Linux, or without CONFIG_PROC_CHILDREN
        return [own, *(child.pid for child in psutil.Process().children(recursive=True))]
    found = [own]
    for pid in found:  # it grows meanwhile
        for task in files(f"/proc/{pid}/task/*/children"):
            found += map(int, text(task).split())
    return found


class _Found(ctypes.Structure):
    """The begin of `glob_t` of glob.h, which is the same everywhere, and room for its rest."""

    _fields_ = (
        ("count", ctypes.c_size_t),
        ("paths", ctypes.POINTER(ctypes.c_char_p)),
        ("rest", ctypes.c_char * 256),
    )


class _Held:
    """Functions of the C library, called with Python's lock held."""

    def __init__(self) -> None:
        self._libc = ctypes.PyDLL(None)
        self._libc.read.restype = ctypes.c_ssize_t
        self._libc.read.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t)
        self._libc.glob.argtypes = (ctypes.c_char_p, ctypes.c_int, *2 * (ctypes.c_void_p,))
        self._libc.globfree.argtypes = (ctypes.c_void_p,)

    def text(self, file: str) -> str:
        number = self._libc.open(os.fsencode(file), os.O_RDONLY | os.O_CLOEXEC)
        if number < 0:
            return ""
        parts, room = [], ctypes.create_string_buffer(_FIRST_BYTES)
        try:
            while (count := self._libc.read(number, room, _FIRST_BYTES)) > 0:
                parts.append(room.raw[:count])
        finally:
            self._libc.close(number)
        return b"".join(parts).decode(errors="replace")

    def files(self, pattern: str) -> list[str]:
        found = _Found()
        self._libc.glob(os.fsencode(pattern), 0, None, ctypes.byref(found))
        try:
            return [os.fsdecode(found.paths[index] or b"") for index in range(found.count)]
        finally:
            self._libc.globfree(ctypes.byref(found))


_LIBC = _Held() if sys.platform == "linux" else None
