"""Texts of members' objects, kept by the metadata they had: of one state there is one text.

An object's metadata has its UID and version, and who wrote which of its fields when. An API server
writes it in the same bytes whether it is asked for the object or for its metadata alone. So the
digest of those bytes stands for one state of one object. Two states that shared it would have the
same version: of a cluster that was restored from a backup and counts again, and they would have
been written by the same people in the same second. Where versions go back, all is forgotten.

What an API server makes of the same stored object may change when it is upgraded. So no text is
used for longer than some minutes after it was read; see decision 0041.

All is bounded. When there is no more room, the kind that nobody has asked for longest leaves, with
all its objects. One kind of one cluster has a quarter of the room at most: a larger one would drive
out all others each time it is listed, and is never kept. What nobody asks for leaves with time.
"""

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import msgspec

from clusterspace.aio.clocks import Clock
from clusterspace.aio.tasks import Tasks
from clusterspace.fleet.gateway.merge.versions import is_lower
from clusterspace.fleet.gateway.routes import Naming, Subject

TRUSTED_SECONDS: Final = 300.0
"""How long a text is used after it was read."""
UNUSED_SECONDS: Final = 600.0
"""A kind that nobody lists for this long is forgotten."""
_SWEEP_SECONDS: Final = 60.0
_SHARE: Final = 4
"""One kind has at most this part of the room."""
_BESIDE_BYTES: Final = 250
"""What a text takes beside itself: its digest, its place among the others, when it was read."""
_MOST_HISTORIES: Final = 4096

_MOST_SKIPPED: Final = 64
_WORTHWHILE: Final = 0.8
"""A list of metadata that takes more than this part of the whole list's time is in vain."""
_LEAST_BYTES: Final = 32 * 1024
"""A shorter list is asked for as it is: the question takes as long as the answer."""


Members: TypeAlias = Callable[[], Collection[str]]
"""Returns the members there are."""


class KindKey(NamedTuple):
    """One kind of one cluster, in the names that one form of request shows."""

    naming: Naming
    subject: Subject


class Text(NamedTuple):
    """The text of one state of an object, and when it was read."""

    read_at: float
    text: msgspec.Raw


@dataclass(slots=True)
class CachedKind:
    """The objects of one kind in one cluster."""

    list_kind: str
    """What a list of them is called: `PodList`."""
    api_version: str
    used_at: float
    version: str = ""
    """The newest version that a list of them had."""
    size: int = 0
    texts: dict[bytes, Text] = field(default_factory=dict[bytes, Text])


@dataclass(slots=True)
class ListHistory:
    """How a list that somebody asks for again and again went, either way it can be asked for."""

    asked_at: float
    is_repeated: bool = False
    """Whether it was asked for again soon: from then on its objects are kept."""
    size: int = 0
    whole_seconds: float = 0.0
    skips: int = 0
    """How many times it is asked for whole before metadata is tried again."""
    pause: int = 0

    def tries_metadata(self) -> bool:
        """Whether to ask for metadata first, this time."""
        if self.size < _LEAST_BYTES:
            return False
        self.skips -= self.skips > 0
        return not self.skips

    def note_whole(self, seconds: float, size: int) -> None:
        """Take note of how long the whole list took, and how long it was."""
        self.whole_seconds, self.size = seconds, size

    def note_metadata(self, seconds: float, *, sufficed: bool) -> None:
        """Take note of how asking for metadata went: in vain, it is tried half as often."""
        if sufficed and seconds <= self.whole_seconds * _WORTHWHILE:
            self.pause = 0
            return
        self.pause = min(max(1, self.pause * 2), _MOST_SKIPPED)
        self.skips = self.pause + 1


