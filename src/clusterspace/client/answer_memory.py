"""How much memory answers may take together: a bound for the process, and who pays when it is met.

    request ──> Hold ──> one Reading for each answer ──> bytes, until the Hold is closed

A limit for each answer bounds what one cluster can do with one answer. Many requests at once, each
of which reaches the same cluster, would multiply it. So all answers are counted together, and when
there is no more room the largest that is still being read is given up: an answer without end is
always that one, and the answers of other clusters go on.
"""

from collections.abc import Generator
from contextlib import contextmanager
from io import BytesIO

from clusterspace.errors import AnswerOverrun, ClusterError


class Reading:
    """One answer while it is read; the bytes count until they are forgotten."""

    def __init__(self, cluster: str, most_bytes: int, memory: "AnswerMemory | None" = None) -> None:
        self.cluster = cluster
        self.size = 0
        self._most = most_bytes
        self._memory = memory
        # Grows in place and is handed out without a copy: joining parts would hold all of it twice.
        self._held = BytesIO()
        self._given_up: ClusterError | None = None
        if memory is not None:
            memory.begin(self)

    def write(self, part: bytes) -> None:
        """Take some more; raise ClusterError when there is no room, and keep nothing then."""
        if self._given_up is None and len(part) > self._most - self.size:
            why = f"answered with more than {self._most} bytes"
            self.give_up(AnswerOverrun(self.cluster, why, code=200))
        if self._given_up is None:
            self.size += len(part)
            if self._memory is not None:
                self._memory.grow(len(part))
        # Asked once more: to make room for these bytes, this very answer may have been given up.
        if self._given_up is not None:
            raise self._given_up
        self._held.write(part)

    def resize(self, size: int) -> None:
        """Count so many bytes that somebody else holds; raise ClusterError when there is no room.

        For what is read without an end, and held only until it has one.
        """
        grown, self.size = size - self.size, size
        if self._memory is not None and grown > 0:
            self._memory.grow(grown)
        elif self._memory is not None:
            self._memory.shrink(-grown)
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
        return self._held.getvalue()

    def forget(self) -> None:
        """Count it no more."""
        self._held = BytesIO()
        if self._memory is not None:
            self._memory.shrink(self.size)
            self._memory.end(self)
        self.size = 0


class Hold:
    """The answers of one request."""

    def __init__(self, memory: "AnswerMemory") -> None:
        self._memory = memory
        self._readings: list[Reading] = []

    def read(self, cluster: str, most_bytes: int) -> Reading:
        """Begin to read a cluster's answer of at most so many bytes."""
        reading = Reading(cluster, most_bytes, self._memory)
        self._readings.append(reading)
        return reading

    def close(self) -> None:
        """Stop counting: nobody works on these answers any more."""
        for reading in self._readings:
            reading.forget()
        self._readings.clear()


class AnswerMemory:
    """Counts the bytes of all answers of a process that are read or worked on."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = most_bytes
        self.held = 0
        self._being_read: set[Reading] = set()

    @contextmanager
    def holding(self) -> Generator[Hold]:
        """Count answers for as long as the block lasts."""
        hold = Hold(self)
        try:
            yield hold
        finally:
            hold.close()

    def begin(self, reading: Reading) -> None:
        """Know an answer from its first byte on."""
        self._being_read.add(reading)

    def grow(self, size: int) -> None:
        """Make room for some bytes, by giving up the largest answer when there is none."""
        self.held += size
        while self.held > self.most_bytes and self._being_read:
            # Whoever grows is among them: what cannot be given up any more was let in before.
            largest = max(self._being_read, key=lambda reading: reading.size)
            why = f"there is no room for its answer now, of {largest.size} bytes so far"
            largest.give_up(ClusterError(largest.cluster, why))

    def shrink(self, size: int) -> None:
        """Take note that bytes are gone."""
        self.held -= size

    def end(self, reading: Reading) -> None:
        """Know that an answer is whole, or that nobody reads it on."""
        self._being_read.discard(reading)
