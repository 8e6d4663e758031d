"""The clusters of the fleet: which there are, the way to each, and which of them are in trouble.

Clusters and the Secrets that hold credentials are followed, so a cluster that joins, moves or
leaves is known within a moment and no request has to ask. What cannot be reached for want of
credentials is known too: it is left out with its reason, never without a word. Pull clusters are
reached through the tunnel that their agent keeps, or not at all while there is none.

    reached ──could not be asked──> in trouble ──answers anything at all──> reached

A cluster in trouble is left out of requests that reach many. It is looked at in the background, so
nobody has to pay a deadline to find out that it is back. A request that names a cluster which does
not answer us either is refused at once. One that the hub holds for not ready is looked at unasked.

Whose trouble it is depends on who can have caused it. That nobody could be reached at all concerns
everybody. An answer that comes too late, is too long or breaks off may be the doing of who asked: a
pod behind `pods/proxy` answers as its owner likes, and a list is as long as its namespace. So that
is the trouble of one user with one cluster, and becomes everybody's only when the cluster does not
answer a look of our own either.

    well ──a list fails──> lapsing ──for longer than the grace──> set aside ──lists well──> well

An informer takes a gap in a list for a deletion. So while a cluster fails, informers that may have
objects of it are told to come back; and once it has failed for longer than any blip lasts they are
served without it: one cluster must not keep all others from them for good. This is counted for each
user apart, for the same reason.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import (
    CLUSTER_NAMESPACE,
    CLUSTERS,
    SecretRef,
    conditions_of,
    id_of,
    impersonator_ref_of,
    is_pull,
    secret_ref_of,
)
from clusterspace.apiserver.http.agent_tunnels import AgentTunnels
from clusterspace.client.connection import Connection, Connections
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.informers import Informer, Update
from clusterspace.errors import (
    AddressNotAllowed,
    AnswerOverrun,
    ApiError,
    BadRequest,
    ClusterError,
    ClusterMisbehaved,
    ClusterTimeout,
    ClusterUnreachable,
    CredentialsUnusable,
    Details,
    Forbidden,
    NotFound,
)
from clusterspace.fleet.gateway.routes import HUB, HUB_ALIAS
from clusterspace.fleet.gateway.virtual_labels import (
    ClusterLabels,
    labels_of_cluster,
    shown_in_rows,
)
from clusterspace.kube.conditions import TRUE, find_condition
from clusterspace.kube.objects import Object, uid_of
from clusterspace.kube.resources import GroupVersionResource

# -- which are in trouble, for whom and since when -------------------------------------------------

LOOK_SECONDS: Final = 1.0
"""How often a cluster in trouble is looked at."""

_PROBE: Final = "/livez"
_PROBE_SECONDS: Final = 3.0
_PROBE_BYTES: Final = 64 * 1024
_LONGEST_PAUSE: Final = 60.0
_CALM_SECONDS: Final = 120.0
"""Trouble that comes back within this time is the same trouble."""
_MOST_TROUBLES: Final = 8192
_LONGEST_NAME: Final = 128

FindConnection: TypeAlias = Callable[[str], Awaitable[Connection | None]]
"""Returns the connection to a cluster, or None when there can be none."""

Key = TypeVar("Key")
Value = TypeVar("Value")


class _PerUser(Generic[Key, Value]):
    """Entries of many users within one bound: when it is reached, who has most loses their oldest.

    With one order for all, whoever asks for enough different things would have everybody else's
    entries forgotten.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._users: dict[str, OrderedDict[Key, Value]] = {}

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[tuple[str, Key, Value]]:
        for user, entries in self._users.items():
            for key, value in entries.items():
                yield user, key, value

    def find(self, user: str, key: Key) -> Value | None:
        """Return a user's entry, if there is one."""
        entries = self._users.get(_bounded(user))
        return None if entries is None else entries.get(key)

    def put(self, user: str, key: Key, value: Value) -> None:
        """Set a user's entry, as the latest one of theirs."""
        entries = self._users.setdefault(_bounded(user), OrderedDict())
        self._count += key not in entries
        entries[key] = value
        entries.move_to_end(key)
        if self._count > self._most:
            greediest = max(self._users, key=lambda each: len(self._users[each]))
            self.pop(greediest, next(iter(self._users[greediest])))

    def pop(self, user: str, key: Key) -> None:
        """Drop a user's entry, if there is one."""
        name = _bounded(user)
        entries = self._users.get(name)
        if entries is None or entries.pop(key, None) is None:
            return
        self._count -= 1
        if not entries:
            del self._users[name]