class ObjectCache:
    """Texts of objects of all members, within one bound."""

    def __init__(self, clock: Clock, most_bytes: int) -> None:
        self.clock = clock
        self.most_bytes = most_bytes
        self.used_bytes = 0
        self._kinds: OrderedDict[KindKey, CachedKind] = OrderedDict()
        self._histories: OrderedDict[tuple[str, str], ListHistory] = OrderedDict()
        self._changes: Counter[str] = Counter()

    def tasks(self, members: Members) -> Tasks:
        """Return the background task: it forgets what nobody asks for, and clusters that left."""

        async def sweep() -> None:
            while True:
                await self.clock.sleep(_SWEEP_SECONDS)
                self.sweep(members())

        return {"cached objects": sweep} if self.most_bytes else {}

    def history(self, cluster: str, path: str, query: Sequence[tuple[str, str]]) -> ListHistory:
        """Return how this list of a cluster went before; and note that it is asked for again."""
        words = "\n".join((path, *(part for pair in query for part in pair)))
        key = (cluster, digest_of(words.encode(errors="backslashreplace")).hex())
        now = self.clock.monotonic()
        found = self._histories.get(key)
        if found is None or now - found.asked_at > UNUSED_SECONDS:
            found = self._histories[key] = ListHistory(now)
        else:
            found.asked_at, found.is_repeated = now, True
        self._histories.move_to_end(key)
        while len(self._histories) > _MOST_HISTORIES:
            self._histories.popitem(last=False)
        return found

    def find(self, key: KindKey) -> CachedKind | None:
        """Return what is kept of a kind, which counts as used."""
        kind = self._kinds.get(key)
        if kind is not None:
            kind.used_at = self.clock.monotonic()
            self._kinds.move_to_end(key)
        return kind

    def texts(
        self, key: KindKey, version: str, digests: Sequence[bytes]
    ) -> list[msgspec.Raw | None]:
        """Return the text of each state; None for what is not known.

        `version` is that of a list of what there is now, and empty for any other list.
        """
        kind = self.find(key)
        if kind is None or self._has_gone_back(key, kind, version):
            return [None] * len(digests)
        oldest = self.clock.monotonic() - TRUSTED_SECONDS
        found = map(kind.texts.get, digests)
        return [each.text if each and each.read_at > oldest else None for each in found]

    def has_room(self, size: int) -> bool:
        """Whether a list of so many bytes may be kept at all."""
        return size * _SHARE <= self.most_bytes

    def put(
        self,
        key: KindKey,
        kind: CachedKind,
        texts: Sequence[tuple[bytes, msgspec.Raw]],
    ) -> None:
        """Keep texts that were just read, by their digests."""
        # One step of the loop: between two awaits the sums are exact, and whoever looks texts up
        # finds all of a list or nothing of it.
        known = self._kinds.get(key)
        if known is None or self._has_gone_back(key, known, kind.version):
            self._kinds[key] = known = kind
        known.used_at = now = self.clock.monotonic()
        known.version = kind.version if is_lower(known.version, kind.version) else known.version
        known.list_kind, known.api_version = kind.list_kind, kind.api_version
        self._changes[key.naming.cluster] += bool(texts)
        for digest, text in texts:
            former = known.texts.get(digest)
            known.texts[digest] = Text(now, text)
            self._count(known, _weight(text) - (0 if former is None else _weight(former.text)))
        self._kinds.move_to_end(key)
        if known.size * _SHARE > self.most_bytes:
            self._drop_old(known, now)
        if known.size * _SHARE > self.most_bytes:
            self._forget(key)
        while self.used_bytes > self.most_bytes:
            self._forget(next(iter(self._kinds)))

    def sweep(self, members: Collection[str]) -> None:
        """Forget what is too old to be used, kinds nobody asks for, and clusters that left."""
        now = self.clock.monotonic()
        for key, kind in list(self._kinds.items()):
            if key.naming.cluster not in members or now - kind.used_at > UNUSED_SECONDS:
                self._forget(key)
            else:
                self._drop_old(kind, now)

    # -- for the next start: see `warm_files` -----------------------------------------------------

    def clusters(self) -> set[str]:
        """Return the clusters of which anything is kept."""
        return {key.naming.cluster for key in self._kinds}

    def changes(self, cluster: str) -> int:
        """Return how many times what is kept of a cluster has changed."""
        return self._changes[cluster]

    def kinds_of(self, cluster: str) -> list[tuple[KindKey, CachedKind]]:
        """Return what is kept of a cluster."""
        return [each for each in self._kinds.items() if each[0].naming.cluster == cluster]

    def histories_of(self, cluster: str) -> list[tuple[str, ListHistory]]:
        """Return the lists of a cluster that are asked for again and again, by their digests."""
        return [
            (key[1], each)
            for key, each in self._histories.items()
            if key[0] == cluster and each.is_repeated
        ]

    def restore(self, key: KindKey, kind: CachedKind, texts: dict[bytes, Text]) -> None:
        """Take up what was kept of a kind before, unless there is no room for it."""
        size = sum(_weight(each.text) for each in texts.values())
        has_room = self.has_room(size) and self.used_bytes + size <= self.most_bytes
        if key in self._kinds or not has_room:
            return
        self._kinds[key] = kind
        kind.texts = texts
        self._count(kind, size)
        self._drop_old(kind, self.clock.monotonic())

    def restore_history(self, key: tuple[str, str], history: ListHistory) -> None:
        """Take up how a list went before."""
        if len(self._histories) < _MOST_HISTORIES:
            self._histories.setdefault(key, history)

    def _drop_old(self, kind: CachedKind, now: float) -> None:
        old = [
            digest for digest, each in kind.texts.items() if each.read_at <= now - TRUSTED_SECONDS
        ]
        for digest in old:
            self._count(kind, -_weight(kind.texts.pop(digest).text))

    def _has_gone_back(self, key: KindKey, kind: CachedKind, version: str) -> bool:
        """Forget a kind whose cluster counts from a lower version again; return whether it does."""
        # Only of lists of what there is now, which no server answers with less than another has
        # told: those of an older version, or from a page on, say nothing.
        if not is_lower(version, kind.version):
            return False
        self._forget(key)
        return True

    def _forget(self, key: KindKey) -> None:
        kind = self._kinds.pop(key)
        self._changes[key.naming.cluster] += 1
        self._count(kind, -kind.size)

    def _count(self, kind: CachedKind, grown: int) -> None:
        kind.size += grown
        self.used_bytes += grown


def digest_of(metadata: bytes | msgspec.Raw) -> bytes:
    """Return what stands for the state of the object that has this metadata."""
    return hashlib.blake2b(metadata, digest_size=16).digest()


def _weight(text: msgspec.Raw) -> int:
    return len(text) + _BESIDE_BYTES
