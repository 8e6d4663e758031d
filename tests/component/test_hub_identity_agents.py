"""A cluster's agent at a real hub over TLS: its token, its certificate, and what others try."""

import asyncio
import base64
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives import serialization
from tests.component.identity_hub import REQUESTS, IdentityHub, running_identity_hub
from tests.unit.apiserver.identity.certificates.hostile_requests import AGENT, HOSTILE, WITH_TOKEN
from tests.unit.apiserver.identity.certificates.requested import agent_request, key

from clusterspace.apiserver.identity.bootstrap_tokens import cluster_token_secret
from clusterspace.apiserver.identity.certificates.requests import SIGNERS
from clusterspace.kube.objects import Object, with_metadata
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRETS = "/api/v1/namespaces/kube-system/secrets"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[IdentityHub]:
    async with running_identity_hub(tmp_path_factory.mktemp("hub")) as running:
        yield running


async def new_token(hub: IdentityHub, token_id: str, cluster: str = "west") -> str:
    """Make a token for a cluster, as an operator does."""
    token = f"{token_id}.{'t' * 26}"
    secret = cluster_token_secret(token, cluster, hub.state.clock.now())
    assert (await hub.ask("POST", SECRETS, secret, token="root-token")).code == 201
    return token


async def settled(hub: IdentityHub, name: str) -> Object:
    """Return a request of one of our signers once it is decided."""

    async def decided() -> Object | None:
        answer = await hub.ask("GET", f"{REQUESTS}/{name}", token="root-token")
        status = answer.body["status"]
        conditions = {each["type"] for each in status.get("conditions", ())}
        is_done = "certificate" in status or conditions & {"Denied", "Failed"}
        return answer.body if is_done else None

    return await until(decided)


async def log_in(hub: IdentityHub, name: str, token: str) -> tuple[Path, Path]:
    """Get the agent's certificate with a token; return its files."""
    made = await hub.ask("POST", REQUESTS, agent_request(name), token=token)
    assert made.code == 201, made.body
    certificate, key_file = hub.directory / f"{name}.crt", hub.directory / f"{name}.key"
    signed = (await settled(hub, name))["status"]["certificate"]
    certificate.write_bytes(base64.b64decode(signed))
    key_file.write_bytes(
        key().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate, key_file


async def test_an_agent_comes_with_a_token_and_stays_with_its_certificate(hub: IdentityHub):
    files = await log_in(hub, "west-first", await new_token(hub, "first1"))

    renewed = await hub.ask("POST", REQUESTS, agent_request("west-renew"), certificate=files)

    assert renewed.body["spec"]["username"] == "system:karmada:agent:west"
    assert (await settled(hub, "west-renew"))["status"]["certificate"]


async def test_a_token_that_was_used_reads_its_own_request_and_nothing_else(hub: IdentityHub):
    token = await new_token(hub, "once01")
    await log_in(hub, "west-once1", token)

    again = await hub.ask("POST", REQUESTS, agent_request("west-twice"), token=token)
    other = await hub.ask("GET", f"{REQUESTS}/west-twice", token=token)
    own = await hub.ask("GET", f"{REQUESTS}/west-once1", token=token)

    assert (again.code, other.code, own.code) == (401, 401, 200)
    assert own.body["status"]["certificate"]


async def test_of_many_requests_at_once_a_token_gets_one_signed(hub: IdentityHub):
    token = await new_token(hub, "race01")
    names = [f"west-race{number}" for number in range(8)]

    async with asyncio.TaskGroup() as group:
        asked = [
            group.create_task(hub.ask("POST", REQUESTS, agent_request(name), token=token))
            for name in names
        ]
    taken = [n for n, task in zip(names, asked, strict=True) if task.result().code == 201]
    outcomes = [await settled(hub, name) for name in taken]

    assert sum("certificate" in each["status"] for each in outcomes) == 1


async def test_an_agent_is_refused_when_its_cluster_is_gone(hub: IdentityHub):
    files = await log_in(hub, "west-leave", await new_token(hub, "leave1"))
    assert (await hub.ask("GET", f"{REQUESTS}/west-leave", certificate=files)).code == 200
    cluster_key = "/registry/cluster.karmada.io/clusters/west"
    entry = await hub.state.store.put(cluster_key, b'{"metadata":{"name":"west"}}')

    await hub.state.store.delete(cluster_key, expected=entry.mod_revision)

    async def refused() -> bool:
        answer = await hub.ask("GET", f"{REQUESTS}/west-leave", certificate=files)
        return answer.code == 401

    assert await until(refused)


async def test_no_hostile_request_is_signed(tmp_path: Path):
    async with running_identity_hub(tmp_path) as hub:
        files = await log_in(hub, "west-own", await new_token(hub, "honest"))
        attempts = [each for each in HOSTILE if each.user in (WITH_TOKEN, AGENT)]
        waiting: list[str] = []
        for number, hostile in enumerate(attempts):
            name = f"hostile-{number}"
            request = with_metadata(hostile.request(), name=name)
            if hostile.user is AGENT:
                answer = await hub.ask("POST", REQUESTS, request, certificate=files)
            else:
                token = await new_token(hub, f"t{number:05}")
                answer = await hub.ask("POST", REQUESTS, request, token=token)
            assert answer.code in (201, 403, 422), (hostile.tries, answer.body)
            if answer.code == 201 and request["spec"]["signerName"] in SIGNERS:
                waiting.append(name)

        outcomes = [await settled(hub, name) for name in waiting]
        listed = await hub.ask("GET", REQUESTS, token="root-token")

        assert len(attempts) >= 40
        assert not any("certificate" in each["status"] for each in outcomes)
        signed = [each for each in listed.body["items"] if "certificate" in each["status"]]
        assert [each["metadata"]["name"] for each in signed] == ["west-own"]
