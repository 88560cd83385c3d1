"""Seeds: the stand-in's shuffling has its own."""


def set_seed(seed: int) -> None:
    """Nothing to do."""
