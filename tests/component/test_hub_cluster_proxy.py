"""`clusters/NAME/proxy`: a member's API through the hub, as the user that asks."""

import asyncio
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apis.tunnels import LEASE_NAMESPACE
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ApiRequest, Headers, ResourcePath
from clusterspace.client.upgrades import open_tunnel
from clusterspace.controllers.leases import LEASES
from clusterspace.errors import Forbidden, NotFound
from clusterspace.fleet.membership import manifests
from clusterspace.kube.objects import find_at
from clusterspace.roots.settings import SimSettings
from clusterspace.roots.sim import running_sim
from clusterspace.testing.builders import CONFIG_MAPS, PODS, config_map, pod
from clusterspace.testing.hubs import client_for_test
from clusterspace.testing.stage import Fleet, Side, move_cluster, running_fleet
from clusterspace.testing.steps import until

PROXY = "/apis/cluster.karmada.io/v1alpha1/clusters/west/proxy"
JSON = ("Content-Type", "application/json")


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncGenerator[tuple[Fleet, Side]]:
    """A hub with one simulated member, `west`."""
    async with running_fleet(tmp_path) as running:
        directory = tmp_path / "west"
        settings = SimSettings("west", directory, nodes=1)
        await running.stack.enter_async_context(running_sim(settings))
        reached = read_kubeconfig([directory / "kubeconfig"]).settings(cluster="west")
        client = await running.stack.enter_async_context(client_for_test(reached))
        west = Side(reached, client)
        await running.join("west", west)
        yield running, west


def as_user(name: str, *groups: str) -> Headers:
    return (
        ("Impersonate-User", name),
        *(("Impersonate-Group", group) for group in groups),
    )


async def ask(fleet: Fleet, method: str, path: str, body: Any = None, *headers: Any) -> Any:
    raw = None if body is None else json.dumps(body).encode()
    given = (JSON, *headers) if raw else headers
    asked = ApiRequest(method, PROXY + path, headers=given, body=raw)
    return json.loads((await fleet.hub.client.connection.ask(asked)).body)


async def bind(side: Side, user: str, role: str) -> None:
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{user}-{role}"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": role,
        },
        "subjects": [{"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}],
    }
    await side.client.create(ResourcePath(manifests.CLUSTER_ROLE_BINDINGS), binding)


async def allow_proxy(side: Side, user: str) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"reach-{user}"},
        "rules": [
            {
                "apiGroups": ["cluster.karmada.io"],
                "resources": ["clusters/proxy"],
                "verbs": ["*"],
            }
        ],
    }
    await side.client.create(ResourcePath(manifests.CLUSTER_ROLES), role)
    await bind(side, user, f"reach-{user}")


async def test_objects_of_a_member_are_read_and_written_through_the_hub(
    fleet: tuple[Fleet, Side],
):
    running, west = fleet
    maps = "/api/v1/namespaces/default/configmaps"

    await ask(running, "POST", maps, config_map("a", {"k": "1"}))
    patch = ("Content-Type", "application/merge-patch+json")
    patched = ApiRequest("PATCH", f"{PROXY}{maps}/a", headers=(patch,), body=b'{"data":{"k":"2"}}')
    await running.hub.client.connection.ask(patched)

    assert (await west.client.get(ResourcePath(CONFIG_MAPS, "default", "a")))["data"] == {"k": "2"}
    listed = await ask(running, "GET", f"{maps}?labelSelector=none%3Dhere")
    assert listed["items"] == []
    await ask(running, "DELETE", f"{maps}/a")
    with pytest.raises(NotFound):
        await ask(running, "GET", f"{maps}/a")


async def test_a_member_decides_by_its_own_rules_and_sees_the_user(fleet: tuple[Fleet, Side]):
    running, west = fleet
    who = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    jane = as_user("jane", "dev")
    await allow_proxy(running.hub, "jane")

    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    told = await ask(running, "POST", path, who, *jane)
    with pytest.raises(Forbidden, match='User "jane" cannot list resource "pods"'):
        await ask(running, "GET", "/api/v1/pods", None, *jane)
    await bind(west, "jane", "view")

    assert find_at(told, "status", "userInfo", "username") == "jane"
    assert find_at(told, "status", "userInfo", "groups") == ["dev", "system:authenticated"]
    assert (await ask(running, "GET", "/api/v1/pods", None, *jane))["items"] == []


async def test_who_may_not_reach_a_member_does_not(fleet: tuple[Fleet, Side]):
    running, _ = fleet

    with pytest.raises(Forbidden, match='cannot get resource "clusters/proxy"'):
        await ask(running, "GET", "/api/v1/pods", None, *as_user("mallory"))


