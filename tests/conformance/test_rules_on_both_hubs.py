"""What our hub refuses by itself, a kube-apiserver that is the hub refuses too, in the same words.

One table of bad inputs, run on both. A kube-apiserver says before the sentence who said it: a
webhook, or a policy.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any

import pytest
import pytest_asyncio
from tests.flows.stages import resource_path_of

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.clusters import CLUSTERS, WORKS
from clusterspace.apis.fleet_placements import NAMESPACED
from clusterspace.apis.member_clusters import AGENT, KUBEFLEET
from clusterspace.apis.policies import PROPAGATION_POLICIES
from clusterspace.apis.staged_updates import NAMESPACED_RUNS
from clusterspace.apis.witnesses import LEASE_NAMESPACE, WitnessReport, lease_of
from clusterspace.apis.works import RESOURCE_BINDINGS
from clusterspace.apiserver.http.users import User
from clusterspace.apiserver.kubernetes_hub.reading import ServedKinds, build_state
from clusterspace.apiserver.kubernetes_hub.rules import ClaimedClusterRules
from clusterspace.apiserver.state import Admission
from clusterspace.client.endpoints import AddressRules
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, DeleteOptions, PatchType, WriteOptions
from clusterspace.client.settings import AuthInfo
from clusterspace.client.webhooks import Webhooks
from clusterspace.controllers.leases import LEASES
from clusterspace.errors import ApiError, Invalid
from clusterspace.fleet.membership import manifests
from clusterspace.kube.objects import Object, annotations_of, find_at, uid_of, with_value
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES
from clusterspace.testing.hubs import KUBERNETES, OURS, client_for_test, part_of_hub
from clusterspace.testing.stage import Fleet, running_fleet
from clusterspace.testing.steps import stop

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

TOKENS = 'jane-token,jane,jane,"devs"\n'
MEMBERS = GroupVersionResource("cluster.kubernetes-fleet.io", "v1", "memberclusters")
PLACEMENTS = GroupVersionResource(
    "placement.kubernetes-fleet.io", "v1", "clusterresourceplacements"
)
OVERRIDES = GroupVersionResource("policy.karmada.io", "v1alpha1", "overridepolicies")
RUNS = NAMESPACED_RUNS.runs
SNAPSHOTS = NAMESPACED.resource_snapshots
ROLES = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterroles")
BINDINGS = GroupVersionResource("rbac.authorization.k8s.io", "v1", "clusterrolebindings")
SAID_BY = re.compile(r'^admission webhook "[a-z.]+" denied the request: ')
DEPLOYMENT = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


@dataclass
class Hub:
    """One of the hubs, and who writes to it."""

    fleet: Fleet
    users: dict[str, ClusterClient]
    own_id: str

    @property
    def admin(self) -> ClusterClient:
        return self.users["admin"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hubs(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[dict[str, Hub]]:
    async with AsyncExitStack() as stack:

        async def start(kind: str) -> Hub:
            directory = tmp_path_factory.mktemp(kind)
            running = running_fleet(directory, tokens=TOKENS, hub_kind=kind)
            fleet = await stack.enter_async_context(running)
            as_jane = replace(fleet.hub.settings, identity=AuthInfo(token="jane-token"))
            controllers = part_of_hub(directory / "hub", "controllers")
            users = {"admin": fleet.hub.client}
            for name, settings in (("jane", as_jane), ("controllers", controllers)):
                users[name] = await stack.enter_async_context(client_for_test(settings))
            await prepare(fleet.hub.client)
            system = await fleet.hub.client.get(ResourcePath(NAMESPACES, "", "kube-system"))
            return Hub(fleet, users, uid_of(system))

        kubernetes = await start(KUBERNETES)  # first: it may skip
        yield {OURS: await start(OURS), KUBERNETES: kubernetes}


async def prepare(hub: ClusterClient) -> None:
    """Make what the table is about: a cluster, a policy, a binding, a Work, and who Jane is."""
    groups = ["work.karmada.io", "cluster.karmada.io", "cluster.kubernetes-fleet.io"]
    groups += [LEASES.group, RUNS.group]
    rules = [
        {"apiGroups": groups, "resources": ["*"], "verbs": ["get", "create", "update", "patch"]}
    ]
    subjects = [{"kind": "User", "name": "jane", "apiGroup": ROLES.group}]
    role_ref = {"apiGroup": ROLES.group, "kind": "ClusterRole", "name": "jane"}
    # Everything but the right to say where credentials go.
    rules[0]["resources"] = ["clusters", "memberclusters", "resourcebindings", "works", "leases"]
    rules[0]["resources"] += ["stagedupdateruns", "stagedupdateruns/status", "resourcesnapshots"]
    for place, body in (
        (ROLES, {"kind": "ClusterRole", "rules": rules}),
        (BINDINGS, {"kind": "ClusterRoleBinding", "subjects": subjects, "roleRef": role_ref}),
    ):
        named = {"apiVersion": place.api_version, "metadata": {"name": "jane"}}
        await hub.create(ResourcePath(place), {**named, **body})
    if await hub.find(ResourcePath(NAMESPACES, "", "karmada-cluster")) is None:
        await hub.create(ResourcePath(NAMESPACES), manifests.namespace("karmada-cluster"))
    for each in (cluster("west", "id-1"), policy("web"), binding("web"), work("web"), settings()):
        await hub.create(resource_path_of(each).collection, each)
    await hub.create(ResourcePath(RUNS, "default"), RUN)
    for _ in range(100):
        # A kube-apiserver learns of new roles and policies a moment later.
        if await may_write_works(hub):
            return
        await asyncio.sleep(0.1)


async def may_write_works(hub: ClusterClient) -> bool:
    place = ResourcePath(GroupVersionResource("authorization.k8s.io", "v1", "subjectaccessreviews"))
    attributes = {"group": "work.karmada.io", "resource": "works", "verb": "create"}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": "jane", "resourceAttributes": {**attributes, "namespace": "default"}},
    }
    return find_at(await hub.create(place, review), "status", "allowed") is True


def cluster(name: str, cluster_id: str = "", **spec: Any) -> Object:
    return {
        "apiVersion": CLUSTERS.api_version,
        "kind": "Cluster",
        "metadata": {"name": name},
        "spec": {"syncMode": "Push", **({"id": cluster_id} if cluster_id else {}), **spec},
    }


def policy(name: str, **spec: Any) -> Object:
    return {
        "apiVersion": PROPAGATION_POLICIES.api_version,
        "kind": "PropagationPolicy",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"resourceSelectors": [DEPLOYMENT], **spec},
    }


def binding(called: str, **about: Any) -> Object:
    return {
        "apiVersion": RESOURCE_BINDINGS.api_version,
        "kind": "ResourceBinding",
        "metadata": {"name": called, "namespace": "default"},
        "spec": {"resource": {**DEPLOYMENT, "namespace": "default", **about}},
    }


def work(name: str, *contents: Object) -> Object:
    return {
        "apiVersion": WORKS.api_version,
        "kind": "Work",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"workload": {"manifests": list(contents)}},
    }


def settings() -> Object:
    metadata = {"name": "settings", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"a": "1"}}


def member(name: str) -> Object:
    identity = {"kind": "User", "name": f"agent-{name}", "apiGroup": ROLES.group}
    return {
        "apiVersion": MEMBERS.api_version,
        "kind": "MemberCluster",
        "metadata": {"name": name},
        "spec": {"identity": identity},
    }


def placement(group: str, kind: str) -> Object:
    return {
        "apiVersion": PLACEMENTS.api_version,
        "kind": "ClusterResourcePlacement",
        "metadata": {"name": "bad"},
        "spec": {"resourceSelectors": [{"group": group, "version": "v1", "kind": kind}]},
    }


def override(path: str) -> Object:
    change = {"path": path, "operator": "replace", "value": "x"}
    return {
        "apiVersion": OVERRIDES.api_version,
        "kind": "OverridePolicy",
        "metadata": {"name": "bad", "namespace": "default"},
        "spec": {
            "resourceSelectors": [DEPLOYMENT],
            "overrideRules": [{"overriders": {"plaintext": [change]}}],
        },
    }


ROLE: Object = {
    "apiVersion": ROLES.api_version,
    "kind": "ClusterRole",
    "metadata": {"name": "all"},
    "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}],
}

RUN: Object = {
    "apiVersion": RUNS.api_version,
    "kind": "StagedUpdateRun",
    "metadata": {"name": "web-1", "namespace": "default"},
    "spec": {"placementName": "web", "stagedRolloutStrategyName": "rings", "state": "Initialize"},
}

SNAPSHOT: Object = {
    "apiVersion": SNAPSHOTS.api_version,
    "kind": "ResourceSnapshot",
    "metadata": {"name": "mine", "namespace": "default"},
    "spec": {"selectedResources": [settings()]},
}

Act = Callable[[Hub, ClusterClient], Awaitable[Any]]


def creating(body: Object, place: GroupVersionResource | None = None, namespace: str = "") -> Act:
    async def act(_: Hub, user: ClusterClient) -> None:
        where = (
            ResourcePath(place, namespace)
            if place is not None
            else resource_path_of(body).collection
        )
        # Should it be let in, the next row must not find it there.
        await user.create(where, body, WriteOptions(is_dry_run=True))

    return act


async def creating_witness(_: Hub, user: ClusterClient) -> None:
    place = ResourcePath(LEASES, LEASE_NAMESPACE)
    await user.create(place, WITNESS, WriteOptions(is_dry_run=True))


async def telling_success(hub: Hub, user: ClusterClient) -> None:
    place = ResourcePath(RUNS, "default", "web-1")
    succeeded = {"type": "Succeeded", "status": "True", "reason": "Done", "message": ""}
    succeeded["lastTransitionTime"] = "2026-01-01T00:00:00Z"
    forged = with_value(await hub.admin.get(place), [succeeded], "status", "conditions")
    await user.update(place.with_subresource("status"), forged, WriteOptions(is_dry_run=True))


def changing(place: ResourcePath, change: Callable[[Object], Object]) -> Act:
    async def act(hub: Hub, user: ClusterClient) -> None:
        existing = await hub.admin.get(place)
        await user.update(place, change(existing), WriteOptions(is_dry_run=True))

    return act


def patching(place: ResourcePath, patch: Object) -> Act:
    async def act(hub: Hub, user: ClusterClient) -> None:
        version = find_at(await hub.admin.get(place), "metadata", "resourceVersion")
        with_version = {
            **patch,
            "metadata": {**patch.get("metadata", {}), "resourceVersion": version},
        }
        await user.patch(place, PatchType.MERGE, with_version, WriteOptions(is_dry_run=True))

    return act


def deleting(place: ResourcePath) -> Act:
    async def act(hub: Hub, user: ClusterClient) -> None:
        uid = uid_of(await hub.admin.get(place))
        await user.delete(place, DeleteOptions(uid, is_dry_run=True))

    return act


async def hub_as_member(hub: Hub, user: ClusterClient) -> None:
    await creating(cluster("itself", hub.own_id))(hub, user)


WEST = ResourcePath(CLUSTERS, name="west")
WEB_BINDING = ResourcePath(RESOURCE_BINDINGS, "default", "web")
WEB_POLICY = ResourcePath(PROPAGATION_POLICIES, "default", "web")
WEB_WORK = ResourcePath(WORKS, "default", "web")
SETTINGS = ResourcePath(CONFIG_MAPS, "default", "settings")
WITNESS = lease_of(WitnessReport("jane", "here", frozenset({"a-uid"}), frozenset(), 1, 1), 1.7e9)
POLICY_ID = "propagationpolicy.karmada.io/permanent-id"
SECRET = {"apiVersion": "v1", "kind": "Secret", "name": "tls"}
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "1"}


def of_spec(value: Any, *path: str) -> Callable[[Object], Object]:
    return lambda existing: with_value(existing, value, "spec", *path)


@dataclass(frozen=True)
class Bad:
    """Who does what, and what is said of it."""

    what: str
    who: str
    act: Act
    reason: str
    says: str
    is_same_text: bool = True
    """Whether all of the message is the same, but for who said it."""


TABLE = (
    Bad("a reserved name", "admin", creating(cluster("hub")), "Invalid", "is reserved"),
    Bad("a long name", "admin", creating(cluster("w" * 49)), "Invalid", "no more than 48"),
    Bad(
        "another's Secret",
        "admin",
        creating(cluster("a-impersonator")),
        "Invalid",
        "must not end in",
    ),
    Bad(
        "a taken ID",
        "admin",
        creating(cluster("east", "id-1")),
        "Invalid",
        "cluster west has this ID",
    ),
    Bad(
        "the hub's own ID",
        "admin",
        hub_as_member,
        "Invalid",
        "it is the hub itself",
        is_same_text=False,
    ),
    Bad(
        "another ID",
        "admin",
        changing(WEST, of_spec("id-2", "id")),
        "Invalid",
        "field is immutable",
    ),
    Bad(
        "a taint twice",
        "admin",
        changing(WEST, of_spec([{"key": "a", "effect": "NoSchedule"}] * 2, "taints")),
        "Invalid",
        "spec.taints[1]",
    ),
    Bad(
        "a Secret elsewhere",
        "admin",
        changing(WEST, of_spec({"namespace": "kube-system", "name": "x"}, "secretRef")),
        "Invalid",
        "spec.secretRef.namespace",
    ),
    Bad(
        "a metadata service",
        "admin",
        changing(WEST, of_spec("https://169.254.169.254", "apiEndpoint")),
        "Invalid",
        "spec.apiEndpoint",
    ),
    Bad(
        "where credentials go",
        "jane",
        changing(WEST, of_spec("https://10.0.0.9", "apiEndpoint")),
        "Forbidden",
        'has verb "update" on resource "clusters/credentials"',
    ),
    Bad(
        "a new cluster's address",
        "jane",
        creating(cluster("north", apiEndpoint="https://10.0.0.9")),
        "Forbidden",
        "says where the cluster's credentials go",
    ),
    Bad(
        "whose agent works there",
        "jane",
        patching(WEST, {"metadata": {"annotations": {AGENT: KUBEFLEET}}}),
        "Forbidden",
        "who carries out its Works",
    ),
    Bad(
        "two affinities",
        "admin",
        creating(
            policy(
                "bad",
                placement={
                    "clusterAffinity": {"clusterNames": ["west"]},
                    "clusterAffinities": [{"affinityName": "a", "clusterNames": ["west"]}],
                },
            )
        ),
        "Invalid",
        "spec.placement",
    ),
    Bad("a bad override", "admin", creating(override("no/slash")), "Invalid", "spec.overrideRules"),
    Bad(
        "another permanent ID",
        "admin",
        patching(WEB_POLICY, {"metadata": {"labels": {POLICY_ID: "mine"}}}),
        "Invalid",
        "field is immutable",
    ),
    Bad(
        "a binding elsewhere",
        "admin",
        creating(binding("bad", namespace="kube-system")),
        "Invalid",
        "spec.resource.namespace",
    ),
    Bad(
        "another subject",
        "admin",
        changing(WEB_BINDING, of_spec("api", "resource", "name")),
        "Invalid",
        "a binding is about one object",
    ),
    Bad(
        "a Secret sent out",
        "jane",
        creating(binding("tls", **SECRET)),
        "Forbidden",
        "may not get that",
    ),
    Bad(
        "rights in a Work",
        "jane",
        creating(work("bad", ROLE)),
        "Forbidden",
        "is attempting to grant RBAC permissions not currently held",
    ),
    Bad(
        "an owner that is gone",
        "jane",
        patching(WEB_WORK, {"metadata": {"ownerReferences": [OWNER]}}),
        "Forbidden",
        "",
        is_same_text=False,
    ),
    Bad(
        "a second way to join",
        "admin",
        creating(member("west"), MEMBERS),
        "Invalid",
        "a Cluster of this name was joined (Push)",
    ),
    Bad(
        "an invited identity",
        "jane",
        creating(member("north"), MEMBERS),
        "Forbidden",
        "says who is given the member's rights",
    ),
    Bad(
        "an unknown kind",
        "admin",
        creating(placement("example.com", "Widget"), PLACEMENTS),
        "Invalid",
        "the hub serves no Widget",
    ),
    Bad(
        "a namespaced kind",
        "admin",
        creating(placement("apps", "Deployment"), PLACEMENTS),
        "Invalid",
        "is namespaced: select its Namespace",
    ),
    Bad(
        "what a template says",
        "controllers",
        patching(SETTINGS, {"data": {"a": "2"}}),
        "Forbidden",
        "the controllers may mark it, and what it says is its author's",
    ),
    Bad(
        "which clusters answer",
        "jane",
        creating_witness,
        "Forbidden",
        "the Lease says which clusters answer, and others are left because of it",
        is_same_text=False,
    ),
    Bad(
        "what a run did",
        "jane",
        telling_success,
        "Forbidden",
        "the status of a run says what it did, and what it does next follows from that",
        is_same_text=False,
    ),
    Bad(
        "what a snapshot holds",
        "jane",
        creating(SNAPSHOT, SNAPSHOTS, "default"),
        "Forbidden",
        "a snapshot says what clusters are brought to",
        is_same_text=False,
    ),
    Bad(
        "a namespace of users",
        "controllers",
        deleting(ResourcePath(NAMESPACES, "", "karmada-cluster")),
        "Forbidden",
        "the controllers remove only what they made for members",
        is_same_text=False,
    ),
    Bad(
        "a role for all",
        "controllers",
        creating({**ROLE, "metadata": {"name": "fleet-role-x"}}, ROLES),
        "Forbidden",
        "is attempting to grant RBAC permissions not currently held",
        is_same_text=False,
    ),
)


async def test_the_parts_say_which_clusters_answer(hubs: dict[str, Hub]) -> None:
    for hub in hubs.values():
        for part in ("controllers", "fleet"):
            settings = part_of_hub(hub.fleet.directory / "hub", part)
            async with client_for_test(settings) as client:
                report = WitnessReport(part, part)
                place = ResourcePath(LEASES, LEASE_NAMESPACE)
                made = await client.create(place, lease_of(report, 1.7e9))
                renewed = with_value(made, "2026-01-01T00:00:00.000000Z", "spec", "renewTime")
                await client.update(place.named(report.lease_name), renewed)


@pytest.mark.parametrize("bad", TABLE, ids=lambda bad: bad.what)
async def test_a_bad_input_is_refused_alike(hubs: dict[str, Hub], bad: Bad) -> None:
    said: dict[str, tuple[str, str]] = {}
    for kind, hub in hubs.items():
        with pytest.raises(ApiError) as refused:
            await bad.act(hub, hub.users[bad.who])
        error = refused.value
        said[kind] = (error.reason, SAID_BY.sub("", error.message))
    for kind, (reason, message) in said.items():
        assert reason == bad.reason, (kind, message)
        assert bad.says in message, (kind, message)
    if bad.is_same_text:
        assert said[OURS] == said[KUBERNETES]


async def test_two_clusters_with_one_id_at_the_same_moment_are_one(hubs: dict[str, Hub]) -> None:
    for hub in hubs.values():

        async def create(name: str, hub: Hub = hub) -> str:
            try:
                await hub.admin.create(ResourcePath(CLUSTERS), cluster(name, "id-9"))
            except ApiError as error:
                return error.message
            return ""

        said = await asyncio.gather(*(create(f"twin-{number}") for number in range(4)))
        assert sorted("has this ID" in each for each in said) == [False, True, True, True], said


async def test_what_is_left_out_is_completed_alike(hubs: dict[str, Hub]) -> None:
    completed: dict[str, Object] = {}
    for kind, hub in hubs.items():
        stored = await hub.admin.get(WEB_POLICY)
        assert find_at(stored, "metadata", "labels", POLICY_ID)
        completed[kind] = {
            "spec": stored["spec"],
            "finalizers": find_at(stored, "metadata", "finalizers"),
        }
        west = await hub.admin.get(WEST)
        completed[kind]["models"] = find_at(west, "spec", "resourceModels")
    assert completed[OURS] == completed[KUBERNETES]


async def test_a_secret_is_tied_to_where_its_cluster_is(hubs: dict[str, Hub]) -> None:
    for hub in hubs.values():
        place = manifests.secret_path("west")
        owner = {
            "apiVersion": CLUSTERS.api_version,
            "kind": "Cluster",
            "name": "west",
            "uid": uid_of(await hub.admin.get(WEST)),
        }
        metadata = {"name": "west", "namespace": "karmada-cluster", "ownerReferences": [owner]}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
        stored = await hub.admin.create(place.collection, secret)
        assert "clusterspace.io/used-with" in annotations_of(stored)


async def test_two_webhooks_do_not_both_admit_one_id(
    hubs: dict[str, Hub],
) -> None:
    """The second looks at the Lease of the first, waits, and sees what was stored meanwhile."""
    hub = hubs[KUBERNETES]
    settings = part_of_hub(hub.fleet.directory / "hub", "webhook")
    clock, rules = SystemClock(), AddressRules()
    async with client_for_test(settings) as client:
        kinds = ServedKinds(client, Webhooks(rules, clock))
        following = asyncio.create_task(kinds.run())
        try:
            await kinds.wait_synced()
            kinds.current()
            state = build_state(client, kinds, clock, Webhooks(rules, clock), lambda _: ())
            served = state.catalog.get_storage(CLUSTERS.group, CLUSTERS.resource)
            admin = User("admin", ("system:masters",))
            first, second = (ClaimedClusterRules(client, rules, clock) for _ in range(2))

            await first.admit(state, Admission(served, admin, cluster("one", "id-11")))
            asked = asyncio.create_task(
                second.admit(state, Admission(served, admin, cluster("two", "id-11")))
            )
            # Through the webhook that runs, which finds the claim to be this name's own.
            await hub.admin.create(ResourcePath(CLUSTERS), cluster("one", "id-11"))
            with pytest.raises(Invalid, match="cluster one has this ID"):
                await asked
        finally:
            await stop(following)