def _bounded(name: str) -> str:
    """Return a name, or what stands for it: anybody may send a long one, and it is kept here."""
    if len(name) <= _LONGEST_NAME:
        return name
    return hashlib.blake2b(name.encode(errors="backslashreplace"), digest_size=32).hexdigest()


@dataclass(slots=True)
class _Trouble:
    why: ClusterError
    until: float
    """Before which nobody looks whether it is over."""
    pause: float
    ended: float | None = None
    """When it was over. It is kept for a while: it may come back."""


# A cluster goes silent, is looked at, and comes back; u and v are two users who list the fleet:
#
#     u lists      no answer in time: u's own trouble, for it may be u's list that takes so long
#     v lists      the cluster is asked for v all the same
#     look         /livez: no answer either. Now it is everybody's: nobody is kept waiting any more
#     look         /livez answers: everybody's trouble is over, and u's if its pause is over, too
#     u lists      late again, within two minutes: the same trouble is back, looked at half as often
#
# Requests note what they met, the one task of `look_after` looks, and neither waits for the other:
# all state changes between two awaits. What a request notes while a look is under way is newer than
# what the look finds, or older; both are taken as they come, because the next request or the next
# look, a second later, sees what is true then. No more than that second is ever lost.
class Troubles:
    """Clusters that could not be asked, or whose answers cost too much, and why."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._shared: dict[str, _Trouble] = {}
        self._own = _PerUser[str, _Trouble](_MOST_TROUBLES)
        self._suspects: set[str] = set()
        """Clusters to look at once although nobody has trouble with them yet."""
        self._has_some = asyncio.Event()

    def find(self, cluster: str, user: str) -> ClusterError | None:
        """Return why a cluster is not to be asked for this user, if that is so."""
        for trouble in (self._own.find(user, cluster), self._shared.get(cluster)):
            if trouble is not None and trouble.ended is None:
                return trouble.why
        return None

    def find_silence(self, cluster: str) -> ClusterError | None:
        """Return why nobody reaches a cluster, if that was so a moment ago; and look again.

        For requests that name the cluster. What one user alone has trouble with is no reason: they
        may have caused it, and ask for something else now.
        """
        trouble = self._shared.get(cluster)
        if trouble is None or trouble.ended is not None:
            return None
        if not isinstance(trouble.why, ClusterUnreachable | ClusterTimeout):
            return None
        # However long the pause before the next look was to be: now somebody waits for it.
        self.suspect(cluster)
        return trouble.why

    def suspect(self, cluster: str) -> None:
        """Have a cluster looked at soon, whether or not anybody has trouble with it."""
        self._suspects.add(cluster)
        self._has_some.set()

    def note(self, cluster: str, failure: Exception | None, user: str) -> None:
        """Take note of how asking a cluster went, as one of many that a user's request reaches."""
        if not isinstance(failure, ClusterUnreachable | ClusterTimeout | AnswerOverrun):
            self._end(self._shared.get(cluster))
            self._end(self._own.find(user, cluster))
        elif _was_nobody_reached(failure):
            self._shared[cluster] = self._trouble(self._shared.get(cluster), failure)
            self._has_some.set()
        else:
            own = self._own.find(user, cluster)
            self._own.put(user, cluster, self._trouble(own, failure))
            self._has_some.set()

    def note_single(self, cluster: str, failure: ClusterError) -> None:
        """Take note that a request failed that was for this cluster alone.

        What answers such a request need not be the cluster: it may be a pod of who asks. That it
        was late or too long is a reason to look, and keeps nobody from asking meanwhile.
        """
        if _was_nobody_reached(failure):
            self._shared[cluster] = self._trouble(self._shared.get(cluster), failure)
            self._has_some.set()
        elif isinstance(failure, ClusterUnreachable | ClusterTimeout):
            self.suspect(cluster)

    def _trouble(self, former: _Trouble | None, failure: ClusterError) -> _Trouble:
        """Return a trouble that begins, goes on or comes back.

        One that comes back is not looked at for twice as long: a cluster that answers the probe and
        then takes a whole deadline of somebody's time would otherwise cost that every second.
        """
        now = self._clock.monotonic()
        if former is not None and former.ended is None:
            former.why = failure
            return former
        pause = LOOK_SECONDS
        if former is not None and former.ended is not None:
            is_back = now - former.ended <= _CALM_SECONDS
            if is_back and not isinstance(failure, ClusterUnreachable):
                pause = min(former.pause * 2, _LONGEST_PAUSE)
        return _Trouble(failure, now + pause, pause)

    def _end(self, trouble: _Trouble | None) -> None:
        if trouble is not None and trouble.ended is None:
            trouble.ended = self._clock.monotonic()

    def let_go(self, cluster: str) -> None:
        """Know nothing of a cluster any more: it has left, or is to be reached in another way."""
        self._shared.pop(cluster, None)
        self._suspects.discard(cluster)
        for user, name, _ in list(self._own):
            if name == cluster:
                self._own.pop(user, name)

    async def look_after(self, find_connection: FindConnection) -> None:
        """Look at clusters in trouble until cancelled."""
        while True:
            await self._has_some.wait()
            await self._clock.sleep(LOOK_SECONDS)
            now = self._clock.monotonic()
            # Requests go on noting while the looks are under way. What they note of a cluster that
            # is being looked at ends with the look if it is due by then, else with the next one. A
            # suspect is taken off before its look: one who is suspected meanwhile is looked at
            # again.
            due = {name for name, each in self._shared.items() if _is_due(each, now)}
            due |= {name for _, name, each in self._own if _is_due(each, now)}
            due |= self._suspects
            self._suspects.clear()
            async with asyncio.TaskGroup() as group:
                for cluster in due:
                    group.create_task(self.look(cluster, find_connection), name=f"look {cluster}")
            # While the looks went on others may have noted trouble: what is there is what counts.
            calm = self._clock.monotonic() - _CALM_SECONDS
            is_calm = not self._suspects
            for name, each in list(self._shared.items()):
                is_calm = is_calm and each.ended is not None
                if each.ended is not None and each.ended < calm:
                    del self._shared[name]
            for user, name, each in list(self._own):
                is_calm = is_calm and each.ended is not None
                if each.ended is not None and each.ended < calm:
                    self._own.pop(user, name)
            if is_calm:
                # In the step in which that was seen: whoever notes trouble next sets it again.
                self._has_some.clear()

    async def look(
        self, cluster: str, find_connection: FindConnection, seconds: float = _PROBE_SECONDS
    ) -> ClusterError | None:
        """Find out whether a cluster answers us: one look, however many have trouble with it."""
        connection = await find_connection(cluster)
        failure = None if connection is None else await _probe(connection, seconds)
        if failure is not None:
            # It is not about one user after all. Their own trouble stays beside the shared one: it
            # has the longer pause, if this is not the first time.
            self._shared[cluster] = self._trouble(self._shared.get(cluster), failure)
            self._has_some.set()
            return failure
        self._end(self._shared.get(cluster))
        now = self._clock.monotonic()
        for _, name, trouble in self._own:
            if name == cluster and _is_due(trouble, now):
                self._end(trouble)
        return None


