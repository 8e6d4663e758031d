"""One request on its way from the fleet to many clusters and back.

    Fleet ──> FleetContext ──find_targets──> Targets ──ask each, in its own time──> Replies
              (one request)                                                            │
                                        a Response <──send_merged── merge <── a Verdict by judge

Every answer that many clusters have a part in comes this way: lists, watches, searches, reviews.
They differ in what they ask and how they judge.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Final, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.http.context import RequestContext, headers_for, warning_headers
from clusterspace.apiserver.http.guards import refusal
from clusterspace.apiserver.http.messages import Response
from clusterspace.apiserver.http.relays import Passage
from clusterspace.apiserver.http.request_info import (
    JSON,
    YAML,
    Query,
    Representation,
    negotiate,
    reach_verb,
)
from clusterspace.apiserver.http.responses import (
    as_yaml,
    clean_failure,
    headers_to_pass,
    headers_to_return,
    is_pretty,
    warnings_in,
)
from clusterspace.apiserver.http.users import UNAUTHENTICATED, MemberIdentities, act_at_hub
from clusterspace.client.connection import Connection
from clusterspace.client.requests import Answer, AnswerMemory, ApiRequest, Headers, Hold, failure_of
from clusterspace.errors import (
    AnswerOverrun,
    ApiError,
    ClusterError,
    ClusterMisbehaved,
    ClusterTimeout,
    Expired,
    Forbidden,
    MethodNotAllowed,
    NotFound,
    NotServed,
)
from clusterspace.fleet.gateway import virtual_labels
from clusterspace.fleet.gateway.callers import (
    Gatekeeper,
    HubReviews,
    Sessions,
    Writes,
    WrittenObject,
    proxy_request,
)
from clusterspace.fleet.gateway.clusters import Directory, Lapses, Link, ListKey
from clusterspace.fleet.gateway.last_lists import (
    REFUSALS,
    Caller,
    LastLists,
    Question,
    digest_of,
)
from clusterspace.fleet.gateway.merge import versions
from clusterspace.fleet.gateway.merge.failures import Reply, Skipped, Verdict
from clusterspace.fleet.gateway.merge.field_filters import FieldFilter, read_filter
from clusterspace.fleet.gateway.merge.lists import (
    ClusterList,
    ListMetadata,
    read_cluster_list,
)
from clusterspace.fleet.gateway.merge.metadata_lists import METADATA_LIST
from clusterspace.fleet.gateway.merge.sorting import Order, read_order
from clusterspace.fleet.gateway.object_cache import ObjectCache
from clusterspace.fleet.gateway.registries import Registries
from clusterspace.fleet.gateway.routes import (
    HUB,
    FleetRequestInfo,
    Naming,
    Reach,
    Route,
    Subject,
    path_in_cluster,
    rewrite_query,
)
from clusterspace.fleet.gateway.shared_watches import SharedWatches
from clusterspace.fleet.gateway.streams import ClientStreams
from clusterspace.fleet.gateway.virtual_labels import ClusterSelector
from clusterspace.kube import plain_text, statuses


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
    cached_bytes: int = 256 * 1024 * 1024
    """For objects of members that are kept for the next list of them; 0 keeps none."""
    last_state_seconds: float = 3600.0
    """How long callers are shown what a member last answered them, while it is away; 0 is never."""
    any_state_seconds: float = 10.0
    """How old a member's part of a list may be for who says that any state will do; 0 has members
    asked for it every time."""
    watched_objects: int = 500_000
    """Of one cluster in one watch, which remembers what it sent, and on all pages of one list: more
    than any cluster has."""


async def nobody_else() -> None:
    """Wait for no other workers: there are none."""


@dataclass(frozen=True, slots=True)
class Fleet:
    """One fleet as the gateway sees it."""

    directory: Directory
    reviews: HubReviews
    gatekeeper: Gatekeeper
    sessions: Sessions
    writes: Writes
    memory: AnswerMemory
    """What the answers of all clusters are counted in."""
    lapses: Lapses
    """Since when clusters fail to list, and what their word about versions is worth."""
    watches: SharedWatches
    """The watches of clusters, each for all clients that would have the same one."""
    federation: bool = True
    """Whether the control plane is one of the clusters, and the one a bare name means."""
    limits: FleetLimits = field(default_factory=FleetLimits)
    bulk_delete_members: bool = False
    """Whether a command that deletes what it lists, and names no cluster, is shown members' too."""
    streams: ClientStreams = field(default_factory=ClientStreams)
    identities: MemberIdentities = field(default_factory=MemberIdentities)
    """Who users of the hub are at members."""
    registries: Registries | None = None
    """What Karmada's search shows; None where nobody asks for it."""
    cache: ObjectCache = field(default_factory=lambda: ObjectCache(SystemClock(), 0))
    """What objects of members said when they were last read."""
    last_lists: LastLists = field(default_factory=lambda: LastLists(SystemClock(), 0, 0.0))
    """What callers were last shown of members."""
    all_heard: Callable[[], Awaitable[None]] = nobody_else
    """Waits until all workers know what one of them has noted, where there are several."""

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

    @cached_property
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

    @cached_property
    def field_filter(self) -> FieldFilter | None:
        """What the field selector says that no cluster judges, in lists and watches of all."""
        text = self.info.query.get("fieldSelector")
        namespaces = self.route.namespaces
        is_judged = bool(text or self.order or namespaces)
        if self.route.reach is not Reach.ALL or self.info.is_write or not is_judged:
            return None
        return read_filter(
            text,
            self.subject,
            include=self.info.query.get("includeObject") or "Metadata",
            is_metadata_only=self.representation.is_metadata_only,
            order=self.order,
            namespaces=namespaces,
        )

    @cached_property
    def order(self) -> Order | None:
        """The order that a list of all clusters is to have, if it says one."""
        text = self.info.query.get("sortBy")
        is_list = self.info.verb == "list" and self.route.reach is Reach.ALL
        return read_order(text) if text and is_list else None

    # -- which clusters, and the way to each --------------------------------------------------

    @cached_property
    def cluster_selector(self) -> ClusterSelector:
        """What the label selector says of clusters; nothing where it selects no objects."""
        selects = self.info.is_watch or self.info.verb in ("list", "deletecollection")
        if not selects or self.route.is_relayed:
            return ClusterSelector()
        return virtual_labels.read_selector(self.info.query.get("labelSelector"))

    @cached_property
    def _selected(self) -> dict[str, bool]:
        return {}

    def selects(self, cluster: str, *, anew: bool = False) -> bool:
        """Whether objects of a cluster are selected, as far as its virtual labels go.

        Labels of clusters change. One request goes by what was found the first time, so that all
        its parts agree, unless the question is asked `anew`.
        """
        labels = self.fleet.directory.labels(cluster)
        if anew or cluster not in self._selected:
            self._selected[cluster] = self.cluster_selector.selects(labels)
        return self._selected[cluster]

    def naming_in(self, cluster: str) -> Naming:
        """Return how one of the clusters that the request reaches calls things in the answer."""
        return self.labelled(self.route.naming_in(cluster))

    def labelled(self, naming: Naming) -> Naming:
        """Return a naming that shows virtual labels beside the rows of a Table.

        Nowhere else: what is read as an object is written back, and would store them.
        """
        if not self.representation.is_table:
            return naming
        return replace(naming, row_labels=self.fleet.directory.row_labels(naming.cluster))

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
        if not version:
            return {}
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
                raise Expired(f"the resourceVersion has no version for cluster {cluster}")
            return own

        return translate

    # -- the request as a cluster gets it -----------------------------------------------------

    @property
    def path(self) -> str:
        """The path in the words of a single cluster, encoded."""
        return quote(self.info.path, safe="/:")

    def identity_for(self, link: Link) -> Headers:
        """Return the headers that make a request the caller's own at a cluster."""
        if link.cluster == HUB:
            return act_at_hub(self.http.user)
        return self.fleet.identities.headers(self.http.user, link.cluster)

    def request_to(
        self, link: Link, query: Query, *, body: bytes = b"", seconds: float
    ) -> ApiRequest:
        """Return the request as a cluster gets it, when its answer will be read here."""
        passed = headers_to_pass(self.http.request.headers.pairs)
        headers = tuple(pair for pair in passed if pair[0] not in ("accept", "accept-encoding"))
        form = self.representation.transform
        if self.field_filter is not None and self.representation.is_metadata_only:
            form = ""  # what is judged here must be seen
        begins_watch = (
            self.info.is_watch and self.route.reach is Reach.ALL and not query.get("watch")
        )
        if form and self.representation.is_metadata_only:
            # A kube-apiserver insists on the word for what it is asked for.
            form = METADATA_LIST if self.info.verb == "list" or begins_watch else form
        # A server that knows no such form answers with the object itself.
        group, _, version = self.representation.meta_version.partition("/")
        accept = f"{JSON};as={form};v={version};g={group},{JSON}" if form else JSON
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

    def query_for(
        self, naming: Naming, query: Query, *, version_for: Callable[[str], str] = str
    ) -> Query:
        """Return parameters in the words of one cluster: it hears nothing of virtual labels."""
        if self.cluster_selector.requirements:
            selector = self.cluster_selector
            is_selected = self.selects(naming.cluster)
            own = selector.rest if is_selected else selector.rest_of_nothing
            query = Query(
                tuple((key, own if key == "labelSelector" else value) for key, value in query.pairs)
            )
        if self.field_filter is not None:
            ours = {"fieldSelector": self.field_filter.sent, "includeObject": ""}
            if self.representation.is_table:
                ours["includeObject"] = "Object"  # what is judged here must be seen
            kept = (each for each in query.pairs if each[0] not in ours)
            query = Query((*kept, *(each for each in ours.items() if each[1])))
        return rewrite_query(query, naming, version_for=version_for)

    def list_request(self, link: Link, query: Query) -> ApiRequest:
        """Return the request for a list as a cluster gets it: selectors are in its own words."""
        own = self.query_for(self.route.naming_in(link.cluster), query)
        return self.request_to(link, own, seconds=self.fleet.limits.list_seconds)

    def passage(self, link: Link, query: Query) -> Passage:
        """Return where the request goes when its answer passes unread."""
        if self.route.is_relayed:
            raw_query = self.http.request.query
            target = self.info.raw_path + (f"?{raw_query}" if raw_query else "")
        else:
            target = self.path + (f"?{urlencode(query.pairs)}" if query.pairs else "")
        return Passage(link.connection, target, self.identity_for(link), link.is_hub, self.hold)

    # -- what is remembered of callers, and of how clusters answered --------------------------

    def written_object(self, cluster: str, namespace: str, name: str) -> WrittenObject:
        """Return an object of this kind as the caller's own writes are remembered by."""
        resource = f"{self.info.resource}.{self.info.group}"
        return WrittenObject(self.http.user.name, cluster, resource, namespace, name)

    def list_key(self, cluster: str) -> ListKey:
        """Return the key under which it is remembered how a cluster lists this for the caller."""
        resource = f"{self.info.resource}.{self.info.group}"
        return ListKey(cluster, resource, self.http.user.name)

    def caller_at(self, cluster: str) -> Caller:
        """Return who asks a member for this kind; ApiError for who is nobody there."""
        impersonated = self.fleet.identities.headers(self.http.user, cluster)
        identity = digest_of(chain.from_iterable(impersonated))
        return Caller(cluster, identity, self.info.group, self.info.resource)

    def question_to(
        self, cluster: str, query: Query, *, of_all_namespaces: bool = False
    ) -> Question | None:
        """Return what stands for a list of a member, as this caller asks for it; None if none does.

        It is another one for another identity, at another cluster of the same name, in another form
        or other words. `query` are the parameters that are the same for all pages. One for
        `of_all_namespaces` is the same list with no namespace named.
        """
        path = self.path
        if of_all_namespaces:
            whole = path_in_cluster(replace(self.info, namespace="", is_in_namespace=False))
            path = quote("/" + whole.removeprefix("/"), safe="/:")
        try:
            caller, form = self.caller_at(cluster), self.representation
        except ApiError:
            return None  # who is nobody at members, or asks for what there is not
        member, naming = self.fleet.directory.identity(cluster), self.route.naming_in(cluster)
        words = (member, path, form.transform, form.meta_version, str(naming))
        return Question(caller, digest_of((*words, *chain.from_iterable(query.pairs))))

    def note(self, reply: Reply) -> Reply:
        """Remember how asking a member went, as one of many."""
        if reply.cluster != HUB:
            user = self.http.user.name
            self.fleet.directory.troubles.note(reply.cluster, reply.failure, user)
        return reply

    def note_list(self, reply: Reply) -> None:
        """Remember how asking a cluster for a list went, as one of many; and which version it gave.

        One that is to go on has not gone well yet.
        """
        key, failure = self.list_key(reply.cluster), reply.failure
        metadata = ListMetadata() if reply.listed is None else reply.listed.metadata
        lapses = self.fleet.lapses
        if reply.cluster != HUB:
            self.fleet.directory.troubles.note(reply.cluster, failure, key.user)
            if isinstance(failure, NotFound | NotServed | MethodNotAllowed | Forbidden):
                failure = None  # in good form: it has no such thing, or not for the caller
            if failure is not None or not metadata.continue_token:
                lapses.note(key, failure)
        if metadata.resource_version:
            lapses.note_version(key, metadata.resource_version)

    def note_refusal(self, reply: Reply) -> None:
        """Forget what the caller was shown of this kind, if a member refuses them a list of it."""
        if reply.cluster != HUB and isinstance(reply.failure, REFUSALS):
            with suppress(ApiError):
                self.fleet.last_lists.note_refusal(self.caller_at(reply.cluster))

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


