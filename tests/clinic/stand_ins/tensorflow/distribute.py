"""Names that annotations mention."""


class Strategy:
    """Only its name."""


class InputContext:
    """Only its name."""
