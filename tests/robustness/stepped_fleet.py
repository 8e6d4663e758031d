"""A fleet in one process that goes step by step, on clocks that the test turns.

    hub            objects in memory; controllers follow them late, each in an order of its own
    controllers    the product's scheduler, evictions and Works
    west ... south a store each, with an agent: the product's lease and what it stops by it;
                   in every other round of seeds one is reached by push, with a watchdog
    gateway        the product's witness: reaches the Push member when the controllers do not

A run is decided by its seed, takes a second, and is judged after every single step: where copies
run is what the stores of the members say. What is played here is what decides nothing: that a Work
becomes a copy, that a silent cluster is not ready, that reports reach the binding.
"""

import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
from tests.component.works_site import DeploymentCaches

from clusterspace.apis import stamps
from clusterspace.apis.clusters import CLUSTER_NAMESPACE, CLUSTERS, WORKS, execution_namespace
from clusterspace.apis.exclusive import (
    EXCLUSIVE,
    LEASED,
    STOPS_AFTER,
    exclusiveness_of_work,
    promise_text,
)
from clusterspace.apis.works import (
    RESOURCE_BINDINGS,
    cluster_of,
    clusters_of,
    identifier_of,
    manifests_of,
    reference_to,
)
from clusterspace.client.requests import ResourcePath, key_of, resource_path_of
from clusterspace.client.resources import (
    EVERYTHING,
    DeleteOptions,
    ListOptions,
    PatchType,
    WriteOptions,
    read_raw_object,
)
from clusterspace.client.watch import Batch, EventType, ObjectChange
from clusterspace.controllers.controller import Reconciler, Request, Watch, request_for
from clusterspace.controllers.events import EventRecorder
from clusterspace.controllers.informers import Informer, Update
from clusterspace.controllers.leases import LEASES
from clusterspace.errors import (
    AlreadyExists,
    ApiError,
    ClusterError,
    ClusterUnreachable,
    Conflict,
    NotFound,
)
from clusterspace.fleet.execution.exclusive import CopyStops, ExclusiveCopies, HubLease
from clusterspace.fleet.membership.leases import RenewalSettings, StopPromise
from clusterspace.fleet.membership.watchdogs import WatchdogRenewal, Watchdogs
from clusterspace.fleet.membership.witnesses import Witness
from clusterspace.fleet.propagation.eviction.controller import Eviction
from clusterspace.fleet.propagation.eviction.decisions import EvictionSettings, tasks_of
from clusterspace.fleet.propagation.scheduler.controller import Scheduler
from clusterspace.fleet.propagation.statuses import reports_in, with_reports
from clusterspace.fleet.propagation.works.controller import BindingWorks
from clusterspace.kube.objects import (
    Object,
    finalizers_of,
    find_at,
    is_being_deleted,
    labels_of,
    metadata_of,
    name_of,
    namespace_of,
    resource_version_of,
    uid_of,
    with_metadata,
    with_value,
)
from clusterspace.kube.selectors import parse_label_selector
from clusterspace.kube.times import format_micro_time, format_time
from clusterspace.testing.builders import DEPLOYMENTS, deployment
from clusterspace.testing.clocks import ManualClock

LEASE_SECONDS = 20.0
MARGIN_SECONDS = 15.0
UNKNOWN_AFTER = 4.0
QUIET_SECONDS = 3.0
ROOM = 4
MEMBERS = ("west", "east", "north", "south")
EXCLUSIVES = ("ledger-0", "ledger-1", "ledger-2")
AVAILABLES = ("web-0", "web-1", "web-2")
SILENT: Object = {"key": "example.com/silent", "effect": "NoExecute"}
PLACEMENT: Object = {
    "spreadConstraints": [{"spreadByField": "cluster", "minGroups": 1, "maxGroups": 1}],
    "replicaScheduling": {
        "replicaSchedulingType": "Divided",
        "replicaDivisionPreference": "Aggregated",
    },
}
EVICTIONS = EvictionSettings(
    is_on=True,
    each_second=100,
    grace_seconds=10,
    settle_seconds=2,
    quiet_seconds=QUIET_SECONDS,
    margin_seconds=MARGIN_SECONDS,
)

