"""ClusterConsumers: programs that are told of clusters, with credentials of their own that end.

    ClusterConsumer + Clusters ──> ClusterProfiles ──> Secrets ──TokenRequest──> tokens in them

A token is one of the consumer's own ServiceAccount, for the proxy of a cluster: whether it opens
anything is decided there, by the rights of that account. It is bound to the Secret that it lies
in, and lives for an hour at most. What is no longer to be there is deleted, and its token with it;
what belongs to a deleted consumer the hub collects by its owner.

All of it is off until the operator says where consumers reach the fleet: then a consumer says that
it is, tokens that were given end by themselves, and nothing else is touched.

The controllers may write nothing of this anywhere until somebody grants it to them in the
namespace of the account: where they may not, the consumer says so.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from clusterspace.aio.clocks import Clock
from clusterspace.apis.affinities import traits_of
from clusterspace.apis.cluster_properties import properties_of, reported_properties
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.consumers import (
    CLUSTER_CONSUMERS,
    CLUSTER_PROFILES,
    CONSUMER_LABEL,
    PUBLISHED,
    RENEWS,
    Address,
    Consumer,
    profile_for,
    profile_status,
    read_consumer,
    secret_for,
    shape_of,
    with_token,
)
from clusterspace.apis.member_clusters import MEMBER_CLUSTERS
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, DeleteOptions, ListOptions
from clusterspace.controllers.commit import commit
from clusterspace.controllers.controller import (
    Done,
    Reconciler,
    Request,
    RequeueAfter,
    Result,
    Watch,
    more_than_status_changed,
    request_for,
)
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import HubCaches, Update
from clusterspace.errors import (
    AlreadyExists,
    Forbidden,
    MalformedSelector,
    MalformedTimestamp,
    NotFound,
)
from clusterspace.fleet.membership.manifests import SECRETS, SERVICE_ACCOUNTS
from clusterspace.kube.conditions import FALSE, TRUE, Condition, find_condition, set_condition
from clusterspace.kube.objects import (
    Object,
    annotations_of,
    find_at,
    is_being_deleted,
    labels_of,
    metadata_of,
    name_of,
    uid_of,
)
from clusterspace.kube.times import format_time, parse_time

LOOK_SECONDS: Final = 300.0
"""After how long what was written is looked at again: Secrets are not watched."""

_PROBLEM_SECONDS: Final = 30.0
"""The same, while something is missing: who grants a right does not wake us."""
_SETTLE_SECONDS: Final = 1.0
_RENEWED_AFTER: Final = 2 / 3
"""Of its time: a hub that is away for a third of an hour ends nobody's work."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a consumer is not told of everything."""

    reason: str
    message: str


TURNED_OFF: Final = Problem(
    "TurnedOff", "the controllers run without --cluster-consumers: nothing is written for anybody"
)