# -- whom to ask, all at once, and what to make of it ----------------------------------------------


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cluster that a request would reach, and what stands in the way."""

    cluster: str
    refusal: Forbidden | None = None
    """The hub's, when the caller may not reach the cluster."""
    problem: ClusterError | None = None
    """Why nobody could reach it just now."""


@dataclass(frozen=True, slots=True)
class Targets:
    """The clusters to ask, and those left out."""

    chosen: tuple[str, ...]
    skipped: tuple[Skipped, ...] = ()
    witnesses: tuple[str, ...] = ()
    """Where no cluster is selected: whom to ask, one will do, what a list of nothing looks like.
    Only a cluster knows of what kind it is, and whether the caller may see it."""


async def find_targets(context: FleetContext, clusters: Iterable[str]) -> Targets:
    """Choose whom to ask of these, and say who is left out and why.

    Clusters that the label selector does not select are not asked, and not spoken of either.
    """
    named, selector = tuple(clusters), context.cluster_selector
    if not selector.requirements:
        return await _find_reachable(context, named)
    # Names are judged before anybody is asked about rights: one of a thousand costs one question.
    # Labels are judged afterwards, and a cluster that is out of reach counts as not selected: how
    # it answers must tell nobody how a cluster is labelled that they may not reach.
    of_name = selector.named
    candidates = named if of_name is None else tuple(filter(context.selects, named))
    found = await _find_reachable(context, candidates)
    skipped = tuple(
        each
        for each in found.skipped
        if context.selects(each.cluster) and not isinstance(each.error, Forbidden)
    )
    selected = Targets(tuple(filter(context.selects, found.chosen)), skipped)
    if selected.chosen or selected.skipped:
        return selected
    everybody = found if candidates == named else await _find_reachable(context, named)
    return Targets((), witnesses=everybody.chosen) if everybody.chosen else everybody


