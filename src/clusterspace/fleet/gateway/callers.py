"""Who asks, what the hub lets them do, and at which cluster their command is.

The gateway knows nobody by itself:

    client certificate   signed by the authority the hub publishes; checked by TLS
    bearer token         reviewed by the hub
    neither              anonymous

Answers of the hub are remembered for seconds: long enough for the requests of one command, short
enough that a right that was taken away is gone before anybody can wonder.

What a command asks next stays at the cluster it is at:

    kubectl logs deploy/web.clusterspace.m1
      GET  …/deployments/web.clusterspace.m1     names the cluster
      LIST …/pods?labelSelector=app%3Dweb        means the pods of that Deployment, and does not say

Such a list is told from any other list of pods by three things together: it is of the same run of
the same command, the command is one that goes on from an object to its pods, and it selects exactly
what that object selects. Where one of them is in doubt, the list is one of every cluster. That is
right for a template of the hub too, whose copies select what it selects. A Job does not: it selects
its own UID, which no copy has, so that the pods of its copies are listed by its name instead.

A program that writes an object and watches it recognises its own write by the version. For some
seconds it is known who wrote which object, so that their watch can tell it in the same words.

kubectl gives each run a session of its own and says so in every request. One that does not is known
by its connection, which it shares with nobody; unless something on the way shares connections out.

Where several processes serve one address, what a run has found and who writes what is told to all
of them (aio/siblings.py), and nobody is answered before they have heard it.
"""

