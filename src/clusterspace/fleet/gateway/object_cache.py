"""Texts of members' objects, kept by the metadata they had: of one state there is one text.

An object's metadata has its UID and version, and who wrote which of its fields when. An API server
writes it in the same bytes whether it is asked for the object or for its metadata alone. So the
digest of those bytes stands for one state of one object. Two states that shared it would have the
same version: of a cluster that was restored from a backup and counts again, and they would have
been written by the same people in the same second. Where versions go back, all is forgotten.

What an API server makes of the same stored object may change when it is upgraded. So no text is
used for longer than some minutes after it was read; see decision 0041.

All is bounded. When half of the room is taken, texts are packed, first those that were read longest
ago. When there is no more room, the kind that nobody has asked for longest leaves, with all its
objects and what callers were told of them. One kind of one cluster has a quarter of the room at
most: a larger one would drive out all others each time it is listed, and is never kept. What nobody
asks for leaves with time.
"""

import asyncio
import hashlib
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

import msgspec

from clusterspace.aio.clocks import Clock
from clusterspace.aio.tasks import Tasks
from clusterspace.fleet.gateway.merge.versions import is_lower
from clusterspace.fleet.gateway.object_texts import Block, KnownList, Text, in_blocks
from clusterspace.fleet.gateway.routes import Naming, Subject

TRUSTED_SECONDS: Final = 300.0
"""How long a text is used after it was read."""
UNUSED_SECONDS: Final = 600.0
"""A kind that nobody lists for this long is forgotten."""
_SWEEP_SECONDS: Final = 60.0
_SHARE: Final = 4
"""One kind has at most this part of the room."""
_BESIDE_BYTES: Final = 250
"""What a text takes beside itself: its digest, its place in its block and among the others."""
_ALIAS_BYTES: Final = 150
"""What a second digest of a text takes, and its place among the others."""
_PLACE_BYTES: Final = 8
"""What it takes that a list names a text."""
_FEW_STALE: Final = 64
"""Second digests of what is not kept any more are taken out when there are more than these."""
_MOST_LISTS: Final = 64
"""Lists of one kind of one member, for all callers, whose order is known."""
_MOST_HISTORIES: Final = 4096

_MOST_IN_VAIN: Final = 3
_MOST_SKIPPED: Final = 64
_WORTHWHILE: Final = 0.8
"""A list of metadata that takes more than this part of the whole list's time is in vain."""
_LEAST_BYTES: Final = 32 * 1024
"""A shorter list is asked for as it is: the question takes as long as the answer."""


Members: TypeAlias = Callable[[], Collection[str]]
"""Returns the members there are."""


async def _nothing_before(_cluster: str) -> None:
    pass


class KindKey(NamedTuple):
    """One kind of one cluster, in the names that one form of request shows."""

    naming: Naming
    subject: Subject
    beside: str = ""
    """Not the objects, but what stands beside their rows in Tables of this version."""


