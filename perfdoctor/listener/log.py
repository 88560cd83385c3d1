"""Prints the lines of a listener."""

import logging
import sys

from perfdoctor.listener.line import Line

LOGGER = logging.getLogger("perfdoctor.listener")


class Log:
    """Prints lines by the logger `perfdoctor.listener`; on stderr where no logging is set up."""

    def __init__(self) -> None:
        self._is_warned = False

    def __call__(self, line: Line) -> None:
        if not LOGGER.hasHandlers():
            print(line, file=sys.stderr, flush=True)
        elif LOGGER.isEnabledFor(logging.INFO):
            LOGGER.info("%s", line)
        elif not self._is_warned:
            self._is_warned = True
            LOGGER.warning(
                "the lines of PerformanceListener are logged as INFO, which is hidden here; "
                'logging.getLogger("perfdoctor").setLevel(logging.INFO) shows them'
            )