class ClusterConsumers(Reconciler):
    """Keeps the profiles and credentials of every ClusterConsumer."""

    name = "cluster-consumers"

    def __init__(
        self,
        hub: Client,
        caches: HubCaches,
        events: EventRecorder,
        clock: Clock,
        address: Address | None,
    ) -> None:
        self._hub = hub
        self._events = events
        self._clock = clock
        self._is_on = address is not None
        self._address = address or Address("", b"")
        self._consumers = caches.informer(CLUSTER_CONSUMERS)
        self._clusters = caches.informer(CLUSTERS)
        self._members = caches.informer(MEMBER_CLUSTERS)
        self._profiles = caches.informer(CLUSTER_PROFILES)

    def watches(self) -> Iterable[Watch]:
        """Return consumers, what they are told of, and what was written for them."""
        yield Watch(self._consumers, when=more_than_status_changed)
        if not self._is_on:
            return
        for informer in (self._clusters, self._members):
            yield Watch(
                informer,
                to=self.all_consumers,
                when=is_described_differently,
                settle_seconds=_SETTLE_SECONDS,
            )
        yield Watch(self._profiles, to=consumer_of)

    async def reconcile(self, request: Request) -> Result:
        """Bring what is written for one consumer to what it should be."""
        cached = self._consumers.cache.find(request.key)
        if cached is None or is_being_deleted(cached):
            return Done()
        # Live: credentials are given and taken by this one, and a cache that is behind would give
        # to somebody who was suspended a moment ago.
        path = ResourcePath(CLUSTER_CONSUMERS, name=request.name)
        live = await self._hub.find(path)
        if live is None or is_being_deleted(live):
            return Done()
        if not self._is_on:
            await self._tell(live, 0, TURNED_OFF)
            return Done()
        try:
            consumer = read_consumer(live)
        except MalformedSelector as error:
            await self._tell(live, 0, Problem("InvalidClusterAffinity", str(error)))
            return Done()
        selected = {
            name_of(each): each
            for each in self._clusters.cache.objects()
            if not is_being_deleted(each) and consumer.affinity.matches(traits_of(each))
        }
        # Taken back before anything is given: who lost a cluster should not wait for the others.
        problems, secrets = await self._withdraw(consumer, selected)
        renewals: list[float] = []
        for name in sorted(selected):
            if consumer.has_profiles:
                problems += await self._write_profile(consumer, selected[name])
            if consumer.has_secrets:
                found = await self._write_secret(consumer, selected[name], secrets.get(name))
                if isinstance(found, Problem):
                    problems.append(found)
                    if found.reason in (_FORBIDDEN, _NO_ACCOUNT):
                        break  # it is the same for every other
                else:
                    renewals.append(found)
        await self._tell(live, len(selected), problems[0] if problems else None)
        wait = min([*renewals, _PROBLEM_SECONDS if problems else LOOK_SECONDS])
        return RequeueAfter(max(wait, _SETTLE_SECONDS))

    async def _withdraw(
        self, consumer: Consumer, selected: dict[str, Object]
    ) -> tuple[list[Problem], dict[str, Object]]:
        """Delete what was written for clusters that the consumer is told of no longer.

        Return what was in the way, and the Secrets that stay.
        """
        problems: list[Problem] = []
        secrets: dict[str, Object] = {}
        labelled = ListOptions(label_selector=f"{CONSUMER_LABEL}={consumer.name}")
        for resource, is_wanted in (
            (SECRETS, consumer.has_secrets),
            (CLUSTER_PROFILES, consumer.has_profiles),
        ):
            collection = ResourcePath(resource, consumer.namespace)
            for each in await self._hub.list_objects(collection, labelled):
                name = name_of(each)
                if not consumer.owns(each):
                    continue
                if is_wanted and name in selected:
                    if resource == SECRETS:
                        secrets[name] = each
                    continue
                if is_wanted:
                    # What a cache lacks is not gone: a Cluster that it has not seen yet keeps its
                    # credentials, and so does one that is labelled as it should be by now.
                    cluster = await self._hub.find(ResourcePath(CLUSTERS, name=name))
                    if (
                        cluster is not None
                        and not is_being_deleted(cluster)
                        and consumer.affinity.matches(traits_of(cluster))
                    ):
                        continue
                try:
                    await self._hub.delete(collection.named(name), DeleteOptions(uid_of(each)))
                except NotFound:
                    continue
                except Forbidden as error:
                    problems.append(forbidden(consumer, error))
        return problems, secrets

    async def _write_profile(self, consumer: Consumer, cluster: Object) -> list[Problem]:
        name = name_of(cluster)
        desired = profile_for(consumer, cluster)
        path = ResourcePath(CLUSTER_PROFILES, consumer.namespace, name)
        live = self._profiles.cache.find(path.key)
        if live is None:
            try:
                live = await self._hub.create(path.collection, desired)
            except AlreadyExists:
                live = await self._hub.get(path)
            except NotFound as error:
                return [Problem("NamespaceNotFound", str(error))]
        if not consumer.owns(live):
            return [taken(path)]
        live = await commit(self._hub, path, live, merged(live, desired))
        member = self._members.cache.find(name)
        known = properties_of(cluster) | (reported_properties(member) if member else {})
        status = profile_status(consumer, cluster, known, self._address)
        await commit(self._hub, path, live, {**live, "status": status})
        return []

    async def _write_secret(
        self, consumer: Consumer, cluster: Object, live: Object | None
    ) -> float | Problem:
        """Give a cluster's Secret a token that is good for a while; return for how long it is."""
        name, now = name_of(cluster), self._clock.now()
        path = ResourcePath(SECRETS, consumer.namespace, name)
        desired = secret_for(consumer, cluster)
        try:
            if live is None:
                live = await self._hub.create(path.collection, desired)
            described = merged(live, desired)
            shaped = with_token(described, consumer, self._address, "", ("", ""))
            left = seconds_left(live, now)
            # Somebody else may have written this annotation: one from beyond the time that a token
            # lives for is not ours.
            if shape_of(shaped) == shape_of(live) and 0 < left <= consumer.token_seconds:
                return left
            # A crash behind this line leaves a token that nobody has: it ends by itself.
            asked = await self._hub.create(
                ResourcePath(SERVICE_ACCOUNTS, consumer.namespace, consumer.account, "token"),
                token_request(live, consumer.token_seconds),
            )
            ends = parse_time(str(find_at(asked, "status", "expirationTimestamp")))
            renews = now + (ends - now) * _RENEWED_AFTER
            times = format_time(renews), format_time(ends)
            token = str(find_at(asked, "status", "token"))
            written = with_token(described, consumer, self._address, token, times)
            await commit(self._hub, path, live, written)
        except AlreadyExists:
            return taken(path)
        except Forbidden as error:
            return forbidden(consumer, error)
        except NotFound as error:
            return Problem(_NO_ACCOUNT, str(error))
        return renews - now

    async def _tell(self, consumer: Object, clusters: int, problem: Problem | None) -> None:
        generation = int(metadata_of(consumer).get("generation") or 0)
        if problem is None:
            published = Condition(PUBLISHED, TRUE, "AllPublished", "", generation)
        else:
            published = Condition(PUBLISHED, FALSE, problem.reason, problem.message, generation)
        before = find_at(consumer, "status", "conditions")
        changed = set_condition(before, published, self._clock.now())
        status = {
            "observedGeneration": generation,
            "clusters": clusters,
            "conditions": changed.conditions,
        }
        path = ResourcePath(CLUSTER_CONSUMERS, name=name_of(consumer))
        await commit(self._hub, path, consumer, {**consumer, "status": status})
        if changed.is_changed and problem is not None:
            self._events.record(consumer, problem.reason, problem.message, is_warning=True)

    def all_consumers(self, _: Update) -> Iterable[Request]:
        """Map a change of a cluster to every consumer: one may be told of it no longer."""
        return [request_for(key) for key in self._consumers.cache]