async def _find_reachable(context: FleetContext, named: Sequence[str]) -> Targets:
    directory, user = context.fleet.directory, context.http.user
    members = [each for each in named if each != HUB]
    reachable = await context.fleet.gatekeeper.admit(user, "get", members)

    def candidate(cluster: str) -> Candidate:
        if cluster == HUB:
            return Candidate(HUB)
        reason = reachable.find_refusal(cluster)
        refused = None if reason is None else refusal(user, proxy_request("get", cluster), reason)
        problem = directory.problem_with(cluster) or directory.troubles.find(cluster, user.name)
        return Candidate(cluster, refused, problem)

    return pick_targets(map(candidate, named))


def pick_targets(candidates: Iterable[Candidate]) -> Targets:
    """Choose whom nothing stands in the way of; the order stays.

    The refusal comes first: who may not reach a cluster does not learn how it is.
    """
    chosen: list[str] = []
    skipped: list[Skipped] = []
    for each in candidates:
        if each.refusal is not None:
            skipped.append(Skipped(each.cluster, each.refusal.message, each.refusal))
        elif each.problem is not None:
            skipped.append(Skipped(each.cluster, each.problem.why, each.problem))
        else:
            chosen.append(each.cluster)
    return Targets(tuple(chosen), tuple(skipped))


