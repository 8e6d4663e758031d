"""How much memory answers may take together: a bound for the process, and who pays when it is met.

    request ──> Hold ──> one Reading for each answer ──> bytes, until the Hold is closed

A limit for each answer bounds what one cluster can do with one answer. Many requests at once, each
of which reaches the same cluster, would multiply it. So all answers are counted together, and when
there is no more room the largest that is still being read is given up: an answer without end is
always that one, and the answers of other clusters go on.

An answer counts until the client has it, and a client may take its time. So the answers of one
user count by themselves too, and have half of the room: who asks for much and reads slowly runs
into their own bound, not into that of the others.
"""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from io import BytesIO
from typing import Final

from clusterspace.errors import AnswerOverrun, ClusterError

_OWNERS_SHARE: Final = 2
"""One user has at most half of the room."""


class Reading:
    """One answer while it is read; the bytes count until they are forgotten.

    All of it happens on the event loop, and no step here waits: between two steps the counts of
    the memory are exact.
    """

    def __init__(
        self,
        cluster: str,
        most_bytes: int,
        memory: "AnswerMemory | None" = None,
        owner: str = "",
    ) -> None:
        self.cluster = cluster
        self.owner = owner
        self.size = 0
        self._most = most_bytes
        self._memory = memory
        # Grows in place and is handed out without a copy: joining parts would hold all of it twice.
        self._content = BytesIO()
        self._given_up: ClusterError | None = None
        if memory is not None:
            memory.begin(self)

    def write(self, part: bytes) -> None:
        """Take some more; raise ClusterError when there is no room, and keep nothing then."""
        if self._given_up is None and len(part) > self._most - self.size:
            why = f"answered with more than {self._most} bytes"
            self.give_up(AnswerOverrun(self.cluster, why, code=200))
        if self._given_up is None:
            self._resize(self.size + len(part))
        # Asked once more: to make room for these bytes, this very answer may have been given up.
        if self._given_up is not None:
            raise self._given_up
        self._content.write(part)

    def resize(self, size: int) -> None:
        """Count so many bytes that somebody else holds; raise ClusterError when there is no room.

        For what is read without an end, and held only until it has one.
        """
        self._resize(size)
        if self._given_up is not None:
            raise self._given_up

    def give_up(self, failure: ClusterError) -> None:
        """Let go of all of it at once; whoever reads it is told with the next part."""
        self._given_up = failure
        self.forget()

    def whole(self) -> bytes:
        """Return all of it, and count it until it is forgotten."""
        if self._memory is not None:
            self._memory.end(self)
        return self._content.getvalue()

    def forget(self) -> None:
        """Count it no more."""
        self._content = BytesIO()
        self._resize(0)
        if self._memory is not None:
            self._memory.end(self)

    def _resize(self, size: int) -> None:
        # The size comes first: making room compares sizes, and may give up this very answer.
        grown, self.size = size - self.size, size
        if self._memory is not None:
            self._memory.grow(grown, self.owner)


class Hold:
    """The answers of one request."""

    def __init__(self, memory: "AnswerMemory", owner: str = "") -> None:
        self._memory = memory
        self._owner = owner
        self._readings: list[Reading] = []

    def read(self, cluster: str, most_bytes: int) -> Reading:
        """Begin to read a cluster's answer of at most so many bytes."""
        reading = Reading(cluster, most_bytes, self._memory, self._owner)
        self._readings.append(reading)
        return reading

    def close(self) -> None:
        """Stop counting: nobody works on these answers any more."""
        for reading in self._readings:
            reading.forget()
        self._readings.clear()


class AnswerMemory:
    """Counts the bytes of all answers of a process that are read, worked on or sent on."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.used = 0
        self._by_owner: Counter[str] = Counter()
        self._being_read: set[Reading] = set()

    def open_hold(self, owner: str = "") -> Hold:
        """Return the Hold that counts the answers of one request for its owner, until it is closed.

        What belongs to nobody in particular counts for the process only.
        """
        return Hold(self, owner)

    @contextmanager
    def holding(self, owner: str = "") -> Generator[Hold]:
        """Count answers for as long as the block lasts."""
        hold = self.open_hold(owner)
        try:
            yield hold
        finally:
            hold.close()

    def begin(self, reading: Reading) -> None:
        """Know an answer from its first byte on."""
        self._being_read.add(reading)

    def grow(self, size: int, owner: str = "") -> None:
        """Count some bytes more or less, and give up the largest answer where there is no room.

        Whoever grows is among those being read. What is whole cannot be given up any more: it was
        let in before, and goes when its client has it.
        """
        self.used += size
        if owner:
            self._by_owner[owner] += size
            if not self._by_owner[owner]:
                del self._by_owner[owner]
        share = self.most_bytes // _OWNERS_SHARE
        while size > 0:
            candidates = self._being_read
            if owner and self._by_owner[owner] > share:
                candidates = {each for each in candidates if each.owner == owner}
            elif self.used <= self.most_bytes:
                return
            if not candidates:
                return
            largest = max(candidates, key=lambda reading: reading.size)
            why = f"there is no room for its answer now, of {largest.size} bytes so far"
            # It comes back here to count its bytes off, and is no longer among those being read.
            largest.give_up(ClusterError(largest.cluster, why))

    def end(self, reading: Reading) -> None:
        """Know that an answer is whole, or that nobody reads it on."""
        self._being_read.discard(reading)
