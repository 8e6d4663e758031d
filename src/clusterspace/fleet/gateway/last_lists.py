"""What callers were last shown of members, for when a member is away: see decision 0046.

    a member answers a list ──> kept: who asked, for what, when, and the answer itself
    it is away              ──> who asks for the same is shown that, with a Warning and its age
    it refuses              ──> all that is kept of the kind for that caller is forgotten

Nobody can be asked for rights while a member is away. So nobody is shown what another was: an
answer is kept for the very identity that the member gave it to, name and groups as it was told
them, and for the very question. Whoever sees it again sees nothing that the member has not shown
them. Secrets are never kept.

All is bounded, in bytes and in time. When there is no more room, who has most loses what they have
asked for longest ago.
"""

import hashlib
import math
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import msgspec

from clusterspace.aio.clocks import Clock
from clusterspace.aio.tasks import Tasks
from clusterspace.errors import Forbidden, MethodNotAllowed, NotFound, NotServed, Unauthorized
from clusterspace.fleet.gateway.merge.failures import Reply
from clusterspace.fleet.gateway.merge.versions import is_lower
from clusterspace.fleet.gateway.object_texts import Texts

_SWEEP_SECONDS: Final = 60.0
_SHARE: Final = 4
"""One kind of one cluster for one caller has at most this part of the room."""
_BESIDE_BYTES: Final = 500
"""What a page takes beside its text."""
_MOST_PAGES: Final = 1000
"""Of one list: more than are ever kept, and an end to pages that would follow each other round."""
_MOST_REFUSALS: Final = 4096
"""Callers whose last refusal is remembered, for lists that were under way then."""
_NEVER_KEPT: Final = frozenset({("", "secrets")})
REFUSALS: Final = (Forbidden, MethodNotAllowed, NotFound, NotServed, Unauthorized)


class Caller(NamedTuple):
    """Who asks a member for objects of one kind."""

    cluster: str
    identity: bytes
    """Digest of whom the cluster is told that asks: a name and groups."""
    group: str
    resource: str


class Question(NamedTuple):
    """One list: whose it is, and a digest of all that makes it another one than the next."""

    caller: Caller
    words: bytes


class Page(NamedTuple):
    """One page of a list as a member answered it."""

    reply: Reply
    version: str
    next_token: str
    asked_at: float
    """From when on it counts as old: the member may have answered at once, and slowly."""
    noted_at: float
    size: int


@dataclass(frozen=True, slots=True)
class LastList:
    """The last state of a list, page by page, to its end."""

    pages: tuple[Page, ...]
    age: float
    """Seconds since it was asked for: it is no older than that."""

    @property
    def version(self) -> str:
        """The member's version that it is of."""
        return self.pages[0].version