CUT, ONE_WAY, FLAPS, KILLED, FROZEN, NEW_LEADER, PAUSED, JUMP, DEAD, MOST_CUT, LIES = FAULTS = (
    "cut", "one way", "flaps", "killed", "frozen", "new leader", "paused", "clock jump", "dead",
    "most cut", "lies",
)  # fmt: skip
LEADER_CUT = "cut off from the leader alone"
"""Instead of CUT, in every second round with a Push member: others still reach it."""


class Objects:
    """The objects of one server, in memory, with a log of all that was written."""

    def __init__(self) -> None:
        self._stored: dict[tuple[str, str], bytes] = {}
        self.log: list[tuple[str, str, bytes, bool]] = []
        """Resource, key, the object as it is or last was, and whether it is gone."""
        self._versions = itertools.count(1)

    def find(self, place: ResourcePath) -> Object | None:
        raw = self._stored.get((str(place.resource), place.key))
        return None if raw is None else msgspec.json.decode(raw)

    def listed(self, place: ResourcePath, selector: str = "") -> list[Object]:
        matches = parse_label_selector(selector).matches if selector else lambda _labels: True
        found = [
            msgspec.json.decode(raw)
            for (resource, _), raw in sorted(self._stored.items())
            if resource == str(place.resource)
        ]
        return [
            each
            for each in found
            if place.namespace in ("", namespace_of(each)) and matches(labels_of(each))
        ]

    def put(self, place: ResourcePath, kube_object: Object) -> Object:
        before = self.find(place)
        version = str(next(self._versions))
        generation = int(find_at(before or {}, "metadata", "generation") or 0)
        if before is None or before.get("spec") != kube_object.get("spec"):
            generation += 1
        uid = uid_of(before) if before else f"uid-{version}"
        made = with_metadata(kube_object, uid=uid, resourceVersion=version, generation=generation)
        if is_being_deleted(made) and not finalizers_of(made):
            return self.drop(place, made)
        self._write(place, made, is_gone=False)
        return made

    def drop(self, place: ResourcePath, last: Object) -> Object:
        del self._stored[str(place.resource), place.key]
        gone = with_metadata(last, resourceVersion=str(next(self._versions)))
        self.log.append((str(place.resource), place.key, msgspec.json.encode(gone), True))
        return gone

    def _write(self, place: ResourcePath, made: Object, *, is_gone: bool) -> None:
        raw = msgspec.json.encode(made)
        self._stored[str(place.resource), place.key] = raw
        self.log.append((str(place.resource), place.key, raw, is_gone))


