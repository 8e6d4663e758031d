"""What a process waits for, told without filling the log."""

from typing import Final

import structlog

from clusterspace.aio.clocks import Clock

_log = structlog.get_logger(__name__)

AGAIN_SECONDS: Final = 60.0
"""Somebody who looks at the log finds what is waited for in its last minute."""


class Waiting:
    """Tells what is waited for: at once, when the reason changes, every minute, and when it ends.

    Whoever tries something again and again calls `failed` with each reason, and `over` when it
    worked; most of these calls say nothing.
    """

    def __init__(self, clock: Clock, what: str, **fields: object) -> None:
        self._clock = clock
        self._what = what
        self._fields = fields
        self._reason: str | None = None
        self._since = 0.0
        self._reported = 0.0

    @property
    def reason(self) -> str:
        """Why it did not work last; empty when nothing is waited for."""
        return self._reason or ""

    def failed(self, reason: str) -> None:
        """Tell that it did not work yet, unless that is known."""
        now = self._clock.monotonic()
        if self._reason is None:
            self._since = now
        elif reason == self._reason and now - self._reported < AGAIN_SECONDS:
            return
        self._reason, self._reported = reason, now
        waited = round(now - self._since)
        _log.warning(
            "waiting", what=self._what, reason=reason, waited_seconds=waited, **self._fields
        )

    def over(self) -> None:
        """Tell that it worked, if anybody was told that it did not."""
        if self._reason is None:
            return
        self._reason = None
        waited = round(self._clock.monotonic() - self._since)
        _log.info("waiting is over", what=self._what, waited_seconds=waited, **self._fields)
