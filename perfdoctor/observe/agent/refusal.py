"""Why a step can't be captured, in a line."""


class Unwanted(Exception):
    """The step can't be captured; the message says why."""


def reason(error: Exception) -> str:
    """Why a step can't be saved, in one line."""
    text = next((line for line in str(error).splitlines() if line.strip()), "")
    return text if isinstance(error, Unwanted) else f"{type(error).__name__}: {text}"[:300]