class Line:
    """A client of a server, over a line that the test cuts: both ways, or for answers alone."""

    def __init__(self, objects: Objects, clock: ManualClock, cluster: str) -> None:
        self.objects = objects
        self.is_open = self.answers = True
        self._clock = clock
        self._cluster = cluster

    async def get(self, place: ResourcePath) -> Object:
        if (found := await self.find(place)) is None:
            raise NotFound(f"{place} not found")
        return found

    async def find(self, place: ResourcePath) -> Object | None:
        return self._answer(lambda: self.objects.find(place))

    async def list_objects(
        self, place: ResourcePath, options: ListOptions = EVERYTHING
    ) -> list[Object]:
        return self._answer(lambda: self.objects.listed(place, options.label_selector))

    async def create(
        self, place: ResourcePath, kube_object: Object, options: WriteOptions | None = None
    ) -> Object:
        path = ResourcePath(
            place.resource, place.namespace or namespace_of(kube_object), name_of(kube_object)
        )

        def write() -> Object:
            if self.objects.find(path) is not None:
                raise AlreadyExists(f"{path} already exists")
            return self.objects.put(path, kube_object)

        return self._answer(write)

    async def update(
        self, place: ResourcePath, kube_object: Object, options: WriteOptions | None = None
    ) -> Object:
        def write() -> Object:
            self._require(place, resource_version_of(kube_object))
            return self.objects.put(place, kube_object)

        return self._answer(write)

    async def patch(
        self,
        place: ResourcePath,
        patch_type: PatchType,
        patch: Any,
        options: WriteOptions | None = None,
    ) -> Object:
        path = place.with_subresource("")

        def write() -> Object:
            before = self._require(path, str(find_at(patch, "metadata", "resourceVersion") or ""))
            return self.objects.put(path, merged(before, patch))

        return self._answer(write)

    async def apply(
        self, place: ResourcePath, kube_object: Object, options: WriteOptions | None = None
    ) -> Object:
        raise NotImplementedError

    async def delete(self, place: ResourcePath, options: DeleteOptions) -> Object:
        def write() -> Object:
            before = self.objects.find(place)
            if before is None or uid_of(before) != options.uid:
                raise NotFound(f"{place} not found")
            if not finalizers_of(before):
                return self.objects.drop(place, before)
            if is_being_deleted(before):
                return before
            going = with_metadata(before, deletionTimestamp=format_time(self._clock.now()))
            return self.objects.put(place, going)

        return self._answer(write)

    def _require(self, place: ResourcePath, version: str) -> Object:
        before = self.objects.find(place)
        if before is None:
            raise NotFound(f"{place} not found")
        if version and resource_version_of(before) != version:
            raise Conflict(f"{place} is another by now")
        return before

    def _answer(self, work: Callable[[], Any]) -> Any:
        if not self.is_open:
            raise ClusterUnreachable(self._cluster, "is cut off", was_sent=False)
        try:
            answer = work()
        except ApiError:
            if not self.answers:
                raise ClusterUnreachable(self._cluster, "no answer", was_sent=True) from None
            raise
        if not self.answers:
            raise ClusterUnreachable(self._cluster, "no answer", was_sent=True)
        return answer


def merged(before: Any, patch: Any) -> Any:
    """Return what a merge patch makes of a value."""
    if not isinstance(patch, dict):
        return patch
    after = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            after.pop(key, None)
        else:
            after[key] = merged(after.get(key), value)
    return after


class Controllers:
    """One life of the controllers: what they know of the hub comes late, in the order it was.

    They carry out the Works of Push members, too, and follow the watchdogs there.
    """

    def __init__(
        self, hub: Line, clock: ManualClock, random: Random, members: "dict[str, Member]"
    ) -> None:
        followed: Any = SimpleNamespace(
            cluster="hub", connection=SimpleNamespace(clock=clock, random=random)
        )
        self._hub = hub
        self._clock = clock
        self._random = random
        caches = DeploymentCaches(followed)
        client: Any = hub
        events = EventRecorder(client, component="test", clock=clock)
        self.reconcilers: tuple[Reconciler, ...] = (
            Scheduler(client, caches, events, clock),
            Eviction(client, caches, events, clock, EVICTIONS, self._is_failing),
            BindingWorks(client, caches, events, clock, margin_seconds=MARGIN_SECONDS),
        )

        async def reach(cluster: Object) -> Any:
            return members[name_of(cluster)].line

        self._members = members
        self._works: dict[str, list[Object]] = {}
        self.watchdogs = Watchdogs(client, caches, reach, clock)
        list(self.watchdogs.watches())
        self._informers: list[Informer] = list(caches._informers.values())
        self._read = dict.fromkeys(range(len(self._informers)), 0)
        for reconciler in self.reconcilers:
            for watch in reconciler.watches():
                watch.source.add_handler(lambda update, watch=watch: handle(watch, update))
        self.hear(lag=0)

    def hear(self, lag: int) -> None:
        """Take in what the hub has written, but for up to `lag` of its last writes."""
        for number, informer in enumerate(self._informers):
            end = max(len(self._hub.objects.log) - self._random.randint(0, lag), self._read[number])
            changes: list[ObjectChange] = []
            for resource, key, raw, is_gone in self._hub.objects.log[self._read[number] : end]:
                if resource != str(informer.path.resource):
                    continue
                if informer.path.namespace not in ("", key.rpartition("/")[0]):
                    continue
                kind = EventType.DELETED if is_gone else EventType.MODIFIED
                changes.append(ObjectChange(kind, read_raw_object(raw)))
            self._read[number] = end
            informer._take(Batch(tuple(changes), is_whole=True))
            informer._follower.last_heard = self._clock.monotonic()

    def _is_failing(self, name: str) -> bool:
        """Whether a Push member did not answer this second's look at its health."""
        member = self._members[name]
        is_reached = member.line.is_open and member.line.answers
        return isinstance(member, PushMember) and not is_reached

    async def push(self, name: str) -> None:
        """Look at the watchdog of a Push member, and carry out its Works."""
        member, hub = self._members[name], self._hub
        with suppress(ApiError, ClusterError):
            await self.watchdogs.reconcile(Request(name))
        there: Any = member.line
        here: Any = hub
        lease = self.watchdogs.lease_of(name)
        copies = ExclusiveCopies(here, there, lease, self._clock, name)
        works = self._works.get(name, [])
        space = ResourcePath(WORKS, execution_namespace(name))
        self._works[name] = await hub.list_objects(space)
        for work in works:
            with suppress(ApiError, ClusterError):
                await follow(work, hub, member.line, copies)

    def steps(self) -> list[tuple[Reconciler, Request]]:
        """Return everything that could be looked at, in an order of this moment's own."""
        bindings = self._hub.objects.listed(ResourcePath(RESOURCE_BINDINGS))
        requests = [request_for(key_of(namespace_of(e), name_of(e))) for e in bindings]
        steps = [(each, request) for each in self.reconcilers for request in requests]
        self._random.shuffle(steps)
        return steps