def _is_due(trouble: _Trouble, now: float) -> bool:
    return trouble.ended is None and trouble.until <= now


def _was_nobody_reached(failure: ClusterError) -> bool:
    return isinstance(failure, ClusterUnreachable) and not failure.was_sent


async def _probe(connection: Connection, seconds: float) -> ClusterError | None:
    """Return why a cluster does not answer, to the end; whatever it says, it can be asked."""
    try:
        async with (
            asyncio.timeout(seconds),
            connection.stream(ApiRequest("GET", _PROBE, seconds=seconds)) as answer,
        ):
            await answer.read(_PROBE_BYTES)
            return None
    except TimeoutError:
        why = f"gave no answer within {seconds:g}s"
        return ClusterTimeout(connection.cluster, why)
    except AnswerOverrun as error:
        return error
    except ClusterMisbehaved:
        return None
    except ClusterError as error:
        return error


class ListKey(NamedTuple):
    """Whose list of which resource by which cluster, in whichever namespace."""

    cluster: str
    resource: str
    user: str


@dataclass(slots=True)
class _Lapse:
    since: float
    last: float


@dataclass(slots=True)
class _Promises:
    """The versions a cluster gave for one resource, and how its watches of it went."""

    given: OrderedDict[str, float] = field(default_factory=OrderedDict[str, float])
    """The versions of its latest lists, and when it gave them."""
    expired_at: float | None = None
    """When it last said that a version is too old, and was believed."""
    was_watched: bool = False
    """Whether a watch has gone well since."""
    refuses_watches: bool = False
    """Whether that was its last word when it was asked for one."""
    refused_at: float | None = None
    """When it last said that it no longer allows a watch, and was believed."""


