"""The webhook beside a real kube-apiserver: what it is asked, what it says, and its silence."""

import ssl
from base64 import b64decode
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from clusterspace.aio.clocks import SystemClock
from clusterspace.apis.clusters import CLUSTERS
from clusterspace.apiserver.identity.authority import Authority
from clusterspace.apiserver.kubernetes_hub import manifests
from clusterspace.client.endpoints import LOOPBACK
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient, WriteOptions
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.leases import LEASES
from clusterspace.errors import ApiError
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.init import InitRequest, initialize
from clusterspace.roots.webhook import WebhookSettings, WebhookTls, running_webhook
from clusterspace.testing.builders import CONFIG_MAPS
from clusterspace.testing.hubs import client_for_test, free_port, real_server_for_test
from clusterspace.testing.steps import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow]

AUTHORITY = ResourcePath(
    GroupVersionResource("", "v1", "secrets"), manifests.NAMESPACE, manifests.AUTHORITY_SECRET
)
EAST: Object = {
    "apiVersion": CLUSTERS.api_version,
    "kind": "Cluster",
    "metadata": {"name": "east"},
    "spec": {"syncMode": "Pull"},
}
DRY = WriteOptions(is_dry_run=True)


@dataclass
class Hub:
    """A kube-apiserver that is the hub, and where it looks for our webhook."""

    settings: ConnectionSettings
    client: ClusterClient
    port: int

    def webhook(self) -> WebhookSettings:
        return WebhookSettings(self.settings, port=self.port, member_cidrs=LOOPBACK)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Hub]:
    directory, port = tmp_path_factory.mktemp("real"), free_port()
    async with (
        real_server_for_test(directory, name="hub") as real,
        client_for_test(real.settings) as client,
    ):
        request = InitRequest(f"https://127.0.0.1:{port}")
        await initialize(request, real.settings, lambda _: None)
        yield Hub(real.settings, client, port)


async def refusal_of(client: ClusterClient) -> str:
    try:
        await client.create(ResourcePath(CLUSTERS), EAST, DRY)
    except ApiError as error:
        return error.message
    return ""


async def test_a_silent_webhook_keeps_the_fleet_as_it_is_and_nothing_else(hub: Hub) -> None:
    async def is_asked_for() -> bool:
        return "failed calling webhook" in await refusal_of(hub.client)

    await until(is_asked_for)

    metadata = {"name": "anything", "namespace": "default"}
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    await hub.client.create(ResourcePath(CONFIG_MAPS, "default"), settings, DRY)
    lease = {
        "apiVersion": LEASES.api_version,
        "kind": "Lease",
        "metadata": {"name": "clusterspace-controllers", "namespace": "kube-system"},
    }
    await hub.client.create(ResourcePath(LEASES, "kube-system"), lease, DRY)


async def test_a_webhook_that_comes_back_lets_the_fleet_go_on(hub: Hub) -> None:
    async with running_webhook(hub.webhook()):

        async def is_let_in() -> bool:
            return await refusal_of(hub.client) == ""

        await until(is_let_in)


async def test_what_is_no_review_is_refused_and_the_next_one_answered(hub: Hub) -> None:
    async with running_webhook(hub.webhook()) as running, aiohttp.ClientSession() as session:
        # Its certificate is checked by the API server, in all other tests of this file.
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE

        async def post(path: str, body: bytes) -> int:
            url = running.url + path
            async with session.post(url, data=BytesIO(body), ssl=trust) as answer:
                return answer.status

        assert await post("/admit", b"") == 400
        assert await post("/admit", b"[]") == 400
        assert await post("/admit", b'{"request": {"uid": "1", "resource": 7}}') == 400
        assert await post("/admit", b'{"request": {"uid": "1"}}') == 400
        assert await post("/admit", b"x" * (9 * 1024 * 1024)) == 413
        assert await post("/secrets", b"{}") == 404
        unknown = b'{"request":{"uid":"1","resource":{"group":"a","version":"b","resource":"c"}}}'
        assert await post("/admit", unknown) == 200


async def test_a_new_authority_is_taken_up_while_the_webhook_runs(hub: Hub, tmp_path: Path) -> None:
    tls = WebhookTls(hub.client, tmp_path, SystemClock())
    assert await tls.issue()
    assert not await tls.issue()

    secret: Any = await hub.client.get(AUTHORITY)
    pair = Authority.create("clusterspace-webhook", SystemClock().now()).pair
    old = b64decode(secret["data"]["ca.crt"])
    new = manifests.authority_secret(pair.certificate + old, pair.certificate, pair.key)
    await hub.client.update(AUTHORITY, {**secret, "data": new["data"]})

    assert await tls.issue()
    # And `init`, run again, tells the API server whom to trust now.
    await initialize(InitRequest(), hub.settings, lambda _: None)
    async with running_webhook(hub.webhook()):

        async def is_let_in() -> bool:
            return await refusal_of(hub.client) == ""

        await until(is_let_in)