Result = TypeVar("Result")

_JUDGED_AT_ONCE: Final = 128
"""Objects whose fields are looked into before others take their turn: a millisecond or two."""


@dataclass(frozen=True, slots=True)
class Fanned:
    """What came of asking many clusters: all their replies, and those that are answered with."""

    replies: Sequence[Reply]
    answered: Sequence[Reply]


async def fan_out(
    context: FleetContext,
    targets: Targets,
    ask: Callable[[Link], Awaitable[Reply]],
    judge: Callable[[Sequence[Reply], Sequence[Skipped]], Verdict],
) -> Fanned:
    """Ask all targets at once and judge what came of it; raise what is to be answered instead.

    Of what is missing from the answer the client is warned.
    """
    replies = await ask_targets(context, targets, ask)
    verdict = judge(replies, targets.skipped)
    context.refuse_or_warn(verdict)
    return Fanned(replies, verdict.answered)


async def ask_targets(
    context: FleetContext, targets: Targets, ask: Callable[[Link], Awaitable[Reply]]
) -> list[Reply]:
    """Ask all targets at once; of witnesses, one after the other, until one has answered."""
    replies = await ask_all(context, targets.chosen, ask)
    for witness in targets.witnesses:
        heard = await ask_all(context, (witness,), ask)
        replies += heard
        if heard[0].failure is None:
            replies = heard
            break
    context.note_skipped(targets.skipped)
    return replies


