"""Somebody was handed a bootstrap token: they can ask for their certificate, and see no other."""

import asyncio
import ssl
from collections.abc import AsyncGenerator
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from tests.component.identity_hub import REQUESTS, IdentityHub, running_identity_hub
from tests.component.serving.wire import RawClient, get
from tests.unit.apiserver.identity.certificates.requested import agent_request

from clusterspace.apiserver.identity.bootstrap_tokens import cluster_token_secret
from clusterspace.kube.objects import Object

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRETS = "/api/v1/namespaces/kube-system/secrets"
GROUP = "system:bootstrappers:karmada:default-cluster-token"
MINE, OTHER, PLAIN = f"minexx.{'m' * 26}", f"otherx.{'o' * 26}", f"plainx.{'p' * 16}"
SELECTORS = (
    "",
    "?limit=1",
    "?labelSelector=a%3Db",
    "?fieldSelector=metadata.name%3Dother-aaaaa",
    "?fieldSelector=metadata.name!%3Dmine-aaaaa",
    "?fieldSelector=metadata.name%3Dnobody-aaaaa",
    "?fieldSelector=spec.signerName%3Dkubernetes.io/kube-apiserver-client",
    "?fieldSelector=%3D%3D",
)


def plain_secret() -> Object:
    """Return a token as Kubernetes makes them, which is for no cluster in particular."""
    token_id, _, secret = PLAIN.partition(".")
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": f"bootstrap-token-{token_id}", "namespace": "kube-system"},
        "stringData": {
            "token-id": token_id,
            "token-secret": secret,
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": GROUP,
        },
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[IdentityHub]:
    """Two clusters that are about to join have made their requests, and nobody has signed them."""
    async with running_identity_hub(tmp_path_factory.mktemp("hub")) as running:
        now = running.state.clock.now()
        secrets = (
            cluster_token_secret(MINE, "mine", now),
            cluster_token_secret(OTHER, "other", now),
            plain_secret(),
        )
        for secret in secrets:
            assert (await running.ask("POST", SECRETS, secret, token="root-token")).code == 201
        for token, name in ((MINE, "mine-aaaaa"), (OTHER, "other-aaaaa"), (PLAIN, "any-aaaaa")):
            # A signer of nobody here: a token that was used up reads one path and no other.
            request = agent_request(name)
            request["spec"]["signerName"] = "example.com/nobody"
            assert (await running.ask("POST", REQUESTS, request, token=token)).code == 201
        yield running


@pytest.mark.parametrize("token", [MINE, PLAIN])
@pytest.mark.parametrize("query", SELECTORS)
async def test_a_token_lists_no_requests(hub: IdentityHub, token: str, query: str) -> None:
    answer = await hub.ask("GET", REQUESTS + query, token=token)

    assert answer.code == 403, answer.body
    assert "aaaaa" not in answer.body["message"]


@pytest.mark.parametrize("query", SELECTORS)
async def test_a_token_watches_no_requests(hub: IdentityHub, query: str) -> None:
    answer = await hub.ask("GET", f"{REQUESTS}{query or '?'}&watch=1", token=PLAIN)

    assert answer.code == 403


@pytest.mark.parametrize("token", [MINE, PLAIN])
async def test_a_request_of_somebody_else_looks_like_one_that_is_not_there(
    hub: IdentityHub, token: str
) -> None:
    foreign = await hub.ask("GET", f"{REQUESTS}/other-aaaaa", token=token)
    missing = await hub.ask("GET", f"{REQUESTS}/nobody-aaaaa", token=token)

    assert (foreign.code, missing.code) == (404, 404)
    assert foreign.body["message"].replace("other", "nobody") == missing.body["message"]


@pytest.mark.parametrize(("token", "name"), [(MINE, "mine-aaaaa"), (PLAIN, "any-aaaaa")])
async def test_a_token_reads_the_request_it_made(hub: IdentityHub, token: str, name: str) -> None:
    own = await hub.ask("GET", f"{REQUESTS}/{name}", token=token)
    query = f"?fieldSelector=metadata.name%3D{name}"
    listed = await hub.ask("GET", REQUESTS + query, token=token)

    assert own.body["metadata"]["name"] == name
    assert [each["metadata"]["name"] for each in listed.body["items"]] == [name]


async def test_a_token_waits_for_its_request_with_a_watch(hub: IdentityHub) -> None:
    url = urlsplit(hub.url)
    tls = ssl.create_default_context(cafile=str(hub.installation.authority_file))
    client = RawClient(*await asyncio.open_connection(url.hostname, url.port, ssl=tls))
    path = f"{REQUESTS}?watch=1&fieldSelector=metadata.name%3Dany-aaaaa"
    await client.send(get(path, f"Authorization: Bearer {PLAIN}"))
    status, _ = await client.head()
    event = await client.chunk()
    client.vanish()

    assert status == 200
    assert b'"any-aaaaa"' in event


async def test_everybody_else_reads_requests_as_their_roles_say(hub: IdentityHub) -> None:
    listed = await hub.ask("GET", REQUESTS, token="root-token")
    refused = await hub.ask("GET", REQUESTS, token="alice-token")

    assert len(listed.body["items"]) == 3
    assert refused.code == 403
