"""Kinds of features."""


class Text:
    """A string."""


class ClassLabel:
    """A class."""


class Scalar:
    """A number."""