import asyncio
import hashlib
import re
from collections import Counter, OrderedDict
from collections.abc import (
    Awaitable,
    Callable,
    Collection,
    Generator,
    Hashable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeAlias, TypeVar
from uuid import uuid4

import msgspec

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.identities import AGENT_USER_PREFIX, AGENTS
from clusterspace.apis.tunnels import SUBRESOURCE
from clusterspace.apiserver.http.context import RequestContext
from clusterspace.apiserver.http.guards import Decision
from clusterspace.apiserver.http.messages import Request
from clusterspace.apiserver.http.request_info import Query, RequestInfo
from clusterspace.apiserver.http.users import ANONYMOUS, CertificateLogin, User, login_of
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.errors import MalformedSelector
from clusterspace.fleet.gateway.merge.failures import Reply
from clusterspace.fleet.gateway.routes import HUB, Naming, Reach, Route
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.selectors import (
    LabelSelector,
    Operator,
    label_selector_of,
    parse_label_selector,
)

_TOKEN_REVIEWS: Final = ResourcePath(
    GroupVersionResource("authentication.k8s.io", "v1", "tokenreviews")
)
_ACCESS_REVIEWS: Final = ResourcePath(
    GroupVersionResource("authorization.k8s.io", "v1", "subjectaccessreviews")
)
_REMEMBERED_SECONDS: Final = 4.0
_MOST_REMEMBERED: Final = 10_000
_REVIEWS_AT_ONCE: Final = 32
_BEARER: Final = "bearer"
_ATTRIBUTES: Final = (
    "verb", "group", "version", "resource", "subresource", "namespace", "name",
)  # fmt: skip
"""What a review of a request for a resource says of it."""

Value = TypeVar("Value")


# Answers of the hub are remembered for a few seconds, and forgotten at once when something that
# they follow from has changed. A question may be under way just then, and its answer be of before:
#
#     ask(jane), at age 3 ─────────────────────────────> "allowed" arrives: age 4, not kept
#                           roles change: forget, age 4
#
# So whoever asks takes the age along, and `put` keeps nothing that was asked at another. The answer
# itself still counts for the one request that waited for it, which began before the change.
class _Memory(Generic[Value]):
    """A cache of recent answers; the oldest goes when there are too many."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: OrderedDict[Hashable, tuple[float, Value]] = OrderedDict()
        self.age = 0
        """How often everything was forgotten."""

    def forget(self) -> None:
        """Remember nothing any more, and nothing either that is being asked right now."""
        self._entries.clear()
        self.age += 1

    def find(self, key: Hashable) -> Value | None:
        """Return the remembered value; None if there is none, or it is too old."""
        until, value = self._entries.get(key, (0.0, None))
        return value if self._clock.monotonic() < until else None

    def put(self, key: Hashable, value: Value, age: int) -> Value:
        """Remember what was asked at this age, unless things have changed since."""
        if age != self.age:
            return value
        self._entries[key] = (self._clock.monotonic() + _REMEMBERED_SECONDS, value)
        self._entries.move_to_end(key)
        now = self._clock.monotonic()
        # The oldest are in front: what nobody may use any more takes no room either.
        while self._entries and (
            len(self._entries) > _MOST_REMEMBERED or next(iter(self._entries.values()))[0] <= now
        ):
            self._entries.popitem(last=False)
        return value


IsAgentRevoked: TypeAlias = Callable[[str, float], Awaitable[bool]]
"""Whether a certificate of the agent of a cluster of this name, issued then, counts no longer."""


class FleetAuthenticator:
    """Finds out who asks; a credential that is given and wrong is refused, never passed over."""

    def __init__(
        self,
        hub: ClusterClient,
        clock: Clock,
        check: Callable[[CertificateLogin], None] = lambda _: None,
        is_agent_revoked: IsAgentRevoked | None = None,
    ) -> None:
        self._hub = hub
        self._clock = clock
        self._check = check
        """Raises Unauthorized for a certificate that counts no longer, itself or who signed it."""
        self._is_agent_revoked = is_agent_revoked
        self._users: _Memory[User] = _Memory(clock)

    def forget(self) -> None:
        """Ask the hub anew about everybody."""
        self._users.forget()

    async def authenticate(self, request: Request) -> User:
        """Return who asks."""
        header, login = request.headers.get("authorization"), None
        if request.peer_certificate is not None:
            login = login_of(request, request.peer_certificate, self._clock.now())
            self._check(login)
            user = login.user
        elif not header:
            user = ANONYMOUS
        else:
            scheme, _, token = header.strip().partition(" ")
            if scheme.lower() != _BEARER or not token.strip():
                raise statuses.unauthorized()
            user = await self.by_token(token.strip())
        if AGENTS in user.groups and _TUNNEL_PATH.fullmatch(request.path) is None:
            # Agents talk to the hub. Here they keep a tunnel, through which they are asked and ask
            # nothing: the path is compared as it was sent, so that nothing else can be meant by it.
            raise statuses.unauthorized()
        if AGENTS in user.groups and login is not None and self._is_agent_revoked is not None:
            # By its name it is the agent of whichever cluster has that name now. So it is by right.
            cluster = user.name.removeprefix(AGENT_USER_PREFIX)
            if await self._is_agent_revoked(cluster, login.issued):
                raise statuses.unauthorized()
        return user

    async def by_token(self, token: str) -> User:
        """Return whose a bearer token is; Unauthorized when the hub knows nobody by it."""
        # The digest, so that a dump of our memory gives no token away.
        key = hashlib.sha256(token.encode()).digest()
        known = self._users.find(key)
        if known is not None:
            return known
        age = self._users.age
        review = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token},
        }
        status: Object = (await self._hub.create(_TOKEN_REVIEWS, review)).get("status") or {}
        name = find_at(status, "user", "username")
        if status.get("authenticated") is not True or not name:
            raise statuses.unauthorized()
        extra: Mapping[str, Sequence[str]] = find_at(status, "user", "extra") or {}
        user = User(
            str(name),
            tuple(find_at(status, "user", "groups") or ()),
            str(find_at(status, "user", "uid") or ""),
            {key: tuple(values) for key, values in extra.items()},
        )
        return self._users.put(key, user, age)


_TUNNEL_PATH: Final = re.compile(
    rf"/apis/{re.escape(CLUSTERS.group)}/{CLUSTERS.version}/{CLUSTERS.resource}"
    rf"/[a-z0-9]([a-z0-9-]*[a-z0-9])?/{SUBRESOURCE}"
)


class HubReviews:
    """Asks the hub what somebody may do there."""

    def __init__(self, hub: ClusterClient, clock: Clock) -> None:
        self._hub = hub
        self._decisions: _Memory[Decision] = _Memory(clock)

    def forget(self) -> None:
        """Ask the hub anew about everything."""
        self._decisions.forget()

    async def decide(self, user: User, info: RequestInfo) -> Decision:
        """Return whether the user may do what the request asks for."""
        spec: dict[str, Any] = {
            "user": user.name,
            "uid": user.uid,
            "groups": list(user.groups),
            "extra": {key: list(values) for key, values in user.extra.items()},
        }
        spec = {key: value for key, value in spec.items() if value}
        if info.is_resource:
            attributes = {name: getattr(info, name) for name in _ATTRIBUTES}
            spec["resourceAttributes"] = {name: text for name, text in attributes.items() if text}
        else:
            spec["nonResourceAttributes"] = {"path": info.path, "verb": info.verb}
        # The digest: a path may be long, and anybody may send one.
        key = hashlib.blake2b(repr(spec).encode(errors="backslashreplace"), digest_size=16).digest()
        known = self._decisions.find(key)
        if known is not None:
            return known
        age = self._decisions.age
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        }
        answer = await self._hub.create(_ACCESS_REVIEWS, review)
        allowed = find_at(answer, "status", "allowed") is True
        reason = str(find_at(answer, "status", "reason") or "")
        return self._decisions.put(key, Decision(allowed, reason), age)


@dataclass(frozen=True, slots=True)
class Reachable:
    """Which members a caller may reach."""

    decisions: Mapping[str, Decision]

    def find_refusal(self, cluster: str) -> str | None:
        """Return the hub's reason for a cluster that may not be reached, or None if it may."""
        decision = self.decisions.get(cluster, Decision(allowed=False))
        return None if decision.allowed else decision.reason


class Gatekeeper:
    """Says which members a caller may reach at all: the hub's rules on `clusters/proxy`."""

    def __init__(self, reviews: HubReviews) -> None:
        self._reviews = reviews

    async def admit(self, user: User, verb: str, clusters: Collection[str]) -> Reachable:
        """Decide about these members; `verb` is the right on `clusters/proxy` that it takes.

        Whether there are such members does not matter: who may not reach one must not be able to
        tell it from one that somebody made up.
        """
        if len(clusters) > 1:
            # Rights only add up: who may without a name being said may whatever the name.
            everywhere = await self._reviews.decide(user, proxy_request(verb, ""))
            if everywhere.allowed:
                return Reachable(dict.fromkeys(clusters, everywhere))
        gate = asyncio.Semaphore(_REVIEWS_AT_ONCE)

        async def decide(cluster: str) -> Decision:
            async with gate:
                return await self._reviews.decide(user, proxy_request(verb, cluster))

        try:
            async with asyncio.TaskGroup() as group:
                asked = {each: group.create_task(decide(each)) for each in clusters}
        except ExceptionGroup as failures:
            # All of them ask the same hub: one reason stands for the others.
            raise failures.exceptions[0] from failures
        return Reachable({cluster: task.result() for cluster, task in asked.items()})


def proxy_request(verb: str, cluster: str) -> RequestInfo:
    """Return the request that the hub authorizes when somebody reaches a member."""
    return RequestInfo(
        method="",
        path="",
        verb=verb,
        is_resource=True,
        group=CLUSTERS.group,
        version=CLUSTERS.version,
        resource=CLUSTERS.resource,
        subresource="proxy",
        name=cluster,
    )


def tunnel_request(cluster: str) -> RequestInfo:
    """Return the request that the hub authorizes when somebody opens the tunnel of a member."""
    return replace(proxy_request("create", cluster), subresource=SUBRESOURCE)


# -- which cluster a command is at -----------------------------------------------------------------

REMEMBERED_SECONDS: Final = 60.0
"""A command asks at once, but waits up to this long for the first pod to appear."""

_MOST_SESSION_LENGTH: Final = 64
_GOING_ON: Final = frozenset({"attach", "exec", "logs", "port-forward"})
"""The commands that take an object and go on to its pods."""
_KUBECTL: Final = "kubectl/"
_PASSED_ON: Final = ("forwarded", "via", "x-forwarded-for")
"""Headers by which something on the way says that it speaks for others."""
_TYPED: Final = ("*/*", "application/vnd.kubernetes.protobuf")
"""What clients accept that know the kinds they ask for."""
_RUN: Final = "gateway.run"
_NARROWING: Final = ("fieldSelector", "continue", "limit")
"""What nobody says who only goes on to the pods of an object."""

_WITH_SELECTORS: Final = frozenset(
    {
        ("apps", "daemonsets"),
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("batch", "jobs"),
    }
)
_JOBS: Final = ("batch", "jobs")
_JOB_NAME: Final = "batch.kubernetes.io/job-name"
_WITH_LABELS: Final = frozenset({("", "replicationcontrollers"), ("", "services")})
_SAME: Final = {
    Operator.EQUALS: Operator.IN,
    Operator.DOUBLE_EQUALS: Operator.IN,
    Operator.NOT_EQUALS: Operator.NOT_IN,
}


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a command, by one user."""

    user: str
    session: str


def run_of(context: RequestContext) -> Run | None:
    """Return the run a request belongs to; None when it is of another command, or unclear."""
    session = context.header("kubectl-session")
    if session:
        command = context.header("kubectl-command").rpartition(" ")[2]
        is_known = command in _GOING_ON and len(session) <= _MOST_SESSION_LENGTH
        return Run(context.user.name, session) if is_known else None
    # Whether kubectl asks, by itself, for what it will look into. What it only shows or prunes it
    # gets as plain JSON, and means every cluster: `apply --prune` too selects by labels after it
    # has got objects by name.
    accept = context.header("accept")
    is_direct = not any(context.header(name) for name in _PASSED_ON)
    is_kubectl = context.header("user-agent").startswith(_KUBECTL)
    if not (is_direct and is_kubectl and any(each in accept for each in _TYPED)):
        return None
    return Run(context.user.name, context.request.connection_memory.setdefault(_RUN, uuid4().hex))


class _Spec(msgspec.Struct):
    selector: dict[str, Any] | None = None


class _Workload(msgspec.Struct):
    """As much of an object as tells which pods are its own."""

    spec: _Spec | None = None


_workloads: Final = msgspec.json.Decoder(_Workload)


def selector_in(group: str, resource: str, body: bytes) -> LabelSelector | None:
    """Return the selector of an object's pods; None when it has none, or cannot be read."""
    kind = (group, resource)
    if kind not in _WITH_SELECTORS and kind not in _WITH_LABELS:
        return None
    try:
        spec = _workloads.decode(body).spec
        written = spec.selector if spec is not None else None
        selector = label_selector_of({"matchLabels": written} if kind in _WITH_LABELS else written)
    except (msgspec.DecodeError, MalformedSelector):
        return None
    return selector if selector.requirements else None


def tell_nobody(_: bytes) -> None:
    """Have no other workers to tell of a change."""


class Sessions:
    """What runs of commands have found, for a minute; the oldest goes when there is too much."""

    def __init__(self, clock: Clock, *, most: int = _MOST_REMEMBERED) -> None:
        self._clock = clock
        self._most = most
        self._found: OrderedDict[bytes, _Found] = OrderedDict()
        self.tell: Callable[[bytes], None] = tell_nobody

    def note(
        self, run: Run, namespace: str, selector: LabelSelector, cluster: str, job: str = ""
    ) -> None:
        """Remember that a run has found an object with this selector in a cluster.

        `job` is what a Job is called whose pods have another selector wherever it was copied to.
        """
        key = _key(run, namespace, selector)
        self._note(key, cluster, job)
        self.tell(msgspec.msgpack.encode((key, cluster, job)))

    def hear(self, message: bytes) -> None:
        """Take over what a run has found by way of another worker; None where it found two."""
        key, cluster, job = msgspec.msgpack.decode(message, type=tuple[bytes, str | None, str])
        self._note(key, cluster, job)

    def known(self) -> Iterator[bytes]:
        """Return all that runs have found, as it is told."""
        now = self._clock.monotonic()
        for key, found in self._found.items():
            if now < found.until:
                yield msgspec.msgpack.encode((key, found.cluster, found.job))

    def _note(self, key: bytes, cluster: str | None, job: str) -> None:
        now = self._clock.monotonic()
        known = self._found.get(key)
        # Two objects of one run with the same selector in two clusters: it is not said which one's
        # pods are meant next. That is remembered too, or a third request would seem certain again.
        is_same = known is None or now >= known.until or known.cluster == cluster
        self._found[key] = _Found(cluster if is_same else None, now + REMEMBERED_SECONDS, job)
        self._found.move_to_end(key)
        if len(self._found) > self._most:
            self._found.popitem(last=False)

    def find(self, run: Run, namespace: str, selector: LabelSelector) -> str | None:
        """Return the cluster in which a run has found the object with this selector.

        None when it has found none, or two.
        """
        known = self._find(run, namespace, selector)
        return known and known.cluster

    def _find(self, run: Run, namespace: str, selector: LabelSelector) -> "_Found | None":
        known = self._found.get(_key(run, namespace, selector))
        return known if known and self._clock.monotonic() < known.until else None

    def reads(self, context: RequestContext, route: Route) -> bool:
        """Whether the answer has to be looked into: it tells which pods a command goes on to."""
        info = route.info
        is_template = (info.group, info.resource) == _JOBS and route.naming.cluster == HUB
        is_object = info.verb == "get" and bool(info.name) and not info.subresource
        return is_template and is_object and run_of(context) is not None

    def note_found(self, context: RequestContext, route: Route, reply: Reply) -> None:
        """Remember where a command has found an object that has pods.

        The hub's own objects are templates, and their pods are wherever they were propagated to.
        """
        info, run = route.info, run_of(context)
        is_job = (info.group, info.resource) == _JOBS
        is_found = reply.failure is None and (reply.cluster != HUB or is_job)
        if run is None or not is_found or info.verb != "get" or info.subresource:
            return
        selector = selector_in(info.group, info.resource, reply.body)
        if selector is not None:
            job = info.name if reply.cluster == HUB else ""
            self.note(run, info.namespace, selector, reply.cluster, job)

    def keep_in_place(self, context: RequestContext, route: Route) -> Route:
        """Return a route for pods as one to the cluster its command is at, where that is known."""
        info = route.info
        is_pods = (info.group, info.resource, info.subresource) == ("", "pods", "")
        is_read = info.verb in ("list", "watch") and not info.name
        is_of_view = route.reach is Reach.ALL and info.search is None
        if not (is_of_view and is_pods and is_read and info.namespace):
            return route
        run = run_of(context)
        if run is None or any(info.query.get(key) for key in _NARROWING):
            return route
        try:
            selector = parse_label_selector(info.query.get("labelSelector"))
        except MalformedSelector:
            return route  # for the clusters to refuse
        found = self._find(run, info.namespace, selector)
        if found is None or found.cluster is None:
            return route
        if found.cluster != HUB:
            return replace(
                route, reach=Reach.ONE, naming=Naming(found.cluster, qualifies_names=True)
            )
        by_name = ("labelSelector", f"{_JOB_NAME}={found.job}")
        others = (pair for pair in info.query.pairs if pair[0] != "labelSelector")
        return replace(route, info=replace(info, query=Query((*others, by_name))))


# -- what a caller has just written ----------------------------------------------------------------

_WRITTEN_SECONDS: Final = 10.0
"""How long after the answer to a write its event may come, from a cluster that is busy."""
_WRITING_SECONDS: Final = 70.0
"""The same, where another worker sends the write and would say when it is over: a request ends
after a minute, and so may that worker."""


@dataclass(frozen=True, slots=True)
class WrittenObject:
    """One object of one cluster, in that cluster's words, and who writes it."""

    user: str
    cluster: str
    resource: str
    """With its group; without its version, for it may be watched by another one."""
    namespace: str
    name: str
    """Empty for one whose name is for the cluster to find: then it may be any."""

    @property
    def key(self) -> bytes:
        """A few bytes, however long the names are: anybody may write, and it is kept here."""
        text = repr((self.user, self.cluster, self.resource, self.namespace, self.name))
        return hashlib.blake2b(text.encode(errors="backslashreplace"), digest_size=16).digest()


class Writes:
    """Which objects callers write, and have just written; the oldest go when there are too many."""

    def __init__(self, clock: Clock, *, most: int = _MOST_REMEMBERED) -> None:
        self._clock = clock
        self._most = most
        self._under_way = Counter[bytes]()
        self._until: OrderedDict[bytes, float] = OrderedDict()
        self.tell: Callable[[bytes], None] = tell_nobody

    def hear(self, message: bytes) -> None:
        """Take over that a caller writes, or has written, by way of another worker."""
        key, seconds = msgspec.msgpack.decode(message, type=tuple[bytes, float])
        self._know(key, seconds)

    def known(self) -> Iterator[bytes]:
        """Return all that is being written and was just written, as it is told."""
        for key in self._under_way:
            yield msgspec.msgpack.encode((key, _WRITING_SECONDS))
        now = self._clock.monotonic()
        for key, until in self._until.items():
            if now < until:
                yield msgspec.msgpack.encode((key, until - now))

    @contextmanager
    def writing(self, written: WrittenObject) -> Generator[None]:
        """Know of a write for as long as the block lasts, and a while longer."""
        # From before it is sent: the event of a write may well be here sooner than its answer.
        key = written.key
        self._under_way[key] += 1
        self.tell(msgspec.msgpack.encode((key, _WRITING_SECONDS)))
        try:
            yield
        finally:
            self._under_way[key] -= 1
            if not self._under_way[key]:
                del self._under_way[key]
            self._know(key, _WRITTEN_SECONDS)
            self.tell(msgspec.msgpack.encode((key, _WRITTEN_SECONDS)))

    def _know(self, key: bytes, seconds: float) -> None:
        self._until[key] = self._clock.monotonic() + seconds
        self._until.move_to_end(key)
        if len(self._until) > self._most:
            self._until.popitem(last=False)

    def knows(self, written: WrittenObject) -> bool:
        """Whether the caller writes this object, or has just done so."""
        now = self._clock.monotonic()
        for key in (written.key, replace(written, name="").key):
            if key in self._under_way or self._until.get(key, 0.0) > now:
                return True
        return False


@dataclass(frozen=True, slots=True)
class _Found:
    cluster: str | None
    until: float
    job: str = ""


def _key(run: Run, namespace: str, selector: LabelSelector) -> bytes:
    """Return the same few bytes for the same question, however long it is and however written."""
    terms = sorted(
        (each.key, _SAME.get(each.operator, each.operator).value, sorted(each.values))
        for each in selector.requirements
    )
    text = repr((run.user, run.session, namespace, terms))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