class NamedBefore(NamedTuple):
    """The texts that a list of metadata has named, for as long as it says the same."""

    digest: bytes
    read_at: float
    texts: Sequence[Text]


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
    blocks: dict[Block, None] = field(default_factory=dict[Block, None])
    """Those that any of the texts is in, and with them all that they take."""
    aliases: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    """Digests of the same metadata in other bytes, once it was compared, with those of `texts`."""
    lists: OrderedDict[Hashable, KnownList] = field(
        default_factory=OrderedDict[Hashable, KnownList]
    )
    """What callers were last told, by who asked in which words."""
    named: OrderedDict[Hashable, NamedBefore] = field(
        default_factory=OrderedDict[Hashable, NamedBefore]
    )
    """What lists of metadata named, by who asked in which words, place included."""
    lists_size: int = 0
    """What these take beside the texts, as it is counted in `size`."""


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

    @property
    def is_short(self) -> bool:
        """Whether it was so short that it is asked for as it is."""
        return self.size < _LEAST_BYTES

    def tries_metadata(self) -> bool:
        """Whether to ask for metadata first, this time."""
        if self.is_short:
            return False
        self.skips -= self.skips > 0
        return not self.skips

    def note_whole(self, seconds: float, size: int) -> None:
        """Take note of how long the whole list took, and how long it was."""
        self.whole_seconds, self.size = seconds, size

    def pays(self, seconds: float) -> bool:
        """Whether a list of metadata that took so long was worth asking for."""
        return seconds <= self.whole_seconds * _WORTHWHILE

    def note_metadata(self, seconds: float, *, sufficed: bool) -> None:
        """Take note of how asking for metadata went: in vain, it is tried half as often."""
        if sufficed and self.pays(seconds):
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
        self._in_vain: Counter[str] = Counter()
        self._plain_until: dict[str, float] = {}
        """Until when clusters are asked for metadata as JSON."""
        self._changes: Counter[str] = Counter()
        self.before_lists: Callable[[str], Awaitable[None]] = _nothing_before
        """Called before a cluster is asked for a list: whoever has more of it puts it here."""
        self._unpacked: dict[KindKey, None] = {}
        """Kinds of which blocks may be packed, the one that was read longest ago first."""
        self._packing = asyncio.Lock()
        """Held while kinds are packed: who waits for it finds their own packed, if it has to be."""
        self._arriving_bytes = 0
        """What those wait with, before they are packed."""

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

    def texts(self, key: KindKey, version: str, digests: Sequence[bytes]) -> list[Text | None]:
        """Return the text of each state; None for what is not known.

        `version` is that of a list of what there is now, and empty for any other list.
        """
        kind = self.find(key)
        if kind is None or self._has_gone_back(key, kind, version):
            return [None] * len(digests)
        oldest = self.clock.monotonic() - TRUSTED_SECONDS
        if kind.aliases:
            digests = [kind.aliases.get(each, each) for each in digests]
        found = map(kind.texts.get, digests)
        return [each if each and each.block.read_at > oldest else None for each in found]

    def has_gone_back(self, key: KindKey, version: str) -> bool:
        """Whether a cluster counts from a lower version again: what is kept of it is forgotten.

        `version` is that of a list of what there is now, and empty for any other list.
        """
        kind = self._kinds.get(key)
        return kind is not None and self._has_gone_back(key, kind, version)

    def named_before(self, key: KindKey, asked: Hashable, digest: bytes) -> Sequence[Text]:
        """Return the texts that the same list of metadata has named before; none if one is old."""
        kind = self.find(key)
        named = None if kind is None else kind.named.get(asked)
        oldest = self.clock.monotonic() - TRUSTED_SECONDS
        if named is None or named.digest != digest or named.read_at <= oldest:
            return ()
        return named.texts

    def note_named(
        self, key: KindKey, asked: Hashable, digest: bytes, texts: Sequence[Text]
    ) -> None:
        """Remember which texts a list of metadata has named."""
        kind = self._kinds.get(key)
        if kind is None or not texts:
            return
        self._forget_named(kind, asked)
        read_at = min(each.block.read_at for each in texts)
        kind.named[asked] = NamedBefore(digest, read_at, texts)
        self._count(kind, len(texts) * _PLACE_BYTES)
        while len(kind.named) > _MOST_LISTS:
            self._forget_named(kind, next(iter(kind.named)))

    def _forget_named(self, kind: CachedKind, asked: Hashable) -> None:
        named = kind.named.pop(asked, None)
        if named is not None:
            self._count(kind, -len(named.texts) * _PLACE_BYTES)

    def unaliased(self, key: KindKey) -> dict[bytes, Text]:
        """Return the texts of which it is not known how their metadata looks in another form."""
        kind = self._kinds.get(key)
        if kind is None:
            return {}
        known = set(kind.aliases.values())
        return {digest: text for digest, text in kind.texts.items() if digest not in known}

    def alias(self, key: KindKey, found: Mapping[bytes, bytes]) -> None:
        """Remember digests that stand for the same states as others, by which texts are kept."""
        kind = self._kinds.get(key)
        if kind is None:
            return
        before = len(kind.aliases)
        kind.aliases |= {each: to for each, to in found.items() if each != to}
        if len(kind.aliases) > len(kind.texts) + _FEW_STALE:
            kept = kind.texts
            kind.aliases = {each: to for each, to in kind.aliases.items() if to in kept}
        self._count(kind, (len(kind.aliases) - before) * _ALIAS_BYTES)

    def takes_protobuf(self, cluster: str) -> bool:
        """Whether to ask a cluster for metadata in protobuf: unless that was in vain of late."""
        return self._plain_until.get(cluster, 0.0) <= self.clock.monotonic()

    def note_protobuf(self, cluster: str, *, pays: bool) -> None:
        """Take note of how a list of metadata in protobuf went.

        In vain some times running, the cluster writes JSON as quickly and is asked for that for a
        while. Once says little: whatever else it had to do may have been what it took so long for.
        """
        self._in_vain[cluster] = 0 if pays else self._in_vain[cluster] + 1
        if self._in_vain[cluster] >= _MOST_IN_VAIN:
            self.refuse_protobuf(cluster)

    def refuse_protobuf(self, cluster: str) -> None:
        """Ask a cluster for metadata as JSON for some time."""
        self._plain_until[cluster] = self.clock.monotonic() + UNUSED_SECONDS
        self._in_vain.pop(cluster, None)

    def has_room(self, size: int) -> bool:
        """Whether a list of so many bytes may be kept at all."""
        return size * _SHARE <= self.most_bytes

    async def keep(
        self,
        key: KindKey,
        kind: CachedKind,
        texts: Sequence[tuple[bytes, msgspec.Raw]],
    ) -> list[Text]:
        """Keep texts that were just read, by their digests; return them as they are kept.

        Where room is short, nothing leaves for texts that are about to be packed: lists of a
        hundred members that are read at once may take several times the room that they will have.
        Until then they are counted as answers that are being worked on.
        """
        before = self.used_bytes
        kept = self._take_in(key, kind, texts)
        arriving = max(0, self.used_bytes - before)
        self._arriving_bytes += arriving
        try:
            async with self._packing:
                await self._pack()
        finally:
            # Whatever became of it: it counts from now on, and the last of many leaves no more
            # than there is room for.
            self._arriving_bytes -= arriving
            self._make_room()
        return kept

    def put(
        self,
        key: KindKey,
        kind: CachedKind,
        texts: Sequence[tuple[bytes, msgspec.Raw]],
    ) -> list[Text]:
        """Keep texts as `keep` does, as they are."""
        kept = self._take_in(key, kind, texts)
        self._make_room()
        return kept

    def _take_in(
        self,
        key: KindKey,
        kind: CachedKind,
        texts: Sequence[tuple[bytes, msgspec.Raw]],
    ) -> list[Text]:
        # One step of the loop: between two awaits the sums are exact, and whoever looks texts up
        # finds all of a list or nothing of it.
        known = self._kinds.get(key)
        if known is None or self._has_gone_back(key, known, kind.version):
            self._kinds[key] = known = kind
        known.used_at = now = self.clock.monotonic()
        known.version = kind.version if is_lower(known.version, kind.version) else known.version
        known.list_kind, known.api_version = kind.list_kind, kind.api_version
        self._changes[key.naming.cluster] += bool(texts)
        unchanged = _confirm(known, texts, now)
        new = {digest: text for digest, text in texts if digest not in unchanged}
        added = dict(zip(new, in_blocks(now, list(new.values())), strict=True))
        self._add(known, added.items())
        kept = [unchanged.get(digest) or added[digest] for digest, _ in texts]
        self._kinds.move_to_end(key)
        if added:
            self._unpacked[key] = None
        if known.size * _SHARE > self.most_bytes:
            self._drop_old(known, now)
        if known.size * _SHARE > self.most_bytes:
            self._forget(key)
        return kept

    def _make_room(self) -> None:
        while self._kinds and self.used_bytes - self._arriving_bytes > self.most_bytes:
            self._forget(next(iter(self._kinds)))

    @property
    def is_half_full(self) -> bool:
        """Whether so much is kept that texts are packed."""
        return self.used_bytes * 2 > self.most_bytes

    async def _pack(self) -> None:
        """Pack what was read longest ago, as long as more than half of the room is taken.

        Another thread does the work, one kind at a time. What is kept may change meanwhile, texts
        do not: a block that has left by then is packed in vain.
        """
        while self.is_half_full and self._unpacked:
            # Taken off before anything is awaited: what is read of it meanwhile puts it back.
            key = next(iter(self._unpacked))
            del self._unpacked[key]
            kind = self._kinds.get(key)
            if kind is None:
                continue
            blocks = [each for each in kind.blocks if not each.is_packed]
            try:
                await asyncio.to_thread(_pack_all, blocks)
            except asyncio.CancelledError:
                self._unpacked[key] = None
                raise
            if self._kinds.get(key) is not kind:
                continue  # forgotten meanwhile
            for block in blocks:
                if block in kind.blocks and not block.is_packed:
                    before = block.weight
                    block.pack()
                    self._count(kind, block.weight - before)

    # -- what callers were told ----------------------------------------------------------------

    def find_list(self, key: KindKey, asked: Hashable) -> KnownList | None:
        """Return what a caller was last told when they asked for this; its kind counts as used."""
        kind = self.find(key)
        return None if kind is None else kind.lists.get(asked)

    def note_list(self, key: KindKey, asked: Hashable, listed: KnownList) -> None:
        """Keep what a member has just told a caller: all there is, in order."""
        kind = self._kinds.get(key)
        if kind is None:
            return  # there was no room for its objects
        listed.follow(kind.lists.pop(asked, None))
        kind.lists[asked] = listed
        while len(kind.lists) > _MOST_LISTS:
            kind.lists.popitem(last=False)

    def weigh_lists(self, key: KindKey) -> None:
        """Count what lists of a kind take beside its texts, after more was read of them."""
        kind = self._kinds.get(key)
        if kind is not None:
            weight = sum(each.weight for each in kind.lists.values())
            self._count(kind, weight - kind.lists_size)
            kind.lists_size = weight

    def forget_list(self, key: KindKey, asked: Hashable) -> None:
        """Forget what a caller was told: the member has refused it, or says something else."""
        kind = self._kinds.get(key)
        if kind is not None:
            kind.lists.pop(asked, None)

    def sweep(self, members: Collection[str]) -> None:
        """Forget what is too old to be used, kinds nobody asks for, and clusters that left."""
        now = self.clock.monotonic()
        self._in_vain = Counter({each: self._in_vain[each] for each in members})
        self._plain_until = {
            each: until for each, until in self._plain_until.items() if until > now
        }
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

    def restore(self, key: KindKey, kind: CachedKind, texts: Mapping[bytes, Text]) -> None:
        """Take up what was kept of a kind before, unless there is no room for it."""
        blocks = {each.block for each in texts.values()}
        size = sum(each.weight for each in blocks) + len(texts) * _BESIDE_BYTES
        has_room = self.has_room(size) and self.used_bytes + size <= self.most_bytes
        if key in self._kinds or not has_room:
            return
        self._kinds[key] = kind
        self._add(kind, texts.items())
        if any(not each.is_packed for each in blocks):
            self._unpacked[key] = None
        self._drop_old(kind, self.clock.monotonic())

    def restore_history(self, key: tuple[str, str], history: ListHistory) -> None:
        """Take up how a list went before."""
        if len(self._histories) < _MOST_HISTORIES:
            self._histories.setdefault(key, history)

    def _add(self, kind: CachedKind, texts: Iterable[tuple[bytes, Text]]) -> None:
        for digest, text in texts:
            self._take_out(kind, digest)
            kind.texts[digest] = text
            self._count(kind, _BESIDE_BYTES)
            if text.block not in kind.blocks:
                kind.blocks[text.block] = None
                self._count(kind, text.block.weight)

    def _take_out(self, kind: CachedKind, digest: bytes) -> None:
        text = kind.texts.pop(digest, None)
        if text is None:
            return
        self._count(kind, -_BESIDE_BYTES)
        text.block.live -= 1
        if not text.block.live:
            del kind.blocks[text.block]
            self._count(kind, -text.block.weight)

    def _drop_old(self, kind: CachedKind, now: float) -> None:
        oldest = now - TRUSTED_SECONDS
        for digest in [key for key, each in kind.texts.items() if each.block.read_at <= oldest]:
            self._take_out(kind, digest)
        for asked in [key for key, each in kind.lists.items() if each.read_at <= oldest]:
            del kind.lists[asked]
        for asked in [key for key, each in kind.named.items() if each.read_at <= oldest]:
            self._forget_named(kind, asked)

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
        self._unpacked.pop(key, None)
        self._changes[key.naming.cluster] += 1
        self._count(kind, -kind.size)

    def _count(self, kind: CachedKind, grown: int) -> None:
        kind.size += grown
        self.used_bytes += grown


