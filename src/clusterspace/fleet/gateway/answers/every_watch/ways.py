"""How one cluster is listed and watched on behalf of a client that watches every cluster."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import quote

from clusterspace.apiserver.http.request_info import Query
from clusterspace.client.answer_memory import AnswerMemory
from clusterspace.client.requests import ApiRequest
from clusterspace.errors import ApiError, ClusterError, ClusterMisbehaved, Forbidden
from clusterspace.fleet.gateway import fanout
from clusterspace.fleet.gateway.answers.asking import Asking, FleetLimits
from clusterspace.fleet.gateway.answers.every_watch.wishes import without_wish
from clusterspace.fleet.gateway.answers.pages import Slice
from clusterspace.fleet.gateway.directory import Link
from clusterspace.fleet.gateway.flow import Reply
from clusterspace.fleet.gateway.merge.lists import ClusterList, read_cluster_list
from clusterspace.fleet.gateway.renaming import inbound
from clusterspace.fleet.gateway.routes import naming_in, path_in_cluster
from clusterspace.fleet.gateway.troubles import LOOK_SECONDS

MOST_AT_ONCE: Final = 250
"""Objects of a page: a megabyte of pods, which is all that a stream holds of a list at a time."""
_QUIET_SECONDS: Final = 150.0
"""Servers send a bookmark about once a minute; a stream that skips two is asked for anew."""
_SHORTEST_WATCH: Final = 300
_NOT_OLDER: Final = "NotOlderThan"


@dataclass(frozen=True, slots=True)
class Received:
    """One cluster's reply, and the list it holds, if it holds one."""

    reply: Reply
    part: ClusterList | None = None


class ClusterWay:
    """The requests to one cluster, in its own words and in the name of the client."""

    def __init__(self, asking: Asking, cluster: str) -> None:
        self._asking = asking
        self.cluster = cluster
        self._naming = naming_in(asking.route, cluster)
        self._key = asking.list_key(cluster)
        query = asking.route.info.query
        shared = inbound.rewrite_query(without_wish(query), self._naming)
        # Rows without their objects could not be told apart.
        includes = query.get("includeObject") == "Object"
        beside = (("includeObject", "Object"),) if includes else ()
        self._query = Query((*shared.pairs, *beside))

    async def link(self) -> Link:
        """Return the way to the cluster once it is out of trouble; ClusterError if there is none.

        One look at a cluster in trouble serves all: a thousand streams do not knock one by one.
        """
        directory = self._asking.fleet.directory
        link = await directory.link(self.cluster)
        user = self._asking.context.user.name
        while directory.troubles.find(self.cluster, user) is not None:
            await link.connection.clock.sleep(LOOK_SECONDS)
            link = await directory.link(self.cluster)
        return link

    def note(self, failure: Exception | None) -> None:
        """Remember how asking went, for other requests too."""
        if failure is None or isinstance(failure, ApiError | ClusterError):
            self._asking.note(Reply(self.cluster, failure=failure))

    def note_list(self, failure: ClusterError) -> None:
        """Remember that a list of many pages failed."""
        self._asking.note_list(Reply(self.cluster, failure=failure))

    async def first_page(self, link: Link, version: str, *, is_all: bool) -> Received:
        """Ask how the cluster begins: a list not older than a version, or just its version."""
        match = _NOT_OLDER if version not in ("", "0") else ""
        return await self._receive(link, Slice(MOST_AT_ONCE if is_all else 1, "", version, match))

    async def page(self, link: Link, token: str, *, is_whole: bool) -> ClusterList:
        """Ask for one page of a list of the present, or for all of it at once."""
        received = await self._receive(link, Slice(0 if is_whole else MOST_AT_ONCE, token))
        if received.part is None:
            failure = received.reply.failure
            raise failure or ClusterMisbehaved(self.cluster, "answered with no list", code=200)
        return received.part

    async def _receive(self, link: Link, wanted: Slice) -> Received:
        query = wanted.added_to(self._query)
        seconds = self._asking.fleet.limits.list_seconds
        # A stream lives for an hour and a page of it for a moment: it counts while it is read.
        with self._asking.fleet.memory.holding() as hold:
            reply = await fanout.ask_one(
                link, lambda link: replace(self._ask(link, query, seconds), hold=hold)
            )
        self._asking.note(reply)
        part: ClusterList | None = None
        if reply.failure is None:
            try:
                part = read_cluster_list(reply.body, self._naming, self._asking.api_version)
                if not part.metadata.resource_version:
                    raise ClusterMisbehaved(
                        self.cluster, "its list has no resourceVersion", code=200
                    )
            except ClusterMisbehaved as nonsense:
                part, reply = None, Reply(self.cluster, reply.status, failure=nonsense)
        is_whole = part is None or not part.metadata.continue_token
        self._asking.note_list(reply, is_whole=is_whole)
        if part is not None:
            version = part.metadata.resource_version
            self._asking.fleet.lapses.note_version(self._key, version)
        return Received(reply, part)

    @property
    def limits(self) -> FleetLimits:
        """How long the cluster may take."""
        return self._asking.fleet.limits

    @property
    def memory(self) -> AnswerMemory:
        """What an event that has not come to its end is counted in."""
        return self._asking.fleet.memory

    def note_watch(self) -> None:
        """Remember that a watch goes well: what the cluster says of versions is worth something."""
        self._asking.fleet.lapses.note_watch(self._key)

    def note_open(self) -> None:
        """Remember that the cluster allows the watch."""
        self.note(None)
        self._asking.fleet.lapses.note_open(self._key)

    async def believes_refusal(self, link: Link, began: float, *, was_open: bool) -> bool:
        """Whether the cluster no longer lets the client watch, so that the client must list again.

        It is believed by a stream that it had let watch before. A stream that has just begun, maybe
        at a gateway that has just started, asks for a list too: if that is refused as well, the
        client has objects that it would not be told of any more.
        """
        if not was_open:
            received = await self._receive(link, Slice(1))
            was_open = isinstance(received.reply.failure, Forbidden)
        lapses = self._asking.fleet.lapses
        return lapses.note_refusal(self._key, since=began if was_open else None)

    def believes_expiry(self, version: str) -> bool:
        """Whether the cluster may have forgotten a version, as it says."""
        return self._asking.fleet.lapses.believes_expiry(self._key, version)

    def is_needed(self, failure: ApiError | ClusterError, held: Collection[str]) -> bool:
        """Whether the client would lose something if its stream went on without the cluster."""
        return self.cluster in held and not self._asking.is_given_up(self.cluster, failure)

    def watch(self, link: Link, version: str) -> ApiRequest:
        """Return the request for events from a version on."""
        # Not all at the same moment, five minutes after the cluster came back.
        seconds = _SHORTEST_WATCH + link.connection.random.randrange(_SHORTEST_WATCH)
        asked = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(seconds),
        }
        query = Query((*self._query.pairs, *asked.items()))
        ask = self._ask(link, query, self._asking.fleet.limits.list_seconds)
        headers = (*ask.headers, ("accept-encoding", "identity"))
        return replace(ask, headers=headers, quiet_seconds=_QUIET_SECONDS)

    def _ask(self, link: Link, query: Query, seconds: float) -> ApiRequest:
        ask = self._asking.ask(link, query, seconds=seconds)
        info = self._asking.route.info
        if not info.is_watch_path:
            return ask
        # The old way to watch is a path of its own, under which nothing can be listed.
        plain = path_in_cluster(replace(info, is_watch_path=False))
        return replace(ask, path=quote(plain, safe="/:"))
