"""One request on its way to the clusters of a fleet, and what it works with there."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from urllib.parse import quote, urlencode

from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.middleware.authorize import refusal
from clusterspace.apiserver.http.negotiation import JSON, Representation, negotiate
from clusterspace.apiserver.http.relays import Passage, headers_to_pass
from clusterspace.apiserver.http.request_info import Query, reach_verb
from clusterspace.apiserver.http.users import UNAUTHENTICATED, MemberIdentities, act_at_hub
from clusterspace.client.answer_memory import AnswerMemory, Hold
from clusterspace.client.requests import ApiRequest, Headers
from clusterspace.errors import (
    ApiError,
    ClusterError,
    Expired,
    Forbidden,
    MethodNotAllowed,
    NotFound,
    NotServed,
)
from clusterspace.fleet.gateway.directory import Directory, Link
from clusterspace.fleet.gateway.identity import Gatekeeper, HubReviews, proxy_request
from clusterspace.fleet.gateway.merge import versions
from clusterspace.fleet.gateway.merge.failures import Reply, Skipped, Verdict
from clusterspace.fleet.gateway.names import HUB, Subject
from clusterspace.fleet.gateway.routes import FleetRequestInfo, Route
from clusterspace.fleet.gateway.sessions import Sessions
from clusterspace.fleet.gateway.streams import ClientStreams
from clusterspace.fleet.gateway.troubles import Lapses, ListKey


@dataclass(frozen=True, slots=True)
class FleetLimits:
    """How long clusters may take, and how many are asked at once."""

    list_seconds: float = 8.0
    """For each cluster's part of a list: well within the 32 s that clients wait for an answer."""
    request_seconds: float = 55.0
    """For one cluster that a request names: within the 60 s of a request, to say who was slow."""
    document_seconds: float = 4.0
    """For what a cluster serves; what it said last is good enough."""
    clusters_at_once: int = 64
    answer_bytes: int = 128 * 1024 * 1024
    """For each cluster's answer: some 15,000 pods with all their managed fields, unpaged. Taking
    such an answer apart holds the loop for a tenth of a second."""
    answers_bytes: int = 512 * 1024 * 1024
    """For all answers that are read or worked on at the same time."""
    grace_seconds: float = 30.0
    """How long a cluster may answer wrongly before informers are served without it."""
    lost_seconds: float = 300.0
    """The same for a cluster that cannot be reached."""
    walk_seconds: float = 120.0
    """For all pages of a cluster's list in a watch: time for a hundred thousand objects over a slow
    line, and an end to a list that has none."""
    slow_seconds: float = 10.0
    """A client that watches and reads nothing for this long is cut off: it would never catch up."""
    watched_objects: int = 500_000
    """Of one cluster in one watch, which remembers what it sent: more than any cluster has."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """One fleet as the gateway sees it."""

    directory: Directory
    reviews: HubReviews
    gatekeeper: Gatekeeper
    sessions: Sessions
    memory: AnswerMemory
    """What the answers of all clusters are counted in."""
    lapses: Lapses
    """Since when clusters fail to list, and what their word about versions is worth."""
    federation: bool = True
    """Whether the control plane is one of the clusters, and the one a bare name means."""
    limits: FleetLimits = field(default_factory=FleetLimits)
    streams: ClientStreams = field(default_factory=ClientStreams)
    identities: MemberIdentities = field(default_factory=MemberIdentities)
    """Who users of the hub are at members."""

    def all_clusters(self) -> tuple[str, ...]:
        """Return the clusters that a list is of, in the order of answers."""
        members = self.directory.members()
        return (HUB, *members) if self.federation else members


@dataclass(frozen=True)
class FleetContext:
    """One request on its way to clusters: who asks, for what, and the way to each cluster."""

    fleet: Fleet
    http: RequestContext
    route: Route
    hold: Hold | None = None
    """What the answers of clusters are counted in until the client has the answer."""

    @property
    def info(self) -> FleetRequestInfo:
        """What is asked for, in the words of a single cluster."""
        return self.route.info

    @cached_property
    def representation(self) -> Representation:
        """What the answer looks like; clusters themselves are asked for JSON."""
        return negotiate(self.http.header("accept"))

    @cached_property
    def subject(self) -> Subject:
        """What kind of object it is about."""
        return Subject.of(self.info)

    @property
    def api_version(self) -> str:
        """The version of what is asked for, as objects say it."""
        return f"{self.info.group}/{self.info.version}" if self.info.group else self.info.version

    # -- which clusters, and the way to each --------------------------------------------------

    async def link(self, cluster: str) -> Link:
        """Return the way to the one cluster a request is for, if the caller may go it."""
        verb = reach_verb(self.info.method, self.info, is_upgrade=self.http.request.is_upgrade)
        await self.require(cluster, verb)
        return await self.fleet.directory.link(cluster)

    async def require(self, cluster: str, verb: str) -> None:
        """Refuse a cluster the caller may not reach with this right; then one that is not there.

        In this order, so that only who may reach a cluster learns whether there is one.
        """
        user = self.http.user
        if cluster != HUB:
            reachable = await self.fleet.gatekeeper.admit(user, verb, (cluster,))
            reason = reachable.find_refusal(cluster)
            if reason is not None:
                raise refusal(user, proxy_request(verb, cluster), reason)
        elif self.info.is_write and UNAUTHENTICATED in user.groups:
            # The hub decides for itself, but only once it has the whole body: strangers are refused
            # before theirs is read.
            decision = await self.fleet.reviews.decide(user, self.info)
            if not decision.allowed:
                raise refusal(user, self.info, decision.reason)
        is_create = self.info.verb == "create" and not self.info.name
        self.fleet.directory.require(cluster, is_create=is_create)

    async def visible_clusters(self) -> tuple[str, ...]:
        """Return the clusters that a version may speak of: those the caller may reach.

        Anybody can make up a version of clusters with any names. Read with all the names there
        are, it would be Expired for a name that is wrong and good for one that is right.
        """
        members = self.fleet.directory.members()
        reachable = await self.fleet.gatekeeper.admit(self.http.user, "get", members)
        return (HUB, *(each for each in members if reachable.find_refusal(each) is None))

    async def positions(self, version: str) -> dict[str, str]:
        """Return how far the client has come in each cluster, by a version that it sends back."""
        all_clusters = self.fleet.directory.all_clusters()
        is_vector = versions.is_vector(version)
        return versions.decode(
            version, await self.visible_clusters() if is_vector else all_clusters
        )

    async def version_for(self, cluster: str, *texts: bytes) -> Callable[[str], str]:
        """Return how a resourceVersion is put into the words of one cluster.

        `texts` are all that may hold one: where none does, nobody is asked who may reach what.
        """
        has_vector = any(versions.MARK.encode() in each for each in texts)
        known = await self.visible_clusters() if has_vector else ()

        def translate(version: str) -> str:
            own = versions.version_in(version, cluster, known)
            if own is None:
                raise Expired(f"the resourceVersion does not speak of cluster {cluster}")
            return own

        return translate

    # -- the request as a cluster gets it -----------------------------------------------------

    @property
    def path(self) -> str:
        """The path in the words of a single cluster, encoded."""
        return quote(self.info.path, safe="/:")

    def identity_for(self, link: Link) -> Headers:
        """Return the headers that make a request the caller's own at a cluster."""
        if link.is_hub:
            return act_at_hub(self.http.user)
        return self.fleet.identities.headers(self.http.user, link.cluster)

    def request_to(
        self, link: Link, query: Query, *, body: bytes = b"", seconds: float
    ) -> ApiRequest:
        """Return the request as a cluster gets it, when its answer will be read here."""
        passed = headers_to_pass(self.http.request.headers)
        headers = tuple(pair for pair in passed if pair[0] not in ("accept", "accept-encoding"))
        form = self.representation.transform
        # A server that knows no such form answers with the object itself.
        accept = f"{JSON};as={form};v=v1;g=meta.k8s.io,{JSON}" if form else JSON
        # What is to be merged or renamed must be seen: a HEAD is asked as the GET it stands for.
        method = "GET" if self.info.method == "HEAD" else self.info.method
        return ApiRequest(
            method,
            self.path,
            query=query.pairs,
            headers=(*headers, ("accept", accept), *self.identity_for(link)),
            body=body or None,
            seconds=seconds,
            most_bytes=self.fleet.limits.answer_bytes,
            hold=self.hold,
        )

    def passage(self, link: Link, query: Query) -> Passage:
        """Return where the request goes when its answer passes unread."""
        if self.route.is_relayed:
            raw_query = self.http.request.query
            target = self.info.raw_path + (f"?{raw_query}" if raw_query else "")
        else:
            target = self.path + (f"?{urlencode(query.pairs)}" if query.pairs else "")
        return Passage(link.connection, target, self.identity_for(link), link.is_hub, self.hold)

    # -- what is remembered of how clusters answered ------------------------------------------

    def list_key(self, cluster: str) -> ListKey:
        """Return the key under which it is remembered how a cluster lists this for the caller."""
        resource = f"{self.info.resource}.{self.info.group}"
        return ListKey(cluster, resource, self.http.user.name)

    def note(self, reply: Reply) -> Reply:
        """Remember how asking a member went, as one of many."""
        if reply.cluster != HUB:
            user = self.http.user.name
            self.fleet.directory.troubles.note(reply.cluster, reply.failure, user)
        return reply

    def note_list(self, reply: Reply, *, is_whole: bool = True) -> None:
        """Remember how a list went; one that is to go on has not gone well yet."""
        failure = reply.failure
        if isinstance(failure, NotFound | NotServed | MethodNotAllowed | Forbidden):
            failure = None  # an answer in good form: it has no such thing, or not for the caller
        if reply.cluster != HUB and (failure is not None or is_whole):
            self.fleet.lapses.note(self.list_key(reply.cluster), failure)

    def note_skipped(self, skipped: Iterable[Skipped]) -> None:
        """Remember that clusters fail still: they were not asked because they would."""
        for each in skipped:
            if isinstance(each.error, ClusterError):
                self.fleet.lapses.note(self.list_key(each.cluster), each.error)

    def is_given_up(self, cluster: str, failure: ApiError | ClusterError) -> bool:
        """Whether a cluster that failed has failed for so long that nobody waits for it."""
        return self.fleet.lapses.is_set_aside(self.list_key(cluster), failure)

    def refuse_or_warn(self, verdict: Verdict) -> None:
        """Raise what is to be answered instead, and warn of what is missing either way."""
        if verdict.warning:
            self.http.warn(verdict.warning)
        if verdict.error is not None:
            raise verdict.error