class LastLists:
    """The last answers of members to lists, each for who was given it."""

    def __init__(self, clock: Clock, most_bytes: int, most_seconds: float) -> None:
        self._clock = clock
        self._most_bytes = most_bytes if most_seconds else 0
        self._most_seconds = most_seconds
        # Of each caller the pages by question and token; callers in the order in which they asked.
        self._kept: OrderedDict[Caller, dict[tuple[bytes, str], Page]] = OrderedDict()
        self._sizes: Counter[bytes] = Counter()
        self._refused_at: OrderedDict[Caller, float] = OrderedDict()
        self.used_bytes = 0
        self.tell: Callable[[bytes], None] = lambda _: None

    def tasks(self, members: Callable[[], Collection[str]]) -> Tasks:
        """Return the background task: it forgets what is too old, and clusters that left."""

        async def sweep() -> None:
            while True:
                await self._clock.sleep(_SWEEP_SECONDS)
                self.sweep(members())

        return {"last lists": sweep} if self._most_bytes else {}

    def note(self, question: Question, token: str, reply: Reply, asked_at: float) -> None:
        """Keep what a member has answered to a list, from its beginning or from a token on.

        Lists of a caller may be under way together and end in any order. One that was asked for
        before a refusal came is not kept behind it: the member may have answered it first. Nor does
        one take the place of another that ended while it was under way and has a newer version.
        """
        caller, now = question.caller, self._clock.monotonic()
        if not self._most_bytes or (caller.group, caller.resource) in _NEVER_KEPT:
            return
        if reply.failure is not None or reply.listed is None:
            return
        if asked_at <= self._refused_at.get(caller, -math.inf):
            return
        metadata, texts = reply.listed.metadata, reply.listed.texts
        former = self._kept.get(caller, {}).get((question.words, token))
        newest = former.version if former is not None and asked_at <= former.noted_at else ""
        if is_lower(metadata.resource_version, newest):
            return
        size = _BESIDE_BYTES + (len(reply.body) if not texts else Texts.weight_of(texts))
        if not token:
            self._drop(question)
        if not metadata.resource_version or size * _SHARE > self._most_bytes:
            return
        # Taken apart, a body takes several times its room: it is read again when it is needed.
        kept = replace(reply, headers={}, listed=None)
        if texts or not reply.body:
            kept = replace(kept, body=b"", listed=reply.listed)
        page = Page(kept, metadata.resource_version, metadata.continue_token, asked_at, now, size)
        self._take_out(caller, (question.words, token))
        self._kept.setdefault(caller, {})[question.words, token] = page
        self._kept.move_to_end(caller)
        self._count(caller, size)
        while self.used_bytes > self._most_bytes:
            (greediest, _), *_ = self._sizes.most_common(1)
            self._forget(next(each for each in self._kept if each.identity == greediest))

    def note_refusal(self, caller: Caller) -> None:
        """Forget all that a caller was shown of a kind: the member has refused them a list of it.

        Whatever list that was, and whoever it was for: a watch begins with one, too. And by way of
        whichever worker: all of them forget it.
        """
        self._note_refusal(caller)
        self.tell(msgspec.msgpack.encode(caller))

    def hear(self, message: bytes) -> None:
        """Take over that a member has refused a caller by way of another worker."""
        self._note_refusal(msgspec.msgpack.decode(message, type=Caller))

    def known(self) -> Iterator[bytes]:
        """Return nothing: a worker that is new has nothing that it would have to forget."""
        return iter(())

    def _note_refusal(self, caller: Caller) -> None:
        self._forget(caller)
        self._refused_at[caller] = self._clock.monotonic()
        self._refused_at.move_to_end(caller)
        while len(self._refused_at) > _MOST_REFUSALS:
            self._refused_at.popitem(last=False)

    def find(
        self, question: Question, *, wanted: str = "", exactly: bool = False
    ) -> LastList | None:
        """Return what a list was when the member last answered it; None when that is not known.

        `wanted` is the version that the client names: nothing older will do, or nothing else.
        """
        found = self._pages_of(question)
        # A part would pass for the whole at the version that it names: whoever goes on from there
        # never hears of the rest.
        if not found or found[-1].next_token:
            return None
        first = found[0]
        age = self._clock.monotonic() - first.asked_at
        if age > self._most_seconds or (exactly and first.version != wanted):
            return None
        if is_lower(first.version, wanted):
            return None
        return LastList(tuple(found), age)

    def sweep(self, members: Collection[str]) -> None:
        """Forget what is too old to be shown, and clusters that left."""
        oldest = self._clock.monotonic() - self._most_seconds
        for caller, pages in list(self._kept.items()):
            if caller.cluster not in members:
                self._forget(caller)
                continue
            for key in [key for key, page in pages.items() if page.asked_at < oldest]:
                self._take_out(caller, key)

    def _pages_of(self, question: Question) -> list[Page]:
        pages, found, token = self._kept.get(question.caller, {}), list[Page](), ""
        while len(found) < _MOST_PAGES and (page := pages.get((question.words, token))) is not None:
            found.append(page)
            token = page.next_token
            if not token:
                break
        return found

    def _drop(self, question: Question) -> None:
        tokens = ["", *(each.next_token for each in self._pages_of(question))]
        for token in tokens:
            self._take_out(question.caller, (question.words, token))

    def _take_out(self, caller: Caller, key: tuple[bytes, str]) -> None:
        pages = self._kept.get(caller)
        page = pages.pop(key, None) if pages is not None else None
        if page is not None:
            self._count(caller, -page.size)
        if pages is not None and not pages:
            del self._kept[caller]

    def _forget(self, caller: Caller) -> None:
        for page in self._kept.pop(caller, {}).values():
            self._count(caller, -page.size)

    def _count(self, caller: Caller, grown: int) -> None:
        self.used_bytes += grown
        self._sizes[caller.identity] += grown
        if not self._sizes[caller.identity]:
            del self._sizes[caller.identity]


def digest_of(parts: Iterable[str]) -> bytes:
    """Return what stands for some texts, in this order."""
    packed = b"".join(
        b"%d:%b" % (len(raw), raw)
        for raw in (each.encode(errors="backslashreplace") for each in parts)
    )
    return hashlib.blake2b(packed, digest_size=16).digest()


def written_age(seconds: float) -> str:
    """Return how long ago something was, as Kubernetes writes ages.

    >>> written_age(0.3), written_age(12), written_age(200), written_age(5000)
    ('0s', '12s', '3m20s', '83m')
    """
    whole = int(seconds)
    if whole < 120:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    if minutes < 10 and rest:
        return f"{minutes}m{rest}s"
    return f"{minutes}m" if minutes < 180 else f"{minutes // 60}h"