def handle(watch: Watch, update: Update) -> None:
    if watch.when is None or watch.when(update):
        list(watch.to(update))


class Member:
    """A member and its agent, with a clock of its own."""

    def __init__(self, name: str, hub: Objects, random: Random) -> None:
        self.name = name
        self.clock = ManualClock()
        self.store = Objects()
        self.line = Line(hub, self.clock, "hub")
        self._local = Line(self.store, self.clock, name)
        self._random = random
        self._works: list[Object] = []
        self.is_dead = False
        self.lies = False
        self.busy_until = 0
        """The step until which its agent does nothing: frozen, or being started again."""
        self.is_seen_elsewhere = False
        """Whether others than the controllers reach it, whatever becomes of the line."""
        self.start()

    def start(self) -> None:
        """Start the agent, which knows nothing of what was before."""
        self.lease = HubLease(self.clock, LEASE_SECONDS)
        hub: Any = self.line
        member: Any = self._local
        self.copies = ExclusiveCopies(hub, member, self.lease, self.clock, self.name)
        self._works = []

    def running(self) -> dict[str, int]:
        """Return the copies that run, with their replicas."""
        if self.is_dead:
            return {}
        found = self.store.listed(ResourcePath(DEPLOYMENTS))
        counts = {name_of(each): int(find_at(each, "spec", "replicas") or 0) for each in found}
        return {name: count for name, count in counts.items() if count}

    async def step(self) -> None:
        """Renew the lease, stop what must not run, and bring copies to what Works say."""
        sent = self.clock.monotonic()
        try:
            await self._renew()
            self.lease.heard(sent)
        except (ApiError, ClusterError):
            pass
        if self.lease.seconds_left <= 0:
            await self.copies.stop_all()
        # What it acts on is what it heard before: the next look is for the next step.
        works = self._works
        try:
            space = ResourcePath(WORKS, execution_namespace(self.name))
            self._works = await self.line.list_objects(space)
        except (ApiError, ClusterError):
            pass
        for work in works:
            try:
                await follow(work, self.line, self._local, self.copies)
            except (ApiError, ClusterError):
                continue

    async def _renew(self) -> None:
        path = ResourcePath(LEASES, CLUSTER_NAMESPACE, self.name)
        moment = format_micro_time(self.clock.now())
        lease = await self.line.get(path)
        renewed = with_value(lease, moment, "spec", "renewTime")
        noted = {STOPS_AFTER: promise_text(LEASE_SECONDS, moment)}
        await self.line.update(path, with_metadata(renewed, annotations=noted))


class Tunnelled:
    """A Pull member that is reached through the tunnel of its agent."""

    async def exchange(self, request: Any) -> Any:
        return SimpleNamespace(status=200)


