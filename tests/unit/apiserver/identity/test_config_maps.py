"""cluster-info: what a newcomer reads before it knows whom to trust."""

import asyncio
import base64

import yaml
from tests.unit.apiserver.identity.subjects import AUTHORITY, MemoryHub

from clusterspace.apiserver.identity.authority import TrustBundle
from clusterspace.apiserver.identity.bootstrap_tokens import TYPE, cluster_token_secret
from clusterspace.apiserver.identity.config_maps import ClusterInfo, kubeconfig_of, sign
from clusterspace.kube.times import format_time

SERVER = "https://hub.example:5443"
TOKEN = {
    "token-id": "abcdef",
    "token-secret": "0123456789abcdef",
    "usage-bootstrap-signing": "true",
}


def test_the_signature_is_the_one_kubernetes_makes():
    """Recorded from kube-controller-manager 1.35."""
    signed = sign("apiVersion: v1\nkind: Config\nclusters: []\n", "abcdef", "0123456789abcdef")

    assert signed == (
        "eyJhbGciOiJIUzI1NiIsImtpZCI6ImFiY2RlZiJ9..6noRUKYc6IcJatsCC4tJjBE6Jx8UClLwzsstr66SXaM"
    )


def test_the_kubeconfig_says_where_we_are_and_logs_nobody_in():
    config = yaml.safe_load(kubeconfig_of(SERVER, AUTHORITY))

    assert config["clusters"][0]["cluster"] == {
        "server": SERVER,
        "certificate-authority-data": base64.b64encode(AUTHORITY).decode(),
    }
    assert not config["users"]


async def published(hub: MemoryHub) -> dict[str, str]:
    await ClusterInfo(hub.state, SERVER, TrustBundle(AUTHORITY)).publish()
    held = await hub.get("", "configmaps", "kube-public", "cluster-info")
    return dict(held["data"])


async def new_hub() -> MemoryHub:
    hub = MemoryHub()
    for name in ("kube-public", "kube-system"):
        await hub.create_namespace(name)
    return hub


async def test_every_token_that_allows_it_signs():
    hub = await new_hub()
    await hub.create_secret("kube-system", "bootstrap-token-abcdef", TOKEN, secret_type=TYPE)

    data = await published(hub)

    assert data["jws-kubeconfig-abcdef"] == sign(data["kubeconfig"], "abcdef", "0123456789abcdef")


async def test_a_token_that_ended_or_may_not_sign_leaves_no_signature():
    hub = await new_hub()
    ends = {**TOKEN, "token-id": "expire", "expiration": format_time(hub.clock.now() + 60)}
    silent = {**TOKEN, "token-id": "silent", "usage-bootstrap-signing": "false"}
    for data in (ends, silent):
        name = f"bootstrap-token-{data['token-id']}"
        await hub.create_secret("kube-system", name, data, secret_type=TYPE)
    ours = cluster_token_secret("ourtok." + "a" * 26, "west", hub.clock.now())
    await hub.create("", "secrets", ours)
    assert set(await published(hub)) == {"kubeconfig", "jws-kubeconfig-expire"}

    await hub.clock.advance(60)

    assert set(await published(hub)) == {"kubeconfig"}


async def test_the_map_is_put_back_and_follows_the_tokens():
    hub = await new_hub()
    async with asyncio.TaskGroup() as group:
        running = group.create_task(ClusterInfo(hub.state, SERVER, TrustBundle(AUTHORITY)).run())
        await hub.clock.advance(1)
        await hub.delete("", "configmaps", "kube-public", "cluster-info")
        await hub.create_secret("kube-system", "bootstrap-token-abcdef", TOKEN, secret_type=TYPE)
        await hub.clock.advance(1)

        held = await hub.get("", "configmaps", "kube-public", "cluster-info")
        assert set(held["data"]) == {"kubeconfig", "jws-kubeconfig-abcdef"}
        running.cancel()