_Listed: TypeAlias = tuple[str, str]
_MOST_LISTS: Final = 16 * 1024
_MOST_VERSIONS: Final = 16
_FRESH_SECONDS: Final = 60.0
_STUBBORN_SECONDS: Final = 600.0


class Lapses:
    """Remembers how clusters list and watch each resource, for each user.

    It decides when a cluster has failed to list for so long that informers are served without it,
    and whether to believe a cluster that says a version is too old or refuses a watch.
    """

    def __init__(self, clock: Clock, *, grace_seconds: float, lost_seconds: float) -> None:
        self._clock = clock
        self._grace = grace_seconds
        self._lost = lost_seconds
        self._lapses = _PerUser[_Listed, _Lapse](_MOST_LISTS)
        self._promises = _PerUser[_Listed, _Promises](_MOST_LISTS)

    def note(self, key: ListKey, failure: Exception | None) -> None:
        """Take note of how a list went; None is for one that came to its end."""
        listed = _listed(key)
        if failure is None:
            self._lapses.pop(key.user, listed)
            return
        now = self._clock.monotonic()
        lapse = self._lapses.find(key.user, listed)
        # Two blips with an hour between them are not an hour of trouble.
        calm = max(_FRESH_SECONDS, 2 * self._grace)
        since = now if lapse is None or now - lapse.last > calm else lapse.since
        self._lapses.put(key.user, listed, _Lapse(since, now))

    def is_set_aside(self, key: ListKey, failure: Exception) -> bool:
        """Whether a cluster has failed for so long that informers are served without it.

        Who answers, and answers wrongly, is given less time than who cannot be reached: a control
        plane that is replaced is away for minutes, and comes back with all it had.
        """
        lapse = self._lapses.find(key.user, _listed(key))
        if lapse is None:
            return False
        is_lost = isinstance(failure, ClusterTimeout | CredentialsUnusable) or (
            isinstance(failure, ClusterError) and _was_nobody_reached(failure)
        )
        grace = self._lost if is_lost else self._grace
        return self._clock.monotonic() - lapse.since >= grace

    def note_version(self, key: ListKey, version: str) -> None:
        """Remember that a cluster gave this version, just now."""
        given = self._promises_of(key).given
        given[version] = self._clock.monotonic()
        given.move_to_end(version)
        if len(given) > _MOST_VERSIONS:
            given.popitem(last=False)

    def note_open(self, key: ListKey) -> None:
        """Remember that a cluster allows a watch."""
        self._promises_of(key).refuses_watches = False

    def refuses_watches(self, key: ListKey) -> bool:
        """Whether a cluster's last word about a watch was that it does not allow it."""
        promises = self._promises.find(key.user, _listed(key))
        return promises is not None and promises.refuses_watches

    def note_watch(self, key: ListKey) -> None:
        """Remember that a watch of a cluster goes well."""
        promises = self._promises_of(key)
        promises.was_watched, promises.expired_at = True, None

    def believes_expiry(self, key: ListKey, version: str) -> bool:
        """Whether a cluster may have forgotten a version, as it says; if so that is remembered.

        Clients that are told so list everything again. No server forgets what it has just given:
        one that does so to the first watch of a resource, or right behind a list that was made
        because it had forgotten, is not heard, and counts as silent. Not for ever: whoever is
        wronged by this learns it after ten minutes.
        """
        promises, now = self._promises_of(key), self._clock.monotonic()
        given = promises.given.get(version)
        if given is not None:
            if promises.expired_at is None:
                is_absurd = not promises.was_watched and now - given < _FRESH_SECONDS
            else:
                is_absurd = given > promises.expired_at and now - given < _STUBBORN_SECONDS
            if is_absurd:
                return False
        promises.expired_at, promises.was_watched = now, False
        return True

    def note_refusal(self, key: ListKey, version: str, *, since: float | None) -> bool:
        """Take note that a cluster refuses a watch; return whether its clients are to list again.

        `since` is when the client's stream began, if there is a reason to believe that the cluster
        took something back from it. One that lists well and refuses every watch would otherwise
        have its clients list for ever. So it is heard once in ten minutes, by all streams that had
        begun by then, of which there are many when a right is taken away, and by those that go on
        from a version that it gave by then; else it counts as silent.
        """
        promises, now = self._promises_of(key), self._clock.monotonic()
        promises.refuses_watches = True
        if since is None:
            return False
        heard_at = promises.refused_at
        if heard_at is None or now - heard_at >= _STUBBORN_SECONDS:
            promises.refused_at = now
            return True
        # Who listed before and comes to watch just now has what was taken back as well.
        return min(since, promises.given.get(version, since)) < heard_at

    def _promises_of(self, key: ListKey) -> _Promises:
        promises = self._promises.find(key.user, _listed(key)) or _Promises()
        self._promises.put(key.user, _listed(key), promises)
        return promises


