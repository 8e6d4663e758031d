"""How much work begins in one turn of the event loop, and which level's it is.

The loop runs all that is ready before it looks at its sockets again:

    sockets │ list list list list … list │ sockets       somebody's get came here ▲ and waits

With turns, requests begin for a millisecond; the others wait in the queues of their levels,
where whoever comes next may be served before them:

    sockets │ list │ sockets │ get list │ sockets │ list │ …

Levels that wait for a turn have it in proportion to their seats, as they have those.
"""

from collections.abc import Callable
from typing import Final, Protocol

TURN_SECONDS: Final = 0.001
"""What may begin in a turn. A request is a fifth of that to twice that, so that others wait for
about one; and a turn with nothing to do in it costs a fiftieth."""

_SHARED_SECONDS: Final = 1.0
"""How long it counts that a second flow has asked: people and controllers come and go in bursts."""

_MOST: Final = 64
_FIRST: Final = 4
"""How many are begun in a turn at most, and as long as it is not known what they take. Of what
took too long there are fewer in the next turn, in proportion; of what did not, twice as many."""


class Waiting(Protocol):
    """A level in which requests may wait for a turn."""

    progress: float
    """What it has begun so far, by its weight: who is behind the others is next."""

    def begin_next(self) -> bool:
        """Begin the next request, and count it as progress; False when none can begin."""
        ...


class Turns:
    """Counts what begins between two looks at the sockets.

    `soon` calls back in the next turn, after all that is ready by then.
    """

    def __init__(
        self,
        monotonic: Callable[[], float],
        soon: Callable[[Callable[[], None]], object],
        seconds: float = TURN_SECONDS,
    ) -> None:
        self._monotonic = monotonic
        self._soon = soon
        self._seconds = seconds
        self._is_counting = False
        self._since = 0.0
        self._begun = 0
        self._most = _FIRST
        self._waiting: list[Waiting] = []
        self._progress = 0.0
        self._last_flow: object = None
        self.shared_until = 0.0

    def arrive(self, flow: object, now: float) -> None:
        """Take note of whose request comes; when it is not the last one's, two flows ask."""
        if flow is not self._last_flow:
            if self._last_flow is not None:
                self.shared_until = now + _SHARED_SECONDS
            self._last_flow = flow

    def take(self, now: float) -> bool:
        """Whether one more request may begin in this turn; if so, it is counted."""
        if not self._is_counting:
            self._is_counting = True
            self._since, self._begun = now, 0
            self._soon(self._turn)
        elif self._begun >= self._most or now - self._since > self._seconds:
            return False
        self._begun += 1
        return True

    def wait(self, level: Waiting) -> None:
        """Have the level begin its next request when it has a turn."""
        if level in self._waiting:
            return
        # Who had no use for turns has not saved any up.
        level.progress = max(level.progress, self._progress)
        self._waiting.append(level)
        if not self._is_counting:
            self._is_counting = True
            self._since, self._begun = self._monotonic(), 0
            self._soon(self._turn)

    def _turn(self) -> None:
        now = self._monotonic()
        # What was begun by this function ran after it, in the tasks it woke: only now is it known
        # how long that took.
        took = now - self._since
        if took > self._seconds:
            self._most = max(1, int(self._begun * self._seconds / took))
        elif took < self._seconds / 2 and self._begun >= self._most:
            self._most = min(_MOST, self._most * 2)
        self._is_counting = False
        while self._waiting and self.take(now):
            level = min(self._waiting, key=_progress_of)
            self._progress = level.progress
            if not level.begin_next():
                # For want of seats, or of requests: it comes back when it has both.
                self._waiting.remove(level)
                self._begun -= 1


def _progress_of(level: Waiting) -> float:
    return level.progress