_FORBIDDEN: Final = "CredentialsForbidden"
_NO_ACCOUNT: Final = "ServiceAccountNotFound"


def seconds_left(secret: Object, now: float) -> float:
    """Return for how long a Secret says that its token is good; nonsense says nothing."""
    try:
        return parse_time(annotations_of(secret).get(RENEWS, "")) - now
    except MalformedTimestamp:
        return 0.0


def token_request(secret: Object, seconds: int) -> Object:
    """Return a request for a token that ends with a Secret, or after its time."""
    bound = {"apiVersion": "v1", "kind": "Secret", "name": name_of(secret), "uid": uid_of(secret)}
    return {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": seconds, "boundObjectRef": bound},
    }


def merged(live: Object, desired: Object) -> Object:
    """Return an object as it is there, with the labels and the spec that it should have."""
    metadata = {**metadata_of(live), "labels": labels_of(desired)}
    spec = {"spec": desired["spec"]} if "spec" in desired else {}
    return {**live, **spec, "metadata": metadata}


def taken(path: ResourcePath) -> Problem:
    """Return that somebody else made an object of this name."""
    kind = "Secret" if path.resource.resource == "secrets" else "ClusterProfile"
    text = f"{kind} {path.key} is not this consumer's: delete or rename it, or exclude the cluster"
    return Problem("NameTaken", text)


def forbidden(consumer: Consumer, error: Forbidden) -> Problem:
    """Return what the controllers must be allowed to do first."""
    text = f"{error}. Let the controllers give tokens in namespace {consumer.namespace}"
    return Problem(_FORBIDDEN, f"{text}: docs/guides/cluster-consumers.md says how")


def is_described_differently(update: Update) -> bool:
    """Whether a cluster came, went, or has become another in what consumers are told of it."""
    before, after = update.decode_before(), update.decode_after()
    if before is None or after is None:
        return True
    return _facts(before) != _facts(after)


def _facts(cluster: Object) -> tuple[object, ...]:
    ready = find_condition(find_at(cluster, "status", "conditions"), "Ready") or {}
    said = [ready.get(each) for each in ("status", "reason", "message")]
    version = find_at(cluster, "status", "kubernetesVersion")
    properties = (properties_of(cluster), reported_properties(cluster))
    return traits_of(cluster), is_being_deleted(cluster), said, version, properties


def consumer_of(update: Update) -> Iterable[Request]:
    """Map something that was written for a consumer to that one."""
    for each in (update.decode_before(), update.decode_after()):
        name = labels_of(each or {}).get(CONSUMER_LABEL)
        if name:
            yield Request(name)
