"""Many event streams to one, each event stamped with how far the whole stream has come.

Each cluster of a stream is in one of three places:

    unseen ──first item──> in part ──last item of the last page──> followed at a version
      │                      ^                                        │
      └──an empty list───────┼───────────────────────────────────────>│
                             └────────the cluster forgot the version──┘

    unseen      the client has nothing of it; the vector does not speak of it
    in part     the client has some of it; the vector says so, and nobody can go on from there
    followed    the client has all of it up to a version; the vector has that version

A vector is a promise: who has read all up to an event may go on from its vector and misses nothing.
So an event is stamped in the very call that moves the vector, and whatever a call returns is
written before the next call is made. To stamp first and to queue later would let another cluster's
event overtake, and its vector would promise an event that is still to come.

Who writes an object compares the version in the answer with those of events, to know that a stream
has come there. The answer has the cluster's own version, so the event of what a client has just
written has that one too. Nobody can go on from it: the vector follows behind it, in a bookmark.

What is unknown stays as it is: a cluster that is silent is not spoken of and nothing is deleted.
When it has forgotten how to go on it is listed again, and the difference to what this stream has
sent of it is sent. A stream that did not send it all itself cannot know that difference: it ends.

A cluster that was restored from a backup has gone back: it is at a lower version than the one the
client has of it, and counts the same numbers again for other changes. It would take the old version
for one of the future and say nothing until it gets there. So it has forgotten how to go on too, and
a version that was sent of one of its objects says nothing of what the object is now.
"""

import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace

from clusterspace.errors import AnswerOverrun, ClusterMisbehaved, Expired
from clusterspace.fleet.gateway.merge.events import (
    Change,
    Event,
    Head,
    Item,
    Style,
    gone,
    read_event,
    read_items,
)
from clusterspace.fleet.gateway.merge.field_filters import FieldFilter
from clusterspace.fleet.gateway.merge.lists import ClusterList
from clusterspace.fleet.gateway.merge.versions import RunningVector, is_lower, placed
from clusterspace.fleet.gateway.routes import Naming
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object


class SentObjects:
    """Remembers, for each object of one cluster, the UID and version last sent to one client.

    These two texts are all it keeps of an object, so a stream costs little memory however large
    the objects of the cluster are.
    """

    def __init__(self) -> None:
        self._states: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._states)

    def note(self, change: Change, head: Head) -> None:
        """Remember what has been sent of an object."""
        if change is Change.DELETED:
            self._states.pop(head.key, None)
        else:
            self._states[head.key] = _state_of(head)

    def knows(self, head: Head) -> bool:
        """Whether the client has the object, in whichever state."""
        return head.key in self._states

    def has(self, head: Head) -> bool:
        """Whether just this state was the last one sent of the object."""
        return self._states.get(head.key) == _state_of(head)

    def changes(self, listed: Head) -> Iterator[tuple[Change, Head]]:
        """Yield the events that bring the client from the state last sent to the listed one."""
        known = self._states.get(listed.key)
        if known == _state_of(listed):
            return
        if known is not None and _uid_in(known) != listed.uid:
            # Deleted and made again while nobody looked: two things happened.
            gone_head = Head(listed.name, listed.namespace, _uid_in(known), listed.resource_version)
            yield Change.DELETED, gone_head
            known = None
        yield (Change.ADDED if known is None else Change.MODIFIED), listed

    def forget_versions(self) -> None:
        """Believe of no object that it is as it was sent, though its version be the same."""
        self._states = {key: f"{_uid_in(state)} " for key, state in self._states.items()}

    def missing(self, listed: Collection[str], version: str) -> Iterator[Head]:
        """Yield what a whole list of this version no longer has."""
        for key in sorted(self._states.keys() - listed):
            namespace, _, name = key.partition("/")
            yield Head(name, namespace, _uid_in(self._states[key]), version)


def _state_of(head: Head) -> str:
    return f"{head.uid} {head.resource_version}"


def _uid_in(state: str) -> str:
    return state.partition(" ")[0]


@dataclass(slots=True)
class _Member:
    """One cluster of the stream."""

    naming: Naming
    position: str | None
    """None when it is unseen, empty when it was sent in part."""
    sent: SentObjects | None
    """None when the client has objects of it that this stream has not sent."""
    listed: set[str] = field(default_factory=set[str])
    """What the list under way has had so far."""
    columns: tuple[Object, ...] = ()
    like: ClusterList | None = None
    """A list without objects that has the kind of what was sent."""