async def test_any_media_type_and_any_path_pass(fleet: tuple[Fleet, Side]):
    running, _ = fleet

    asked = ApiRequest("GET", f"{PROXY}/version", headers=(("Accept", "text/html, */*"),))
    answer = await running.hub.client.connection.ask(asked)

    assert json.loads(answer.body)["major"] == "1"
    head = await running.hub.client.connection.exchange(ApiRequest("HEAD", f"{PROXY}/healthz"))
    assert (head.status, head.body) == (200, b"")


async def test_a_member_that_is_gone_is_unavailable_and_never_not_found(
    fleet: tuple[Fleet, Side],
):
    running, _ = fleet
    await move_cluster(running.hub.client, "west", "https://127.0.0.1:1")

    once = ApiRequest("POST", f"{PROXY}/api/v1/namespaces", headers=(JSON,), body=b"{}")
    answer = await running.hub.client.connection.exchange(once)

    assert answer.status == 503
    assert json.loads(answer.body)["message"].startswith("cluster west: refused the connection")


async def test_an_unknown_member_is_not_found(fleet: tuple[Fleet, Side]):
    running, _ = fleet
    path = PROXY.replace("west", "east")

    with pytest.raises(NotFound, match='"east" not found'):
        await running.hub.client.connection.ask(ApiRequest("GET", f"{path}/version"))


async def running_pod(west: Side) -> None:
    await west.client.create(ResourcePath(PODS, "default"), pod("web"))
    place = ResourcePath(PODS, "default", "web")

    async def is_running() -> bool:
        return find_at(await west.client.get(place), "status", "phase") == "Running"

    await until(is_running)


async def test_a_watch_and_a_log_are_passed_on_as_they_come(fleet: tuple[Fleet, Side]):
    running, west = fleet
    await running_pod(west)
    follow = ApiRequest("GET", f"{PROXY}/api/v1/namespaces/default/pods/web/log?follow=true")

    async with running.hub.client.connection.stream(follow) as stream:
        first = await anext(stream.chunks())

    assert stream.status == 200
    assert first
    watch = ApiRequest("GET", f"{PROXY}/api/v1/pods?watch=true")
    async with running.hub.client.connection.stream(watch) as stream:
        event = json.loads((await anext(stream.chunks())).splitlines()[0])
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "web")


async def test_a_shell_is_passed_on_to_who_may_create_one_and_to_nobody_else(
    fleet: tuple[Fleet, Side],
):
    running, west = fleet
    await running_pod(west)
    await allow_proxy(running.hub, "jane")
    await bind(west, "jane", "view")
    target = f"{PROXY}/api/v1/namespaces/default/pods/web/exec?command=pwd&stdout=true"
    headers = (
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("Sec-WebSocket-Protocol", "v5.channel.k8s.io"),
    )

    hub = running.hub.client.connection
    async with open_tunnel(hub, ApiRequest("GET", target, headers=headers), "websocket") as shell:
        assert shell.headers["sec-websocket-accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        async with asyncio.timeout(60):
            said = b""
            while b"Success" not in said:
                said += await shell.read()
    assert b"/" in said
    asked = ApiRequest("GET", target, headers=(*headers, *as_user("jane")))
    with pytest.raises(Forbidden, match='cannot create resource "pods/exec"'):
        async with open_tunnel(hub, asked, "websocket"):
            pass


async def test_other_servers_learn_whose_certificates_count(fleet: tuple[Fleet, Side]):
    running, _ = fleet
    place = ResourcePath(CONFIG_MAPS, "kube-system", "extension-apiserver-authentication")

    held = await running.hub.client.get(place)

    authority = (running.directory / "hub" / "pki" / "ca.crt").read_text()
    assert held["data"] == {"client-ca-file": authority}


async def test_a_hub_asks_for_tunnels_as_soon_as_somebody_could_open_one(
    fleet: tuple[Fleet, Side],
) -> None:
    hub, leases = fleet[0].hub.client, ResourcePath(LEASES, LEASE_NAMESPACE)
    assert await hub.list_objects(leases) == []

    south = {
        "apiVersion": CLUSTERS.api_version,
        "kind": "Cluster",
        "metadata": {"name": "south"},
        "spec": {"syncMode": "Pull"},
    }
    await hub.create(ResourcePath(CLUSTERS), south)

    async def is_announced() -> bool:
        return len(await hub.list_objects(leases)) == 1

    await until(is_announced)