async def ask_all(
    context: FleetContext, clusters: Sequence[str], ask: Callable[[Link], Awaitable[Result]]
) -> list[Result]:
    """Ask each of these clusters and return what came of it, in the order given.

    `ask` has a deadline of its own and does not fail: a cluster that does is one of its results.
    """
    links = [await context.fleet.directory.link(each) for each in clusters]
    gate = asyncio.Semaphore(context.fleet.limits.clusters_at_once)

    async def ask_in_turn(link: Link) -> Result:
        # The clock starts inside the gate, so a long queue is not blamed on the cluster.
        async with gate:
            return await ask(link)

    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(ask_in_turn(link), name=f"ask {link.cluster}") for link in links]
    return [task.result() for task in asked]


async def ask_for_list(
    context: FleetContext,
    link: Link,
    make_request: Callable[[Link], ApiRequest],
    *,
    token: str = "",
    needs_version: bool = False,
    is_judged: bool = True,
) -> Reply:
    """Ask one cluster for a list, take it apart, and remember how that went.

    `token` is what the list goes on from: a cluster that answers with the same one has no end.
    `needs_version` is for who will watch from there. What is not `is_judged` has all objects, of
    which some may not be what the client wants.
    """
    reply = await take_apart(
        context,
        await ask_one(link, make_request),
        token=token,
        needs_version=needs_version,
        is_judged=is_judged,
    )
    context.note_list(reply)
    context.note_refusal(reply)
    return reply


async def take_apart(
    context: FleetContext,
    reply: Reply,
    *,
    token: str = "",
    needs_version: bool = False,
    is_judged: bool = True,
) -> Reply:
    """Read the list that a cluster answered, and judge its objects by what no cluster judges."""
    if reply.failure is not None:
        return reply
    cluster = reply.cluster
    try:
        listed = read_cluster_list(reply.body, context.naming_in(cluster), context.api_version)
        if token and listed.metadata.continue_token == token:
            raise ClusterMisbehaved(cluster, "its list does not end", code=200)
        if needs_version and not listed.metadata.resource_version:
            raise ClusterMisbehaved(cluster, "its list has no resourceVersion", code=200)
    except ClusterMisbehaved as nonsense:
        return Reply(cluster, reply.status, failure=nonsense)
    # A long list takes a while to be taken apart, and others take their turn.
    await asyncio.sleep(0)
    reply = replace(reply, listed=listed)
    return await judged(context, reply) if is_judged else reply


async def judged(context: FleetContext, reply: Reply) -> Reply:
    """Return a reply with those of its objects that are wanted, by what no cluster judges."""
    listed, judge = reply.listed, context.field_filter
    if listed is None or judge is None:
        return reply
    parts: list[ClusterList] = []
    try:
        for piece in listed.pieces(_JUDGED_AT_ONCE):
            parts.append(judge.select(piece))
            await asyncio.sleep(0)
    except ClusterMisbehaved as nonsense:
        return Reply(reply.cluster, reply.status, failure=nonsense)
    items = [item for each in parts for item in each.items]
    rows = [row for each in parts for row in each.rows]
    keys = [key for each in parts for key in each.sort_keys]
    last = replace(parts[-1], metadata=listed.metadata, sort_keys=keys)
    return replace(reply, listed=replace(last, items=items, rows=rows))


