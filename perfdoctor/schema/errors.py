"""Errors that end a command with one sentence."""


class UsageError(Exception):
    """Wrong usage or unreadable input; the message names the file, the key and what is expected."""


class NothingMeasured(Exception):
    """A part of an Observation that a check needs is missing; the message says why."""