class PushMember(Member):
    """A member that the controllers reach, with a watchdog; `line` is the way to it."""

    def __init__(self, name: str, hub: Objects, random: Random) -> None:
        super().__init__(name, hub, random)
        self.line = Line(self.store, self.clock, name)

    def start(self) -> None:
        """Start the watchdog, which knows nothing of what was before."""
        member: Any = self._local
        self.lease = HubLease(self.clock, LEASE_SECONDS, lambda: self._renewal.is_counted_on)
        promise = StopPromise(LEASE_SECONDS, self.lease.heard)
        self._renewal = WatchdogRenewal(member, promise, self.clock, RenewalSettings())
        self._stops = CopyStops(member, self.lease, self.clock, self.name)

    async def exchange(self, request: Any) -> Any:
        """Answer the look of a witness."""
        is_reached = self.is_seen_elsewhere or (self.line.is_open and self.line.answers)
        if self.is_dead or not is_reached:
            raise ClusterUnreachable(self.name, "is cut off", was_sent=False)
        return SimpleNamespace(status=200)

    async def step(self) -> None:
        """Renew the lease, and stop what must not run."""
        await self._renewal.renew()
        if self.lease.seconds_left <= 0:
            await self._stops.stop_all()


async def follow(work: Object, hub: Line, member: Line, copies: ExclusiveCopies) -> None:
    """Bring a copy to what its Work says, and the Work to what became of it."""
    (manifest,) = manifests_of(work)
    path = ResourcePath(DEPLOYMENTS, namespace_of(manifest), name_of(manifest))
    copy = await member.find(path)
    place = resource_path_of(WORKS, work)
    if is_being_deleted(work):
        if copy is not None:
            await member.delete(path, DeleteOptions(uid_of(copy)))
        live = await hub.get(place)
        await hub.update(place, with_metadata(live, finalizers=None))
        return
    is_leased = exclusiveness_of_work(work) == LEASED
    if is_leased and not await copies.admits(work):
        return
    if copy is None:
        await member.create(path.collection, manifest)
    elif is_leased:
        await copies.restart(path)
    live = await hub.get(place)
    replicas = int(find_at(manifest, "spec", "replicas") or 0)
    status = {
        "conditions": [{"type": "Applied", "status": "True", "reason": "Done", "message": ""}],
        "manifestStatuses": [
            {
                "identifier": identifier_of(manifest, 0),
                "status": {"replicas": replicas, "readyReplicas": replicas},
                "health": "Healthy",
            }
        ],
    }
    if live.get("status") != status:
        await hub.update(place, {**live, "status": status})