async def ask_one(
    link: Link,
    make_request: Callable[[Link], ApiRequest],
    media_types: Collection[str] = (JSON,),
) -> Reply:
    """Ask one cluster, once; its refusal, its silence and its nonsense are Replies too.

    `media_types` are those that an answer may have when all is well.
    """
    try:
        request = make_request(link)
        answer = await exchange(link.connection, request)
    except (ApiError, ClusterError) as failure:
        return Reply(link.cluster, failure=failure)
    failure = failure_of(link.cluster, answer)
    media_type = answer.headers.get("content-type", "").partition(";")[0].strip()
    if failure is None and media_type not in media_types:
        # It says that all is well, and is not Kubernetes' own: a page of a proxy on the way.
        why = (
            f"answered {answer.status} with {plain_text.line(media_type, 64) or 'no content type'}"
        )
        failure = ClusterMisbehaved(link.cluster, why, code=answer.status)
    asked = dict(request.query)
    version = asked.get("resourceVersion") or "0"
    names_version = bool(asked.get("continue")) or version != "0"
    is_about_version = isinstance(failure, ApiError) and statuses.is_about_the_version(failure)
    if is_about_version and not names_version:
        # Clients start over when they are told this. Only a version that was asked for can be too
        # old: a cluster that says so of none would have every client start over, for ever.
        why = f"answered {answer.status} about a resourceVersion that nobody asked for"
        failure = ClusterMisbehaved(link.cluster, why, code=answer.status)
    return Reply(link.cluster, answer.status, dict(answer.headers), answer.body, failure)


async def exchange(connection: Connection, request: ApiRequest) -> Answer:
    """Return a whole answer of any status within the deadline.

    Nothing is repeated: whoever waits for the answers of many would wait for the repetitions too.
    """
    has_begun = False
    try:
        async with asyncio.timeout(request.seconds), AsyncExitStack() as stack:
            answer = await connection.open(stack, request)
            has_begun = True
            return await answer.read(request.most_bytes, request.hold)
    except TimeoutError as error:
        if has_begun:
            why = f"did not come to the end of its answer within {request.seconds:g}s"
            raise AnswerOverrun(connection.cluster, why) from error
        why = f"gave no answer within {request.seconds:g}s"
        raise ClusterTimeout(connection.cluster, why) from error


# -- the merged answer to HTTP ---------------------------------------------------------------------

_AT_ONCE: Final = 64 * 1024
_MOST_NAMED: Final = 10


async def send_merged(
    context: RequestContext,
    pieces: Iterable[bytes],
    replies: Iterable[Reply],
    representation: Representation,
) -> Response | None:
    """Answer with a merged document; a long one goes out while it is still being made."""
    headers = [*headers_for(context, JSON), *warning_headers(_warnings_of(replies))]
    if representation.media_type == YAML:
        return await as_yaml(context, Response(200, headers, list(pieces)))
    if is_pretty(context):
        body = b"".join(pieces)
        context.weigh(body)
        formatted = await context.run(lambda: msgspec.json.format(body, indent=2))
        return Response(200, headers, formatted)
    rest = batches(chain(pieces, (b"\n",)))
    first = next(rest, b"")
    second = next(rest, None)
    if second is None:
        return Response(200, headers, first)
    stream = context.request.start_stream(200, headers)
    stream.write(first)
    stream.write(second)
    await stream.drain()
    for batch in rest:
        stream.write(batch)
        await stream.drain()
    stream.end()
    return None


def send_one(context: RequestContext, reply: Reply, body: bytes, speaker: str) -> Response:
    """Answer with what one cluster answered, its body rewritten."""
    if reply.status >= 400:
        body = clean_failure(body, reply.headers.get("content-type", ""))
    headers = headers_to_return(context, reply.headers, speaker, is_unpacked=True)
    return Response(reply.status, headers, body)


def batches(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join small pieces, so that each batch is worth a write of its own.

    >>> list(batches([b"a", b"b", b"c" * 65536, b"d"])) == [b"ab" + b"c" * 65536, b"d"]
    True
    """
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= _AT_ONCE:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


def _warnings_of(replies: Iterable[Reply]) -> list[str]:
    """Return the warnings of clusters that are shown: each text once, with those that gave it.

    The hub's own words come first and by themselves: they are said in the fleet's name.
    """
    own: list[str] = []
    said: dict[str, list[str]] = {}
    for reply in (each for each in replies if each.failure is None and "warning" in each.headers):
        texts = warnings_in(reply.headers, "")
        if reply.cluster == HUB:
            own += texts
        for text in texts if reply.cluster != HUB else ():
            said.setdefault(text, []).append(reply.cluster)
    for text, clusters in said.items():
        more = len(clusters) - _MOST_NAMED
        listed = ", ".join(clusters[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
        own.append(f"cluster{'s' if len(clusters) > 1 else ''} {listed}: {text}")
    return list(dict.fromkeys(own))
