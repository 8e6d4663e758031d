"""Who asks, and what the hub lets them do: the gateway knows nobody by itself.

    client certificate   signed by the authority the hub publishes; checked by TLS
    bearer token         reviewed by the hub
    neither              anonymous

Answers of the hub are remembered for seconds: long enough for the requests of one command, short
enough that a right that was taken away is gone before anybody can wonder.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from clusterspace.aio.clocks import Clock
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.identities import AGENTS
from clusterspace.apiserver.http.middleware.authorize import Decision
from clusterspace.apiserver.http.request_info import RequestInfo
from clusterspace.apiserver.http.requests import Request
from clusterspace.apiserver.http.users import ANONYMOUS, User, login_of
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.kube import statuses
from clusterspace.kube.objects import Object, find_at
from clusterspace.kube.resources import GroupVersionResource

_TOKEN_REVIEWS: Final = ResourcePath(
    GroupVersionResource("authentication.k8s.io", "v1", "tokenreviews")
)
_ACCESS_REVIEWS: Final = ResourcePath(
    GroupVersionResource("authorization.k8s.io", "v1", "subjectaccessreviews")
)
_REMEMBERED_SECONDS: Final = 4.0
RECHECK_SECONDS: Final = 2.5
"""Between two looks at open streams. With what is remembered, and the time it takes to ask, a right
that was taken away ends what it had opened within ten seconds."""
_MOST_REMEMBERED: Final = 10_000
_REVIEWS_AT_ONCE: Final = 32
_BEARER: Final = "bearer"
_ATTRIBUTES: Final = (
    "verb", "group", "version", "resource", "subresource", "namespace", "name",
)  # fmt: skip
"""What a review of a request for a resource says of it."""

Value = TypeVar("Value")


class _Memory(Generic[Value]):
    """A cache of recent answers; the oldest goes when there are too many."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: OrderedDict[Hashable, tuple[float, Value]] = OrderedDict()

    def find(self, key: Hashable) -> Value | None:
        """Return the remembered value; None if there is none, or it is too old."""
        until, value = self._entries.get(key, (0.0, None))
        return value if self._clock.monotonic() < until else None

    def put(self, key: Hashable, value: Value) -> Value:
        """Remember."""
        self._entries[key] = (self._clock.monotonic() + _REMEMBERED_SECONDS, value)
        self._entries.move_to_end(key)
        now = self._clock.monotonic()
        # The oldest are in front: what nobody may use any more takes no room either.
        while self._entries and (
            len(self._entries) > _MOST_REMEMBERED or next(iter(self._entries.values()))[0] <= now
        ):
            self._entries.popitem(last=False)
        return value


class FleetAuthenticator:
    """Finds out who asks; a credential that is given and wrong is refused, never passed over."""

    def __init__(self, hub: ClusterClient, clock: Clock) -> None:
        self._hub = hub
        self._clock = clock
        self._users: _Memory[User] = _Memory(clock)

    async def authenticate(self, request: Request) -> User:
        """Return who asks."""
        header = request.headers.get("authorization")
        if request.peer_certificate is not None:
            user = login_of(request, request.peer_certificate, self._clock.now()).user
        elif not header:
            user = ANONYMOUS
        else:
            scheme, _, token = header.strip().partition(" ")
            if scheme.lower() != _BEARER or not token.strip():
                raise statuses.unauthorized()
            user = await self._by_token(token.strip())
        if AGENTS in user.groups:
            # Agents talk to the hub, which alone knows whether their certificates were revoked.
            raise statuses.unauthorized()
        return user

    async def _by_token(self, token: str) -> User:
        # The digest, so that a dump of our memory gives no token away.
        key = hashlib.sha256(token.encode()).digest()
        known = self._users.find(key)
        if known is not None:
            return known
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
        return self._users.put(key, user)


class HubReviews:
    """Asks the hub what somebody may do there."""

    def __init__(self, hub: ClusterClient, clock: Clock) -> None:
        self._hub = hub
        self._decisions: _Memory[Decision] = _Memory(clock)

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
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": spec,
        }
        answer = await self._hub.create(_ACCESS_REVIEWS, review)
        allowed = find_at(answer, "status", "allowed") is True
        reason = str(find_at(answer, "status", "reason") or "")
        return self._decisions.put(key, Decision(allowed, reason))


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
