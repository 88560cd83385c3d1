"""Names that annotations mention."""


class Decoder:
    """Only its name."""