def _listed(key: ListKey) -> _Listed:
    return key.cluster, _bounded(key.resource)


# -- which there are, and the way to each ----------------------------------------------------------

_SECRETS: Final = GroupVersionResource("", "v1", "secrets")

UserSettings: TypeAlias = Callable[[Object, Object | None, Object | None], ConnectionSettings]
"""A Cluster, its Secret and its impersonator's Secret to how users reach it; ClusterError if not"""


@dataclass(frozen=True, slots=True)
class Link:
    """A way to one cluster."""

    cluster: str
    connection: Connection

    @property
    def is_hub(self) -> bool:
        """Whether the control plane is at the other end."""
        return self.cluster == HUB

    @property
    def speaker(self) -> str:
        """Who the cluster's warnings are said to be from: the hub's are the fleet's own."""
        return "" if self.is_hub else self.cluster


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """A cluster that joined the fleet, or left it; or whose labels have changed."""

    cluster: str
    has_left: bool


Membership: TypeAlias = asyncio.Queue[MembershipChange]
"""What happened to the fleet, in order; one that nobody reads has as many entries as happened."""


class Directory:
    """The clusters of the fleet, and the connections to them."""

    def __init__(
        self,
        hub: ClusterClient,
        connections: Connections,
        user_settings: UserSettings,
        tunnels: AgentTunnels | None = None,
        *,
        credentials_namespace: str = CLUSTER_NAMESPACE,
    ) -> None:
        self._hub = hub
        self._connections = connections
        self.tunnels = AgentTunnels("", hub.connection.clock) if tunnels is None else tunnels
        """Through which clusters are reached that nobody can dial."""
        self._user_settings = user_settings
        self._namespace = credentials_namespace
        self._clusters = Informer(hub, ResourcePath(CLUSTERS))
        self._secrets = Informer(hub, ResourcePath(_SECRETS, credentials_namespace))
        self._known: dict[str, Object] = {}
        self._identities: dict[str, str] = {}
        self._labels: dict[str, ClusterLabels] = {HUB: labels_of_cluster(HUB, None, HUB_ALIAS)}
        self._row_labels = {HUB: shown_in_rows(HUB, self._labels[HUB])}
        self._settings: dict[str, ConnectionSettings | ClusterError] = {}
        self._users_of: dict[SecretRef, set[str]] = {}
        """The members that a Secret is, or has been, for: a thousand members have two each."""
        self._left: set[str] = set()
        self._has_left = asyncio.Event()
        self._listeners: set[Membership] = set()
        self._callbacks: list[Callable[[], None]] = []
        self.troubles = Troubles(hub.connection.clock)
        """Which of the clusters could not be reached a moment ago."""
        self._clusters.add_handler(self._cluster_changed)
        self._secrets.add_handler(self._secret_changed)

    def tasks(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        """Return the background tasks, by name."""
        return {
            "clusters": self._clusters.run,
            "credentials": self._secrets.run,
            "connections of clusters that left": self._close_left,
            "clusters in trouble": lambda: self.troubles.look_after(self.find_connection),
        }

    @contextmanager
    def listening(self) -> Generator[Membership]:
        """Tell, while the block lasts, of every cluster that joins, leaves or has other labels."""
        listener: Membership = asyncio.Queue()
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call back whenever a cluster joins, leaves or has other labels."""
        self._callbacks.append(callback)

    async def wait_synced(self) -> None:
        """Wait until every cluster is known."""
        await self._secrets.wait_synced()
        await self._clusters.wait_synced()

    def members(self) -> tuple[str, ...]:
        """Return the names of all members, reachable or not."""
        return tuple(sorted(self._known))

    def all_clusters(self) -> tuple[str, ...]:
        """Return the names of all clusters, the control plane first."""
        return (HUB, *self.members())

    def objects(self) -> tuple[Object, ...]:
        """Return the Cluster of each member."""
        return tuple(self._known.values())

    async def has_pull_members(self) -> bool:
        """Whether there are clusters that only their agents can reach."""
        return any(is_pull(cluster) for cluster in self._known.values())

    def labels(self, cluster: str) -> ClusterLabels:
        """Return the virtual labels of a cluster's objects; none when there is no such cluster."""
        return self._labels.get(cluster, {})

    def row_labels(self, cluster: str) -> bytes:
        """Return those labels as they stand beside the rows of Tables."""
        return self._row_labels.get(cluster, b"")

    def problem_with(self, cluster: str) -> ClusterError | None:
        """Return why a member cannot be reached whoever asks, if that is so."""
        settings = self._settings.get(cluster)
        if isinstance(settings, ClusterError):
            return settings
        is_tunnelled = settings is not None and settings.is_tunnelled
        return self.tunnels.problem_with(cluster) if is_tunnelled else None

    def is_away(self, cluster: str, failure: ApiError | ClusterError | None) -> bool:
        """Whether a member failed because it is not there just now, and not by a decision.

        Whoever takes the credentials for users away, forbids an address or a tunnel, or has the
        member refuse us, has decided that nobody sees it.
        """
        settings = self._settings.get(cluster)
        if not isinstance(settings, ConnectionSettings) or isinstance(failure, AddressNotAllowed):
            return False
        if isinstance(failure, CredentialsUnusable):
            return settings.is_tunnelled and not self.tunnels.is_open(cluster)
        if isinstance(failure, ApiError | ClusterMisbehaved):
            return failure.code >= 500  # its own, or that of a proxy before it
        return isinstance(failure, ClusterUnreachable | ClusterTimeout)

    def identity(self, cluster: str) -> str:
        """Return what tells a member from another one of the same name, before it or after it."""
        return self._identities.get(cluster, "")

    def require_tunnelled(self, cluster: str) -> None:
        """Refuse the tunnel of a cluster that is not reached through one."""
        self.require(cluster, is_create=False)
        settings = self._settings.get(cluster)
        if isinstance(settings, ClusterError):
            raise Forbidden(str(settings))
        if settings is None or not settings.is_tunnelled:
            raise BadRequest(f"cluster {cluster!r} is reached by its address, and has no tunnel")

    def require(self, cluster: str, *, is_create: bool) -> None:
        """Refuse a cluster nobody knows; a create by 400, for its 404 would be the namespace's."""
        if cluster == HUB or cluster in self._known:
            return
        message = f"there is no cluster {cluster!r} in the fleet"
        if is_create:
            raise BadRequest(message)
        details = Details(name=cluster, group=CLUSTERS.group, kind=CLUSTERS.resource)
        raise NotFound(message, details)

    async def link(self, cluster: str) -> Link:
        """Return the way to a cluster; ClusterError when there is none."""
        if cluster == HUB:
            return Link(HUB, self._hub.connection)
        settings = self._settings.get(cluster)
        if settings is None:
            raise ClusterError(cluster, "is not a member of the fleet")
        if isinstance(settings, ClusterError):
            raise settings
        problem = self.problem_with(cluster)
        if problem is not None:
            raise problem
        return Link(cluster, await self._connections.get(settings))

    async def find_connection(self, cluster: str) -> Connection | None:
        """Return the connection to a member; None when it has left or cannot be reached."""
        settings = self._settings.get(cluster)
        if not isinstance(settings, ConnectionSettings):
            return None
        # Whether a tunnel is open is known without a look at the cluster.
        is_cut_off = settings.is_tunnelled and not self.tunnels.is_open(cluster)
        return None if is_cut_off else await self._connections.get(settings)

    def _cluster_changed(self, update: Update) -> None:
        # Called by the informer, in the order of its events, with no wait in between: whoever
        # listens hears of a member after `members` knows it, and of its end after it is forgotten.
        # So a watch that listens first and then counts may hear of a member twice, and misses none.
        cluster = update.decode_after()
        if cluster is None:
            former = self._known.pop(update.key, {})
            for ref in (secret_ref_of(former), impersonator_ref_of(former)):
                if ref is not None:
                    self._users_of.get(ref, set()).discard(update.key)
            self._identities.pop(update.key, None)
            self._labels.pop(update.key, None)
            self._row_labels.pop(update.key, None)
            self._settings.pop(update.key, None)
            self.tunnels.forget(update.key)
            self._left.add(update.key)
            self._has_left.set()
            self._notify(MembershipChange(update.key, has_left=True))
            return
        labels = labels_of_cluster(update.key, cluster)
        is_changed = labels != self._labels.get(update.key)  # of a new one too: it had none
        self._known[update.key] = cluster
        self._identities[update.key] = f"{uid_of(cluster)} {id_of(cluster)}"
        self._labels[update.key] = labels
        if is_changed:
            self._row_labels[update.key] = shown_in_rows(update.key, labels)
        self._read_settings(update.key, cluster)
        ready = find_condition(conditions_of(cluster), "Ready")
        if ready is not None and ready.get("status") != TRUE:
            # The hub may be wrong, or ask another way: it is a reason to look, before anybody has
            # to wait in vain.
            self.troubles.suspect(update.key)
        if is_changed:
            self._notify(MembershipChange(update.key, has_left=False))

    def _notify(self, change: MembershipChange) -> None:
        for listener in self._listeners:
            listener.put_nowait(change)
        for callback in self._callbacks:
            callback()

    def _secret_changed(self, update: Update) -> None:
        changed = SecretRef(*update.key.split("/", 1))
        for name in sorted(self._users_of.get(changed, ())):
            cluster = self._known.get(name)
            refs = () if cluster is None else (secret_ref_of(cluster), impersonator_ref_of(cluster))
            if cluster is not None and changed in refs:
                self._read_settings(name, cluster)
            else:
                self._users_of[changed].discard(name)
        if not self._users_of.get(changed):
            self._users_of.pop(changed, None)

    def _read_settings(self, name: str, cluster: Object) -> None:
        own, impersonator = secret_ref_of(cluster), impersonator_ref_of(cluster)
        for ref in (own, impersonator):
            if ref is not None:
                self._users_of.setdefault(ref, set()).add(name)
        try:
            found = self._user_settings(cluster, self._secret(own), self._secret(impersonator))
        except ClusterError as error:
            self._settings[name] = error
            self.tunnels.forget(name)
            return
        if not found.is_tunnelled:
            self.tunnels.forget(name)
        if found != self._settings.get(name):
            self._settings[name] = found
            self.troubles.let_go(name)

    def _secret(self, ref: SecretRef | None) -> Object | None:
        if ref is None or ref.namespace != self._namespace:
            return None
        return self._secrets.cache.find(f"{ref.namespace}/{ref.name}")

    async def _close_left(self) -> None:
        # Closing waits, and handlers of an informer may not. A member that left and joined again
        # meanwhile is known again, and its connection stays.
        while True:
            await self._has_left.wait()
            self._has_left.clear()
            for name in self._left - self._known.keys():
                self.troubles.let_go(name)
                await self._connections.forget(name)
            self._left.clear()