def _pack_all(blocks: Iterable[Block]) -> None:
    for each in blocks:
        each.packed()


def _confirm(
    kind: CachedKind, texts: Sequence[tuple[bytes, msgspec.Raw]], now: float
) -> Mapping[bytes, Text]:
    """Return what is kept already, word for word: its blocks count as read now.

    Most objects of a list that is read whole are what they were. Kept as they are, they stay packed
    and what was read of their fields stays known. A block counts as a whole, if all that is kept of
    it was read again.
    """
    again: dict[Block, dict[bytes, Text]] = {}
    plain: dict[Block, Sequence[msgspec.Raw]] = {}
    for digest, text in texts:
        former = kind.texts.get(digest)
        if former is None or former.size != len(text):
            continue
        block = former.block
        if block not in plain:
            plain[block] = block.texts()
        if plain[block][former.at] == text:
            again.setdefault(block, {})[digest] = former
    confirmed: dict[bytes, Text] = {}
    for block, found in again.items():
        if len(found) == block.live:
            block.read_at = now
            confirmed |= found
    return confirmed


def digest_of(metadata: bytes | memoryview | msgspec.Raw) -> bytes:
    """Return what stands for the state of the object that has this metadata."""
    return hashlib.blake2b(metadata, digest_size=16).digest()