@dataclass
class SteppedFleet:
    """The whole of it, with what was found to be wrong."""

    seed: int
    wrong: list[str] = field(default_factory=list[str])
    moves: int = 0
    now: int = 0

    def __post_init__(self) -> None:
        self.random = Random(self.seed)
        self.clock = ManualClock()
        self.hub = Objects()
        self.line = Line(self.hub, self.clock, "hub")
        # Every second time around all faults, one of the members is reached by the controllers.
        pushed = MEMBERS[self.seed % 4] if self.seed // len(FAULTS) % 2 else ""
        self.members = {
            name: (PushMember if name == pushed else Member)(name, self.hub, self.random)
            for name in MEMBERS
        }
        self._heard: dict[str, tuple[str, float]] = {}
        self._first: dict[str, set[str]] = {}
        self.paused_until = 0
        self.may_drop = False
        self.may_evict = True
        self.unconfirmed = ""
        """The member that the controllers alone do not reach, or of which nobody else says so."""
        self.chance = Random(f"witness {self.seed}")
        self.gateway_back_at = 0
        """The step until which the gateway does nothing."""
        for name in MEMBERS:
            self._join(name)
        for name in (*EXCLUSIVES, *AVAILABLES):
            self._place(name)
        self.controllers = Controllers(self.line, self.clock, self.random, self.members)
        hub: Any = Line(self.hub, self.clock, "hub")
        self.witness = Witness(
            hub,
            "gateway",
            "the gateway",
            lambda: self.hub.listed(ResourcePath(CLUSTERS)),
            self._reach_from_elsewhere,
            clock=self.clock,
            random=self.chance,
        )

    async def _reach_from_elsewhere(self, cluster: Object) -> Any:
        member = self.members[name_of(cluster)]
        if isinstance(member, PushMember):
            return member
        # Through its tunnel, which is open while its agent gets out.
        is_open = member.line.is_open and member.line.answers and not member.is_dead
        return Tunnelled() if is_open else None

    def _join(self, name: str) -> None:
        summary = {"allocatable": {"pods": str(ROOM)}, "allocated": {"pods": "0"}}
        served = [{"groupVersion": "apps/v1", "resources": [{"kind": "Deployment"}]}]
        cluster = {
            "apiVersion": "cluster.karmada.io/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": name},
            "spec": {
                "syncMode": "Push" if isinstance(self.members[name], PushMember) else "Pull",
                "id": name,
            },
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "apiEnablements": served,
                "resourceSummary": summary,
            },
        }
        self.hub.put(ResourcePath(CLUSTERS, name=name), cluster)
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": CLUSTER_NAMESPACE},
            "spec": {},
        }
        self.hub.put(ResourcePath(LEASES, CLUSTER_NAMESPACE, name), lease)

    def _place(self, name: str) -> None:
        made = deployment(name, replicas=1 if name in EXCLUSIVES else 2)
        made["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 0
        marks = {EXCLUSIVE: "true"} if name in EXCLUSIVES else {}
        path = ResourcePath(DEPLOYMENTS, "default", name)
        template = self.hub.put(path, with_metadata(made, annotations=marks))
        binding = {
            "apiVersion": "work.karmada.io/v1alpha2",
            "kind": "ResourceBinding",
            "metadata": {
                "name": f"{name}-deployment",
                "namespace": "default",
                "labels": {stamps.POLICY_ID: "a-policy", stamps.BINDING_ID: f"id-of-{name}"},
            },
            "spec": {
                "resource": reference_to(template),
                "replicas": find_at(template, "spec", "replicas"),
                "placement": PLACEMENT,
            },
        }
        self.hub.put(ResourcePath(RESOURCE_BINDINGS, "default", f"{name}-deployment"), binding)

    # -- one second ----------------------------------------------------------------------------

    async def tick(self) -> None:
        """Let a second pass: everybody acts once, in an order of this second's own."""
        self.now += 1
        self.clock.freeze(1.0)
        for each in self.members.values():
            each.clock.freeze(1.0)
        agents = [each for each in self.members.values() if not each.is_dead]
        self.random.shuffle(agents)
        for each in agents:
            if self.now >= each.busy_until:
                await each.step()
                self.judge(f"{each.name}'s agent")
        if self.now >= self.gateway_back_at:
            await self.witness.look()
        if self.now < self.paused_until:
            return
        self._monitor()
        self._report()
        self.controllers.hear(lag=6)
        for name, member in self.members.items():
            if isinstance(member, PushMember):
                await self.controllers.push(name)
                self.judge(f"the controllers on {name}")
        for reconciler, request in self.controllers.steps():
            before = self._tasks()
            try:
                await reconciler.reconcile(request)
            except (ApiError, ClusterError):
                continue
            self.judge(f"{reconciler.name} {request}")
            begun = self._tasks() - before
            if not self.may_evict and begun:
                self._say("something is evicted while most of the fleet is silent")
            if self.unconfirmed in {cluster for _, cluster in begun}:
                self._say(f"something leaves {self.unconfirmed}, which one place takes for dead")

    async def pass_seconds(self, seconds: int) -> None:
        for _ in range(seconds):
            await self.tick()

    def judge(self, after: str) -> None:
        """Look at where copies run, and where the hub has placed them."""
        running: dict[str, list[str]] = {}
        for member in self.members.values():
            for name in member.running():
                running.setdefault(name, []).append(member.name)
        for name in EXCLUSIVES:
            if len(running.get(name, ())) > 1:
                self._say(f"{name} runs on {running[name]} after a step of {after}")
        for name in AVAILABLES:
            if name in running:
                self._first.setdefault(name, set()).update(running[name])
            elif name in self._first and not self.may_drop:
                self._say(f"{name} runs nowhere after a step of {after}")
        placed = Counter[str]()
        for binding in self.hub.listed(ResourcePath(RESOURCE_BINDINGS)):
            placed.update({each.name: each.replicas for each in clusters_of(binding)})
        full = {name: count for name, count in placed.items() if count > ROOM}
        if full:
            self._say(f"{full} are placed on clusters with room for {ROOM} after {after}")

    def _say(self, what: str) -> None:
        if not any(each.startswith(what.partition(" after ")[0]) for each in self.wrong):
            self.wrong.append(what)

    def _tasks(self) -> set[tuple[str, str]]:
        return {
            (name_of(binding), str(task.get("fromCluster")))
            for binding in self.hub.listed(ResourcePath(RESOURCE_BINDINGS))
            for task in tasks_of(binding)
        }

    def _monitor(self) -> None:
        """Have clusters whose agents are not heard say so, and be tainted."""
        for name in MEMBERS:
            lease = self.hub.find(ResourcePath(LEASES, CLUSTER_NAMESPACE, name)) or {}
            version, seen = self._heard.get(name, ("", 0.0))
            member = self.members[name]
            heard = resource_version_of(lease)
            if isinstance(member, PushMember):
                is_reached = member.line.is_open and member.line.answers and not member.is_dead
                heard = str(self.now) if is_reached else version
            if version != heard:
                version, seen = heard, self.clock.monotonic()
                self._heard[name] = version, seen
            is_silent = self.clock.monotonic() - seen >= UNKNOWN_AFTER
            path = ResourcePath(CLUSTERS, name=name)
            cluster = self.hub.find(path) or {}
            ready = [{"type": "Ready", "status": "Unknown" if is_silent else "True"}]
            desired = with_value(cluster, ready, "status", "conditions")
            desired = with_value(desired, [SILENT] if is_silent else [], "spec", "taints")
            if desired != cluster:
                self.hub.put(path, desired)

    def _report(self) -> None:
        """Bring what Works report to bindings, and now and then what is free to clusters."""
        works = self.hub.listed(ResourcePath(WORKS))
        for binding in self.hub.listed(ResourcePath(RESOURCE_BINDINGS)):
            label = labels_of(binding)[stamps.BINDING_ID]
            own = [each for each in works if labels_of(each).get(stamps.BINDING_ID) == label]
            desired = with_reports(binding, reports_in(own), self.clock.now())
            if desired != binding:
                self.hub.put(ResourcePath(RESOURCE_BINDINGS, "default", name_of(binding)), desired)
        if self.now % 5:
            return
        for member in self.members.values():
            if member.line.is_open and not member.is_dead:
                path = ResourcePath(CLUSTERS, name=member.name)
                used = {"pods": str(sum(member.running().values()))}
                cluster = self.hub.find(path) or {}
                where = ("status", "resourceSummary", "allocated")
                if find_at(cluster, *where) != used:
                    self.hub.put(path, with_value(cluster, used, *where))

    # -- a run -----------------------------------------------------------------------------------

    def is_settled(self) -> bool:
        """Whether everything runs where it is placed, and nothing is left anywhere."""
        works = self.hub.listed(ResourcePath(WORKS))
        for name in (*EXCLUSIVES, *AVAILABLES):
            path = ResourcePath(RESOURCE_BINDINGS, "default", f"{name}-deployment")
            binding = self.hub.find(path) or {}
            places = {each.name for each in clusters_of(binding)}
            runs = {m.name for m in self.members.values() if name in m.running()}
            of = {cluster_of(e) for e in works if name_of(manifests_of(e)[0]) == name}
            if len(places) != 1 or not places == runs == of or tasks_of(binding):
                return False
        return True

    def places(self) -> dict[str, set[str]]:
        return {
            name_of(each): {one.name for one in clusters_of(each)}
            for each in self.hub.listed(ResourcePath(RESOURCE_BINDINGS))
        }

    async def until_settled(self, seconds: int) -> bool:
        for _ in range(seconds):
            await self.tick()
            if self.is_settled():
                return True
        return False

    async def play(self) -> str:
        """Play the run of this seed; return what was wrong, or nothing."""
        random = self.random
        fault = FAULTS[self.seed % len(FAULTS)]
        if not await self.until_settled(40):
            return f"seed {self.seed}: it never began: {self._state()}"
        before = self.places()
        victim = self.members[random.choice(MEMBERS)]
        pushed = [each for each in self.members.values() if isinstance(each, PushMember)]
        if fault == CUT and self.seed // len(FAULTS) % 4 == 3:
            (victim,) = pushed
            victim.is_seen_elsewhere = True
            self.unconfirmed, fault = victim.name, LEADER_CUT
        elif victim in pushed and self.chance.random() < 0.3:
            # Nobody is there to agree: for a while, or until all is well again.
            self.gateway_back_at = self.now + self.chance.choice((5, 20, 40, 400))
        struck = [victim]
        if fault == MOST_CUT:
            struck = random.sample(list(self.members.values()), 3)
            self.may_evict = False
        await self._strike(fault, struck)
        await self.pass_seconds(random.randint(1, 70))
        self.moves += self.places() != before
        self._heal()
        await self.tick()
        self.may_evict = True
        self.unconfirmed = ""
        if not await self.until_settled(150):
            self.wrong.append(f"not settled: {self._state()}")
        if not self.wrong:
            return ""
        return f"seed {self.seed}, {victim.name} {fault}: {'; '.join(self.wrong)}"

    async def _strike(self, fault: str, struck: list[Member]) -> None:
        random, victim = self.random, struck[0]
        if fault == FLAPS:
            for _ in range(random.randint(2, 6)):
                victim.line.is_open = random.random() < 0.5
                victim.line.answers = random.random() < 0.5
                await self.pass_seconds(random.randint(1, 6))
        for each in struck:
            each.line.is_open = fault == ONE_WAY
            each.line.answers = False
        if fault == LIES:
            # It is heard, and its reports are of copies that it does not run.
            victim.line.is_open = victim.line.answers = True
            self.may_drop = True
            for copy in victim.store.listed(ResourcePath(DEPLOYMENTS)):
                if name_of(copy) in AVAILABLES:
                    path = ResourcePath(DEPLOYMENTS, "default", name_of(copy))
                    victim.store.put(path, with_value(copy, 0, "spec", "replicas"))
            victim.lies = True
        elif fault == KILLED:
            await self.pass_seconds(random.randint(0, 25))
            victim.busy_until = self.now + random.randint(1, 4)
            victim.start()
        elif fault == FROZEN:
            await self.pass_seconds(random.randint(0, 25))
            victim.busy_until = self.now + random.randint(1, 12)
        elif fault == NEW_LEADER:
            await self.pass_seconds(random.randint(0, 45))
            self.controllers = Controllers(self.line, self.clock, random, self.members)
            self._heard.clear()
        elif fault == PAUSED:
            await self.pass_seconds(random.randint(0, 25))
            self.paused_until = self.now + random.randint(1, 60)
        elif fault == JUMP:
            for clock in (self.clock, victim.clock):
                clock.jump(random.choice((-86_400.0, -5.0, 5.0, 86_400.0)))
        elif fault == DEAD:
            self.may_drop = True
            victim.is_dead = True

    def _heal(self) -> None:
        for member in self.members.values():
            if member.is_dead:
                # It comes back as a machine whose disk was lost.
                member.store = Objects()
                fresh = type(member)(member.name, self.hub, self.random)
                fresh.clock = member.clock
                fresh.start()
                self.members[member.name] = fresh
            elif member.lies:
                for copy in member.store.listed(ResourcePath(DEPLOYMENTS)):
                    if name_of(copy) in AVAILABLES:
                        path = ResourcePath(DEPLOYMENTS, "default", name_of(copy))
                        member.store.put(path, with_value(copy, 2, "spec", "replicas"))
            self.members[member.name].line.is_open = True
            self.members[member.name].line.answers = True
            self.members[member.name].is_seen_elsewhere = False

    def _state(self) -> str:
        runs = {m.name: m.running() for m in self.members.values()}
        works = [
            (cluster_of(e), name_of(e), bool(metadata_of(e).get("deletionTimestamp")))
            for e in self.hub.listed(ResourcePath(WORKS))
        ]
        return f"placed {self.places()}, running {runs}, works {works}"
