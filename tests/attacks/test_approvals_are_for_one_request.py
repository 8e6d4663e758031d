"""Somebody may approve, or sign, for one signer: can they have it count for another signer's?

A request is known by its name, and names are given again. Between the question whether somebody may
approve a request and the approval, another request can take its name.
"""

import asyncio
import json
import ssl
from collections.abc import AsyncGenerator
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from tests.component.identity_hub import REQUESTS, IdentityHub, running_identity_hub
from tests.component.serving.wire import RawClient, request
from tests.unit.apiserver.identity.certificates.requested import pem, signing_request

from clusterspace.apiserver.identity.certificates import verbs
from clusterspace.kube.objects import Object

pytestmark = pytest.mark.asyncio(loop_scope="module")

RBAC = "/apis/rbac.authorization.k8s.io/v1"
CERTIFICATES = "certificates.k8s.io"
OWN, OTHER = "example.com/team", "kubernetes.io/kube-apiserver-client"
WISH = f"{REQUESTS}/wish"
APPROVED = {"type": "Approved", "status": "True", "reason": "me"}
FAILED = {"type": "Failed", "status": "True", "reason": "me"}
SAID = {"approval": APPROVED, "status": FAILED}
RULES = [
    {
        "apiGroups": [CERTIFICATES],
        "resources": [f"certificatesigningrequests/{door}" for door in SAID],
        "verbs": ["update"],
    },
    {
        "apiGroups": [CERTIFICATES],
        "resources": ["signers"],
        "resourceNames": [OWN],
        "verbs": ["approve", "sign"],
    },
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[IdentityHub]:
    """Alice approves and signs for her team's signer, and for no other."""
    async with running_identity_hub(tmp_path_factory.mktemp("hub")) as running:
        named: Object = {"metadata": {"name": "team-signer"}}
        subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"}
        bound = {
            "roleRef": {**subject, "kind": "ClusterRole", "name": "team-signer"},
            "subjects": [subject],
        }
        for plural, body in (("roles", {"rules": RULES}), ("rolebindings", bound)):
            path = f"{RBAC}/cluster{plural}"
            answer = await running.ask("POST", path, {**named, **body}, token="root-token")
            assert answer.code == 201, answer.body
        yield running


async def make(hub: IdentityHub, signer: str) -> Object:
    """Put a request for a signer in the place of the one there was."""
    await hub.ask("DELETE", WISH, token="root-token")
    wish = signing_request(pem(names=["jane"], groups=[]), "wish", signerName=signer)
    answer = await hub.ask("POST", REQUESTS, wish, token="root-token")
    assert answer.code == 201, answer.body
    return wish


async def said_of(hub: IdentityHub) -> list[Object]:
    wish = (await hub.ask("GET", WISH, token="root-token")).body
    assert wish["spec"]["signerName"] == OTHER
    return wish["status"].get("conditions", [])


@pytest.mark.parametrize("door", SAID)
async def test_it_counts_for_their_own_signer_alone(hub: IdentityHub, door: str) -> None:
    codes: list[int] = []
    for signer in (OWN, OTHER):
        body = {**await make(hub, signer), "status": {"conditions": [SAID[door]]}}
        codes.append((await hub.ask("PUT", f"{WISH}/{door}", body, token="alice-token")).code)

    assert codes == [200, 403]


@pytest.mark.parametrize("door", SAID)
async def test_a_body_that_is_slow_to_come_is_judged_by_what_is_there_then(
    hub: IdentityHub, door: str
) -> None:
    body = {**await make(hub, OWN), "status": {"conditions": [SAID[door]]}}
    headers = ("Authorization: Bearer alice-token", "Content-Type: application/json")
    raw = request("PUT", f"{WISH}/{door}", *headers, body=json.dumps(body).encode())
    url = urlsplit(hub.url)
    tls = ssl.create_default_context(cafile=str(hub.installation.authority_file))
    client = RawClient(*await asyncio.open_connection(url.hostname, url.port, ssl=tls))

    await client.send(raw[:-10])
    await asyncio.sleep(0.2)  # the hub waits for the rest
    await make(hub, OTHER)
    answer = await client.ask(raw[-10:])
    client.vanish()

    assert answer.status == 403
    assert await said_of(hub) == []


@pytest.mark.parametrize("door", SAID)
async def test_a_request_that_takes_the_name_after_the_question_is_left_alone(
    hub: IdentityHub, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {**await make(hub, OWN), "status": {"conditions": [SAID[door]]}}
    change = verbs.change

    async def change_too_late(*given: Any) -> Any:
        await make(hub, OTHER)
        return await change(*given)

    monkeypatch.setattr(verbs, "change", change_too_late)
    answer = await hub.ask("PUT", f"{WISH}/{door}", body, token="alice-token")

    assert answer.code == 409, answer.body
    assert answer.body["reason"] == "Conflict"
    assert await said_of(hub) == []
