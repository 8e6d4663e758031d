"""What the gateway knows of members' objects, in a file for each member, for its next start.

    magic and version │ length, header │ length, kind │ length, kind │ … │ checksum of all before

A file saves reading and nothing else: whatever is in it, members are asked at each list which
states there are, as the caller, and a text is used only for the very state that it was read in.
So a file that is old, torn, or of another cluster costs a whole list. It is not used: what does not
end with its checksum, is not our own, or is of another Cluster than the one of that name.

Secrets are never kept, so never written. Nor are ConfigMaps, which people encrypt where they are
stored, too. Files are 0600 and replaced whole: a crash leaves the old one, or a draft that the next
start removes. They hold no more than the cache does.
"""

import asyncio
import hashlib
import os
import stat
import struct
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import structlog

from clusterspace.aio.clocks import Clock
from clusterspace.aio.tasks import Tasks
from clusterspace.fleet.gateway.object_cache import (
    CachedKind,
    KindKey,
    ListHistory,
    ObjectCache,
)
from clusterspace.fleet.gateway.object_texts import Block, Text
from clusterspace.fleet.gateway.routes import Naming, Subject
from clusterspace.kube.json_errors import UNREADABLE

_log = structlog.get_logger(__name__)

_MAGIC: Final = b"clusterspace cached objects 2\n"
_LENGTH: Final = struct.Struct(">Q")
_CHECKSUM_BYTES: Final = 32
_WRITE_SECONDS: Final = 60.0
_SUFFIX: Final = ".cache"
_DRAFT: Final = ".draft-"
_NEVER_WRITTEN: Final = frozenset({("", "secrets"), ("", "configmaps")})

Identity = Callable[[str], str]
"""Returns what tells a member from another one of the same name; empty when there is none."""


class _Header(msgspec.Struct):
    cluster: str
    identity: str
    written_at: float
    histories: list[tuple[str, float, int, float]]
    """Of each list that is asked for again and again: its digest, how long ago, how long it was,
    and how long it took."""


class _Kind(msgspec.Struct):
    naming: Naming
    subject: Subject
    list_kind: str
    api_version: str
    version: str
    blocks: list["_Block"] = []


class _Block(msgspec.Struct, array_like=True):
    age: float
    """How long before the file was written it was read."""
    lengths: list[int]
    digests: list[tuple[int, bytes]]
    """Of which of its texts the digests are known; the others were read anew since."""
    packed: bytes


class _Kept(NamedTuple):
    """What is kept of one member at one moment."""

    header: _Header
    kinds: list[tuple[_Kind, list[tuple[bytes, Text]]]]
    now: float


class _Restored(NamedTuple):
    """What a file holds of one kind."""

    kind: _Kind
    texts: dict[bytes, Text]


class _Unfit(Exception):
    """A file that is not used, and why."""


_read_header: Final = msgspec.msgpack.Decoder(_Header).decode
_read_kind: Final = msgspec.msgpack.Decoder(_Kind).decode
_encode: Final = msgspec.msgpack.Encoder().encode


class WarmFiles:
    """The files of a gateway's directory in which its cache survives a restart."""

    def __init__(
        self, directory: Path, cache: ObjectCache, identity: Identity, clock: Clock
    ) -> None:
        self._directory = directory
        self._cache = cache
        self._identity = identity
        self._clock = clock
        self._written: dict[str, int] = {}
        """How many times what is kept of a cluster had changed when it was written."""
        self._unread: dict[str, Path] = {}
        """The files that were there at the start and have not been read yet."""
        self._reading = asyncio.Lock()

    def tasks(self) -> Tasks:
        """Return the background task: it reads what is left, then writes what has changed."""

        async def read_and_write() -> None:
            for cluster in list(self._unread):
                await self.load(cluster)
            while True:
                await self._clock.sleep(_WRITE_SECONDS)
                await self.write()

        return {"cached objects on disk": read_and_write} if self._cache.most_bytes else {}

    async def open(self, members: Collection[str]) -> None:
        """Find the files of these members, and remove all others.

        They are read one by one from now on, and the file of a member at the latest when somebody
        asks for a list of it: a thousand of them take longer than anybody waits for a start.
        """
        for path in await asyncio.to_thread(self._list_files):
            name = path.name.removesuffix(_SUFFIX)
            if name not in members or not self._cache.most_bytes or not path.name.endswith(_SUFFIX):
                await asyncio.to_thread(path.unlink, missing_ok=True)
            else:
                self._unread[name] = path
        self._cache.before_lists = self.load

    async def load(self, cluster: str) -> None:
        """Take up what the file of a member holds, unless that was done before."""
        if cluster not in self._unread:
            return
        # One at a time: who asks for a list waits for the file that is being read, and then for
        # their own. What is read of the member by others meanwhile stays: `restore` puts nothing in
        # the place of a kind that is known.
        async with self._reading:
            path = self._unread.pop(cluster, None)
            if path is None:
                return
            try:
                header, kinds = await asyncio.to_thread(
                    _read_file, path, self._cache.most_bytes * 2, cluster, self._identity(cluster)
                )
                passed = self._clock.now() - header.written_at
                if passed < 0:
                    raise _Unfit("it was written in the future")
                restored = await asyncio.to_thread(
                    _restored, kinds, self._clock.monotonic() - passed
                )
                self._take(cluster, header, passed, restored)
            except (OSError, _Unfit) as error:
                _log.warning("cached objects are not used", cluster=cluster, reason=str(error))

    def _take(
        self, cluster: str, header: _Header, passed: float, kinds: Sequence[_Restored]
    ) -> None:
        now = self._clock.monotonic()
        for each, texts in kinds:
            key = KindKey(each.naming, each.subject)
            kind = CachedKind(each.list_kind, each.api_version, used_at=now, version=each.version)
            self._cache.restore(key, kind, texts)
        for digest, age, size, seconds in header.histories:
            history = ListHistory(now - passed - age, is_repeated=True, size=size)
            history.whole_seconds = seconds
            self._cache.restore_history((cluster, digest), history)

    async def write(self) -> None:
        """Write the file of each member of which more or less is kept than is in it."""
        for cluster in self._cache.clusters() | self._written.keys():
            changes = self._cache.changes(cluster)
            identity = self._identity(cluster)
            if not identity:
                self._written.pop(cluster, None)
                await asyncio.to_thread(self._path(cluster).unlink, missing_ok=True)
            elif self._written.get(cluster) != changes:
                # What is kept is collected in one step; texts never change. Only bytes are made and
                # written beside the loop.
                kept = self._collect(cluster, identity)
                try:
                    await asyncio.to_thread(_write_file, self._path(cluster), kept)
                except OSError as error:
                    why = str(error)
                    _log.warning("cached objects are not written", cluster=cluster, reason=why)
                    continue
                self._written[cluster] = changes

    def _collect(self, cluster: str, identity: str) -> "_Kept":
        now = self._clock.monotonic()
        histories = [
            (digest, now - each.asked_at, each.size, each.whole_seconds)
            for digest, each in self._cache.histories_of(cluster)
        ]
        kinds = [
            (
                _Kind(key.naming, key.subject, kind.list_kind, kind.api_version, kind.version),
                list(kind.texts.items()),
            )
            for key, kind in self._cache.kinds_of(cluster)
            if (key.subject.group, key.subject.resource) not in _NEVER_WRITTEN and not key.beside
        ]
        return _Kept(_Header(cluster, identity, self._clock.now(), histories), kinds, now)

    def _path(self, cluster: str) -> Path:
        return self._directory / f"{cluster}{_SUFFIX}"

    def _list_files(self) -> list[Path]:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        return sorted(self._directory.iterdir())


