"""Two agents and every route of discovery: an agent never gets at another cluster's things."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.component.hub_access_site import HubSite, hub_site

from clusterspace.kube.resources import ResourceInfo

CLUSTERS = "/apis/cluster.karmada.io/v1alpha1/clusters"
WORKS = "/apis/work.karmada.io/v1alpha1/namespaces/{}/works"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/karmada-cluster/leases"
SECRETS = "/api/v1/namespaces/karmada-cluster/secrets"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
EVENTS = "/api/v1/namespaces/default/events"
ABOUT_ONESELF = ("selfsubjectaccessreviews", "selfsubjectrulesreviews", "selfsubjectreviews")


@pytest.fixture
async def site() -> AsyncIterator[HubSite]:
    async with hub_site() as running:
        yield running


def cluster(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name},
        "spec": {"syncMode": "Pull", **spec},
    }


def lease(name: str) -> dict[str, Any]:
    head = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    return {**head, "metadata": {"name": name}, "spec": {"holderIdentity": name}}


def secret(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}


def foreign_requests(info: ResourceInfo, other: str) -> Iterator[tuple[str, str]]:
    """Every way to ask for what is another cluster's: its namespace, its names, everybody's."""
    base = info.group_version.path
    places = [base]
    if info.namespaced:
        places = [
            f"{base}/namespaces/{each}"
            for each in (f"karmada-es-{other}", "karmada-cluster", "default")
        ]
        yield "GET", f"{base}/{info.plural}"
    for place in places:
        collection = f"{place}/{info.plural}"
        yield "GET", collection
        yield "GET", f"{collection}?watch=1&timeoutSeconds=1"
        yield "GET", f"{collection}?fieldSelector=metadata.name%3D{other}"
        yield "DELETE", collection
        if info.plural not in ABOUT_ONESELF:
            yield "POST", collection
        for name in (other, f"{other}-impersonator", f"{other}-1a2b3"):
            parts = ("", *(f"/{part.name}" for part in info.subresources))
            for method in ("GET", "PUT", "PATCH", "DELETE", "POST"):
                yield from ((method, f"{collection}/{name}{part}") for part in parts)


@pytest.mark.parametrize(("agent", "other"), [("west", "east"), ("east", "west")])
async def test_no_route_leads_an_agent_to_another_cluster(
    site: HubSite, agent: str, other: str
) -> None:
    assert (await site.ask("POST", CLUSTERS, cluster(other))).status == 201
    assert (await site.ask("POST", LEASES, lease(other))).status == 201
    assert (await site.ask("POST", SECRETS, secret(other))).status == 201
    asked, reached = 0, list[str]()
    for served in site.state.catalog.all():
        info = served.info
        body = {"apiVersion": info.api_version, "kind": info.kind, "metadata": {"name": other}}
        for method, path in foreign_requests(info, other):
            has_body = method in ("POST", "PUT", "PATCH")
            kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
            answer = await site.ask(
                method, path, body if has_body else None, token=f"agent-{agent}", content_type=kind
            )
            asked += 1
            # What interprets kinds is no cluster's own: every agent goes by it.
            is_for_all = method == "GET" and info.group == "config.karmada.io"
            if answer.status < 400 and not is_for_all:
                reached.append(f"{method} {path}: {answer.status}")
    assert asked > 3_000
    assert reached == []


async def test_no_role_widens_what_an_agent_reaches(site: HubSite) -> None:
    rbac = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    binding = {
        "metadata": {"name": "oops"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "cluster-admin",
        },
        "subjects": [{"kind": "Group", "name": "system:karmada:agents"}],
    }
    assert (await site.ask("POST", rbac, binding)).status == 201

    answer = await site.ask("GET", "/api/v1/secrets", token="agent-west")

    assert answer.status == 403


async def test_an_agent_does_its_work(site: HubSite) -> None:
    token = "agent-west"
    work = {
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {"name": "w"},
        "spec": {"workload": {"manifests": []}},
    }
    own_works = WORKS.format("karmada-es-west")
    held = {"metadata": {"finalizers": ["karmada.io/execution-controller"]}}
    applied = {"type": "Applied", "status": "True", "reason": "x", "message": ""}
    told = {"status": {"conditions": [{**applied, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}
    assert (await site.ask("POST", own_works, work)).status == 201
    expected = (
        ("POST", CLUSTERS, cluster("west"), 201),
        ("GET", f"{CLUSTERS}/west", None, 200),
        ("GET", f"{CLUSTERS}?fieldSelector=metadata.name%3Dwest", None, 200),
        ("POST", LEASES, lease("west"), 201),
        ("PATCH", f"{LEASES}/west", {"spec": {"leaseDurationSeconds": 40}}, 200),
        ("POST", SECRETS, secret("west-impersonator"), 201),
        ("GET", f"{SECRETS}/west-impersonator", None, 200),
        ("GET", own_works, None, 200),
        ("GET", f"{own_works}/w", None, 200),
        ("PATCH", f"{own_works}/w", held, 200),
        ("PATCH", f"{own_works}/w/status", told, 200),
        ("GET", "/api/v1/namespaces/karmada-es-west", None, 200),
        ("GET", "/apis", None, 200),
    )
    for method, path, body, status in expected:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = await site.ask(method, path, body, token=token, content_type=kind)
        assert (method, path, answer.status) == (method, path, status), answer.body


async def test_an_agent_gives_no_orders_to_itself(site: HubSite) -> None:
    work = {
        "apiVersion": "work.karmada.io/v1alpha1",
        "kind": "Work",
        "metadata": {"name": "w"},
        "spec": {"workload": {"manifests": []}},
    }
    own_works = WORKS.format("karmada-es-west")
    assert (await site.ask("POST", own_works, work)).status == 201
    other = {"spec": {"suspendDispatching": True}}
    refused = (
        ("POST", own_works, {**work, "metadata": {"name": "another"}}),
        ("PATCH", f"{own_works}/w", other),
        ("DELETE", f"{own_works}/w", None),
        ("DELETE", own_works, None),
    )
    for method, path, body in refused:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = await site.ask(method, path, body, token="agent-west", content_type=kind)
        assert (method, path, answer.status) == (method, path, 403), answer.body


async def test_a_body_that_names_another_cluster_is_refused(site: HubSite) -> None:
    owner = {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "name": "east",
        "uid": "u",
    }
    owned = lease("west")
    owned["metadata"]["ownerReferences"] = [owner]
    stolen = {"secretRef": {"namespace": "karmada-cluster", "name": "east"}}
    labelled = cluster("west")
    labelled["metadata"]["labels"] = {"tier": "gold"}
    tainted = cluster("west", taints=[{"key": "k", "effect": "NoSchedule"}])
    for path, body in (
        (CLUSTERS, cluster("east")),
        (CLUSTERS, cluster("west", **stolen)),
        (CLUSTERS, labelled),
        (CLUSTERS, tainted),
        (LEASES, lease("east")),
        (LEASES, owned),
        (SECRETS, secret("east")),
        (SECRETS, {**secret("west"), "type": "kubernetes.io/service-account-token"}),
        (REQUESTS, {"metadata": {"name": "east-1a2b3"}, "spec": {}}),
    ):
        answer = await site.ask("POST", path, body, token="agent-west")
        assert (path, answer.status) == (path, 403), answer.body


async def test_an_agent_tells_of_its_own_cluster_in_events_and_of_nothing_else(
    site: HubSite,
) -> None:
    foreign = event("west.17ab", kind="Deployment", apiVersion="apps/v1", namespace="default")
    assert (await site.ask("POST", EVENTS, foreign)).status == 201
    own = f"west.clusterspace-agent.{'a' * 16}"
    said = {"message": "changed"}
    expected = (
        ("POST", EVENTS, event(own), 201),
        ("GET", f"{EVENTS}/{own}", None, 200),
        ("PATCH", f"{EVENTS}/{own}", said, 200),
        ("PATCH", f"{EVENTS}/{own}", {"involvedObject": {"name": "east"}}, 403),
        ("POST", EVENTS, event("west.1", name="east"), 403),
        ("POST", EVENTS, event("west.2", kind="Node", apiVersion="v1"), 403),
        ("POST", EVENTS, event("east.3"), 403),
        ("PATCH", f"{EVENTS}/west.17ab", said, 403),
        ("GET", f"{EVENTS}/west.17ab", None, 403),
        ("DELETE", f"{EVENTS}/{own}", None, 403),
        ("GET", EVENTS, None, 403),
    )
    for method, path, body, status in expected:
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        answer = await site.ask(method, path, body, token="agent-west", content_type=kind)
        assert (method, path, answer.status) == (method, path, status), answer.body


def event(event_name: str, **about: str) -> dict[str, Any]:
    """Return an event about cluster west, or about whatever else is said."""
    cluster_west = {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "name": "west",
        **about,
    }
    metadata = {"name": event_name, "namespace": "default"}
    return {"metadata": metadata, "involvedObject": cluster_west, "reason": "Tested"}