# A client that lists east and west and then watches them, call by call; "…" is "in part":
#
#     call                                  line                     vector on it, and after it
#     splice(east), splice(west)            (none)                   {}
#     feed_page(east, a@3, more to come)    ADDED a                  {east …}
#     feed_page(west, b@40, last, at 41)    ADDED b                  {east …, west 41}
#     feed_page(east, c@5, last, at 7)      ADDED c                  {east 7, west 41}
#                                           BOOKMARK, the first      {east 7, west 41}
#     feed(west, MODIFIED b@44)             MODIFIED b               {east 7, west 44}
#     feed(west, BOOKMARK @50)              (none)                   {east 7, west 50}
#     expire(east): it forgot 7             (none)                   {east …, west 50}
#     feed_page(east, a@3 c@9, last, at 9)  MODIFIED c               {east 9, west 50}
#
# The client that broke off behind "MODIFIED b" resumes with {east 7, west 44} and gets b no second
# time; the one that broke off behind "ADDED b" has all of west and a part of east, from which
# nobody can go on: it is told 410 and lists again. East's second list sends c alone, because this
# stream remembers that a@3 was sent; had the stream been resumed, it would not know what the client
# has of east, and would end.
class WatchMerger:
    """The state of one client's watch. Every call returns the lines to write, in their order."""

    def __init__(
        self,
        style: Style,
        *,
        wants_bookmarks: bool = False,
        wants_initial_end: bool = False,
        most_objects: int = sys.maxsize,
        is_written: Callable[[str, Head], bool] = lambda _cluster, _head: False,
        field_filter: FieldFilter | None = None,
    ) -> None:
        self._style = style
        self._filter = field_filter
        self._is_written = is_written
        """Whether the client has just written an object of a cluster, or is about to."""
        self._most_objects = most_objects
        self._wants_bookmarks = wants_bookmarks
        self._owes_initial_end = wants_initial_end and wants_bookmarks
        self._members: dict[str, _Member] = {}
        self._awaited: set[str] = set()
        self._vector = RunningVector()

    def follow(self, naming: Naming, version: str, state: ClusterList | None = None) -> None:
        """Take in a cluster of which the client has everything up to this version.

        `state` is what that is, where it is known. With a filter it must be.
        """
        sent = None if state is None else SentObjects()
        if sent is not None and state is not None:
            for item in read_items(state):
                sent.note(Change.ADDED, item.head)
        self._members[naming.cluster] = _Member(naming, None, sent)
        self._move(self._members[naming.cluster], version)

    def splice(self, naming: Naming, *, is_awaited: bool = False) -> None:
        """Take in a cluster of which the client has nothing yet.

        The initial events are complete when every cluster is that `is_awaited`.
        """
        self._members[naming.cluster] = _Member(naming, None, SentObjects())
        if is_awaited:
            self._awaited.add(naming.cluster)

    def learn(self, listed: ClusterList) -> None:
        """Take note of the kind and the columns of a list that will be fed later."""
        self._style.learn(listed)

    def position(self, cluster: str) -> str:
        """Return the version to watch a cluster from; empty when it is to be listed first."""
        return self._members[cluster].position or ""

    def naming_of(self, cluster: str) -> Naming:
        """Return how a cluster calls things in this stream."""
        return self._members[cluster].naming

    def feed(self, cluster: str, line: bytes) -> list[bytes]:
        """Take an event of a cluster that is followed; raise what it tells when it is an error."""
        member = self._members[cluster]
        return self.take(cluster, read_event(line, member.naming, member.columns))

    def take(self, cluster: str, event: Event) -> list[bytes]:
        """Take an event that was read already, with `naming_of` the cluster."""
        member = self._members[cluster]
        self._require_room(member)
        item, version = event.item, event.item.head.resource_version
        self._style.learn(item.listed)
        if event.change is None:
            self.require_no_return(cluster, version)
            self._move(member, version)
            return []
        member.columns = item.listed.columns
        if self._filter is not None:
            event = self._judged(self._filter, member, event, event.change)
            item = event.item
            if event.change is None:
                self._move(member, version)
                return []
        was_sent = member.sent is not None and member.sent.has(item.head)
        if was_sent and event.change is not Change.DELETED:
            self._move(member, version)
            return []
        is_own = event.change is not Change.DELETED and self._may_bookmark
        if not (is_own and self._is_written(cluster, item.head)):
            return [self._emit(member, event.change, item, version)]
        # The bookmark goes out in the same step. A client that breaks off between the two is told
        # 410 when it goes on: a version of one cluster is never continued from.
        return [self._emit(member, event.change, item, version, stamp=version), *self.bookmark()]

    def _judged(
        self, field_filter: FieldFilter, member: _Member, event: Event, change: Change
    ) -> Event:
        """Return an event as it is to who sees what matches alone; no change if it is none.

        As a kube-apiserver tells it: what matches now and did not is ADDED, what did and no longer
        does is DELETED.
        """
        listed = event.item.listed
        fits = change is not Change.DELETED and all(field_filter.matches(listed))
        # Where it could not be found out what the client has, it may have it: a cache that is told
        # of the end of what it does not have is none the worse.
        had = member.sent is None or member.sent.knows(event.item.head)
        item = Item(event.item.head, field_filter.reduce(listed))
        if fits:
            return Event(Change.MODIFIED if had else Change.ADDED, item)
        return Event(Change.DELETED if had else None, item)

    def require_no_return(self, cluster: str, current: str) -> None:
        """Raise "too large resource version" when a cluster is behind what was sent of it."""
        position = self.position(cluster)
        if is_lower(current, position):
            raise statuses.version_too_large(int(position), int(current))

    def begin_list(self, cluster: str) -> None:
        """Forget how far a list of the cluster had come: another one begins."""
        self._members[cluster].listed = set()

    def feed_page(self, cluster: str, page: ClusterList) -> list[bytes]:
        """Take one page of a list: what differs from what was sent, and with the last, is gone."""
        member, version = self._members[cluster], page.metadata.resource_version
        if not version:
            raise ClusterMisbehaved(cluster, "its list has no resourceVersion", code=200)
        self._require_room(member)
        self._style.learn(page)
        member.columns = page.columns
        member.like = replace(page, items=(), rows=())
        is_last = not page.metadata.continue_token
        changes: list[tuple[Change, Item]] = []
        if member.sent is not None:
            for item in read_items(page):
                member.listed.add(item.head.key)
                for change, head in member.sent.changes(item.head):
                    is_gone = change is Change.DELETED
                    changes.append((change, gone(head, page) if is_gone else item))
            # The last page ends what no page had.
            missing = member.sent.missing(member.listed, version) if is_last else ()
            changes += [(Change.DELETED, gone(head, page)) for head in missing]
        lines = [self._emit(member, change, item, "") for change, item in changes[:-1]]
        lines += [
            self._emit(member, change, item, version if is_last else "")
            for change, item in changes[-1:]
        ]
        if is_last:
            member.listed = set()
            self._move(member, version)
            lines += self._end_of_wait(cluster)
        return lines

    def expire(self, cluster: str, *, has_gone_back: bool = False) -> None:
        """Take note that a cluster has forgotten how to go on, so that it must be listed again.

        One that `has_gone_back` gives versions anew: all it lists is told, whatever was sent of it.
        """
        member = self._members[cluster]
        if member.sent is None:
            what = "gone back behind" if has_gone_back else "forgotten"
            raise Expired(f"cluster {cluster} has {what} the resourceVersion; list again")
        if has_gone_back:
            member.sent.forget_versions()
        if member.position is not None:
            self._move(member, "")

    def leave(self, cluster: str) -> list[bytes]:
        """Let go of a cluster that left the fleet; raise Expired when the client has some of it."""
        member = self._members[cluster]
        if member.position is not None:
            raise Expired(f"cluster {cluster} has left the fleet; list again")
        del self._members[cluster]
        return self._end_of_wait(cluster)

    def is_overfull(self, cluster: str) -> bool:
        """Whether a cluster has sent more objects than any has: nothing more of it is taken."""
        sent = self._members[cluster].sent
        return sent is not None and len(sent) > self._most_objects

    def withdraw(self, cluster: str, at_once: int) -> Iterator[list[bytes]]:
        """Take back what was sent of a cluster that cannot be listed to its end, bit by bit.

        Afterwards the client has nothing of it, as before it was spliced in. The caller writes what
        it is given before it takes more, and nobody else calls in between.
        """
        member = self._members[cluster]
        if member.sent is not None and member.like is not None:
            version = member.like.metadata.resource_version
            heads = list(member.sent.missing((), version))
            for start in range(0, len(heads), at_once):
                yield [
                    self._emit(member, Change.DELETED, gone(head, member.like), "")
                    for head in heads[start : start + at_once]
                ]
        self._members[cluster] = _Member(member.naming, None, SentObjects())
        self._vector.remove(cluster)
        yield self._end_of_wait(cluster)

    def bookmark(self) -> list[bytes]:
        """Tell how far the stream has come, to clients that asked for it."""
        if not self._may_bookmark:
            return []
        line = self._style.bookmark(self._vector.encode(), ends_initial=self._owes_initial_end)
        if line:
            self._owes_initial_end = False
        return [line] if line else []

    @property
    def _may_bookmark(self) -> bool:
        if not self._wants_bookmarks or self._awaited:
            return False
        return all(member.position != "" for member in self._members.values())

    def _require_room(self, member: _Member) -> None:
        cluster = member.naming.cluster
        if self.is_overfull(cluster):
            why = f"sent more than {self._most_objects} objects"
            raise AnswerOverrun(cluster, why, code=200)

    def _emit(
        self, member: _Member, change: Change, item: Item, position: str, stamp: str = ""
    ) -> bytes:
        """Move the vector and write the event that has it: one step, whatever else goes on.

        With a `stamp` the event has that instead, and the caller has the vector follow.
        """
        # Invariant: what is remembered as sent, the vector, and the line that is returned change in
        # this one step. A caller that awaited between this call and its write would let another
        # cluster's event, stamped later, go out first: its vector says "east at 7" while the event
        # 7 of east is still here. A client that breaks off there goes on from 7 and never sees it.
        if member.sent is not None:
            member.sent.note(change, item.head)
        own = item.head.resource_version
        self._vector.set(member.naming.cluster, placed(position, own))
        line = self._style.write(change, item, stamp or self._vector.encode())
        self._move(member, position)
        return line

    def _move(self, member: _Member, position: str) -> None:
        member.position = position
        self._vector.set(member.naming.cluster, position)

    def _end_of_wait(self, cluster: str) -> list[bytes]:
        """Say that all initial events are out, or that a cluster in part is whole again."""
        self._awaited.discard(cluster)
        return self.bookmark()