def _write_file(path: Path, kept: _Kept) -> None:
    """Write a file so that readers see all of it or the old one, and only its owner may."""
    checksum = hashlib.blake2b(digest_size=_CHECKSUM_BYTES)
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=_DRAFT)  # 0600
    try:
        with os.fdopen(handle, "wb") as file:

            def put(part: bytes) -> None:
                checksum.update(part)
                file.write(part)

            def put_part(part: _Header | _Kind) -> None:
                encoded = _encode(part)
                put(_LENGTH.pack(len(encoded)))
                put(encoded)

            put(_MAGIC)
            put_part(kept.header)
            for kind, texts in kept.kinds:
                digests: dict[Block, list[tuple[int, bytes]]] = {}
                for digest, text in texts:
                    digests.setdefault(text.block, []).append((text.at, digest))
                kind.blocks = [
                    _Block(kept.now - block.read_at, list(block.lengths), named, block.packed())
                    for block, named in digests.items()
                ]
                put_part(kind)
                kind.blocks = []
            file.write(checksum.digest())
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(path)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise


def _read_file(
    path: Path, most_bytes: int, cluster: str, identity: str
) -> tuple[_Header, list[_Kind]]:
    """Read a file that is our own and whole; raise _Unfit for any other."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        is_private = stat.S_ISREG(status.st_mode) and not stat.S_IMODE(status.st_mode) & 0o077
        if not is_private or status.st_uid != os.geteuid():
            raise _Unfit("it is not a file that only its owner may read")
        if status.st_size > most_bytes:
            raise _Unfit("it is larger than all that may be kept")
        content = file.read(most_bytes + 1)
    if not content.startswith(_MAGIC):
        raise _Unfit("it is not of this version")
    body = memoryview(content)[:-_CHECKSUM_BYTES]
    if hashlib.blake2b(body, digest_size=_CHECKSUM_BYTES).digest() != content[-_CHECKSUM_BYTES:]:
        raise _Unfit("it is torn, or was changed")
    try:
        first, *rest = _parts_of(body[len(_MAGIC) :])
        header = _read_header(first)
        if (header.cluster, header.identity) != (cluster, identity):
            raise _Unfit("it is of another cluster")
        kinds = [_read_kind(part) for part in rest]
    except (ValueError, struct.error, *UNREADABLE) as error:
        raise _Unfit(f"it cannot be read: {error}") from error
    return header, [each for each in kinds if each.naming.cluster == cluster]


def _restored(kinds: Sequence[_Kind], read_at: float) -> list[_Restored]:
    """Return the texts of a file that was written at this time, packed as they are there.

    They are used for five minutes at most, and many are not used at all.
    """
    restored: list[_Restored] = []
    try:
        for kind in kinds:
            texts: dict[bytes, Text] = {}
            for each in kind.blocks:
                block = Block.of_packed(read_at - each.age, each.lengths, each.packed)
                places = range(len(each.lengths))
                block.live = len(each.digests)
                texts.update((digest, Text(block, places[at])) for at, digest in each.digests)
            restored.append(_Restored(kind, texts))
            kind.blocks = []
    except (ValueError, IndexError, OverflowError, *UNREADABLE) as error:
        raise _Unfit(f"it cannot be read: {error}") from error
    return restored


def _parts_of(content: memoryview) -> Iterator[memoryview]:
    at = 0
    while at < len(content):
        (length,) = _LENGTH.unpack_from(content, at)
        at += _LENGTH.size
        yield content[at : at + length]
        at += length
