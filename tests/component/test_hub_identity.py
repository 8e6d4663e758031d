"""Logging in at a real hub over TLS: tokens, certificates, kubectl."""

import asyncio
import base64
import json
import ssl
import stat
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from tests.component.identity_hub import REQUESTS, IdentityHub, running_identity_hub

from clusterspace.apiserver.http.listener import reload_certificate
from clusterspace.apiserver.identity.authority import needs_renewal, renew_forever
from clusterspace.kube.objects import Object
from clusterspace.roots.installation import write_pair
from clusterspace.testing.clocks import ManualClock
from clusterspace.testing.steps import until

REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
MERGE = "application/merge-patch+json"


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[IdentityHub]:
    async with running_identity_hub(tmp_path_factory.mktemp("hub")) as running:
        yield running


async def review(hub: IdentityHub, token: str) -> Object:
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token},
    }
    return (await hub.ask("POST", REVIEWS, body, token="root-token")).body["status"]


async def test_anonymous_may_look_at_health_and_nothing_else(hub: IdentityHub):
    answer = await hub.ask("GET", "/api/v1/namespaces")

    assert answer.code == 403
    assert 'User "system:anonymous" cannot list' in answer.body["message"]


@pytest.mark.parametrize("token", ["wrong", "a.b.c", "abcdef.0123456789abcdef", "Ünïcode"])
async def test_a_wrong_token_is_refused_and_never_anonymous(hub: IdentityHub, token: str):
    answer = await hub.ask("GET", "/healthz", token=token.encode("utf-8").decode("latin-1"))

    assert answer.code == 401


async def test_kubectl_creates_tokens_that_log_in(hub: IdentityHub):
    await hub.kubectl("create", "serviceaccount", "bot")
    token = (await hub.kubectl("create", "token", "bot", "--duration", "20m")).strip()
    kubeconfig = hub.write_kubeconfig("token", {"token": token})

    listed = await hub.kubectl("get", "namespaces", "-o", "name", kubeconfig=kubeconfig)

    assert "namespace/default" in listed.splitlines()
    assert (await review(hub, token))["user"]["username"] == "system:serviceaccount:default:bot"


async def test_a_token_stops_at_once_when_its_account_is_deleted(hub: IdentityHub):
    await hub.kubectl("create", "serviceaccount", "brief")
    token = (await hub.kubectl("create", "token", "brief")).strip()
    assert (await hub.ask("GET", "/api/v1/namespaces", token=token)).code == 200

    await hub.kubectl("delete", "serviceaccount", "brief")

    assert (await hub.ask("GET", "/api/v1/namespaces", token=token)).code == 401


async def test_a_token_for_others_does_not_log_in(hub: IdentityHub):
    token = (await hub.kubectl("create", "token", "default", "--audience", "vault")).strip()

    assert (await hub.ask("GET", "/api/v1/namespaces", token=token)).code == 401


async def test_an_exec_plug_in_logs_in(hub: IdentityHub):
    token = (await hub.kubectl("create", "token", "default")).strip()
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token},
    }
    plug_in = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "/bin/echo",
        "args": [json.dumps(credential)],
        "interactiveMode": "Never",
    }
    kubeconfig = hub.write_kubeconfig("exec", {"exec": plug_in})

    listed = await hub.kubectl("get", "namespaces", "-o", "name", kubeconfig=kubeconfig)

    assert "namespace/default" in listed.splitlines()


async def test_a_token_secret_is_filled_in_and_logs_in(hub: IdentityHub):
    manifest = hub.directory / "secret.json"
    manifest.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": "kubernetes.io/service-account-token",
                "metadata": {
                    "name": "held",
                    "namespace": "default",
                    "annotations": {"kubernetes.io/service-account.name": "default"},
                },
            }
        )
    )
    await hub.kubectl("apply", "-f", str(manifest))

    async def filled() -> Object:
        path = "/api/v1/namespaces/default/secrets/held"
        return (await hub.ask("GET", path, token="root-token")).body.get("data")

    data = await until(filled)

    token = base64.b64decode(data["token"]).decode()
    assert base64.b64decode(data["ca.crt"]) == hub.installation.authority_file.read_bytes()
    assert (await hub.ask("GET", "/api/v1/namespaces", token=token)).code == 200


async def test_kubectl_approves_a_request_and_the_certificate_logs_in(hub: IdentityHub):
    key = hub.directory / "jane.key"
    manifest = write_request(hub, key, "jane", "dev")
    await hub.kubectl("apply", "-f", str(manifest))
    assert "Pending" in await hub.kubectl("get", "csr", "jane")

    await hub.kubectl("certificate", "approve", "jane")

    certificate = hub.directory / "jane.crt"
    certificate.write_bytes(base64.b64decode(await until(lambda: certificate_of(hub, "jane"))))
    assert "Approved,Issued" in await hub.kubectl("get", "csr", "jane")
    kubeconfig = hub.write_kubeconfig(
        "jane", {"client-certificate": str(certificate), "client-key": str(key)}
    )
    code, _, refusal = await hub.try_kubectl("get", "nodes", kubeconfig=kubeconfig)
    assert code == 1
    assert 'User "jane" cannot list resource "nodes"' in refusal


async def test_kubectl_denies_a_request_for_good(hub: IdentityHub):
    manifest = write_request(hub, hub.directory / "mallory.key", "mallory", "dev")
    await hub.kubectl("apply", "-f", str(manifest))
    await hub.kubectl("certificate", "deny", "mallory")

    code, _, refusal = await hub.try_kubectl("certificate", "approve", "mallory")

    assert code == 1
    assert "already Denied" in refusal
    assert await certificate_of(hub, "mallory") is None


async def certificate_of(hub: IdentityHub, name: str) -> str | None:
    answer = await hub.ask("GET", f"{REQUESTS}/{name}", token="root-token")
    return answer.body["status"].get("certificate")


def write_request(hub: IdentityHub, key_file: Path, user: str, group: str) -> Path:
    """Write a key and the manifest of a request for a user's certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, group),
            x509.NameAttribute(NameOID.COMMON_NAME, user),
        ]
    )
    request = x509.CertificateSigningRequestBuilder().subject_name(subject)
    pem = request.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    manifest = hub.directory / f"{user}.json"
    manifest.write_text(
        json.dumps(
            {
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "CertificateSigningRequest",
                "metadata": {"name": user},
                "spec": {
                    "request": base64.b64encode(pem).decode(),
                    "signerName": "kubernetes.io/kube-apiserver-client",
                    "usages": ["client auth"],
                },
            }
        )
    )
    return manifest


async def test_only_who_may_sign_for_a_signer_writes_a_certificate(hub: IdentityHub):
    manifest = write_request(hub, hub.directory / "eve.key", "eve", "dev")
    await hub.kubectl("apply", "-f", str(manifest))
    forged = {"status": {"certificate": base64.b64encode(b"mine").decode()}}

    by_nobody = await hub.ask("PATCH", f"{REQUESTS}/eve/status", forged, content_type=MERGE)
    by_root = await hub.ask(
        "PATCH", f"{REQUESTS}/eve/status", forged, token="root-token", content_type=MERGE
    )

    assert by_nobody.code == 403
    assert by_root.code == 422
    assert "must contain at least one CERTIFICATE PEM block" in by_root.body["message"]


def conditions(*types: str, status: str = "True") -> Object:
    said = [{"type": each, "status": status, "reason": "Test"} for each in types]
    return {"status": {"conditions": said}}


@pytest.mark.parametrize(
    ("door", "patch", "why"),
    [
        ("status", conditions("Approved"), "updates may not add a condition of type"),
        ("approval", conditions("Approved", "Denied"), "mutually exclusive"),
        ("approval", conditions("Approved", status="False"), 'supported values: "True"'),
    ],
    ids=["approving as a signer", "yes and no", "neither yes nor no"],
)
async def test_a_verdict_that_makes_no_sense_is_refused(
    hub: IdentityHub, door: str, patch: Object, why: str
):
    manifest = write_request(hub, hub.directory / "kim.key", "kim", "dev")
    await hub.kubectl("apply", "-f", str(manifest))

    answer = await hub.ask(
        "PATCH", f"{REQUESTS}/kim/{door}", patch, token="root-token", content_type=MERGE
    )

    assert answer.code == 422
    assert why in answer.body["message"]
    assert await certificate_of(hub, "kim") is None


async def test_an_approver_cannot_slip_a_certificate_in(hub: IdentityHub):
    manifest = write_request(hub, hub.directory / "lee.key", "lee", "dev")
    await hub.kubectl("apply", "-f", str(manifest))
    forged = {"status": {"certificate": base64.b64encode(b"mine").decode()}}
    for path in (f"{REQUESTS}/lee/approval", f"{REQUESTS}/lee"):
        answer = await hub.ask("PATCH", path, forged, token="root-token", content_type=MERGE)
        assert answer.code == 200

    assert await certificate_of(hub, "lee") is None


async def test_what_was_approved_cannot_be_taken_back(hub: IdentityHub):
    manifest = write_request(hub, hub.directory / "max.key", "max", "dev")
    await hub.kubectl("apply", "-f", str(manifest))
    await hub.kubectl("certificate", "approve", "max")

    answer = await hub.ask(
        "PATCH",
        f"{REQUESTS}/max/approval",
        {"status": {"conditions": []}},
        token="root-token",
        content_type=MERGE,
    )

    assert answer.code == 422
    assert 'may not remove a condition of type "Approved"' in answer.body["message"]


async def test_an_approver_keeps_what_others_say_and_may_label_the_request(hub: IdentityHub):
    manifest = write_request(hub, hub.directory / "noa.key", "noa", "dev")
    await hub.kubectl("apply", "-f", str(manifest))
    given = (await hub.ask("GET", f"{REQUESTS}/noa", token="root-token")).body
    said = [
        {"type": "Approved", "status": "True", "reason": "Test"},
        {"type": "example.com/Seen", "status": "False", "reason": "NotYet"},
    ]
    labels = {"approved-by": "root"}
    desired = {
        **given,
        "metadata": {**given["metadata"], "labels": labels},
        "status": {"conditions": said},
    }

    answer = await hub.ask("PUT", f"{REQUESTS}/noa/approval", desired, token="root-token")

    assert answer.code == 200
    assert answer.body["metadata"]["labels"] == labels
    kept = answer.body["status"]["conditions"]
    assert [(each["type"], each["status"]) for each in kept] == [
        ("Approved", "True"),
        ("example.com/Seen", "False"),
    ]
    assert all(each["lastTransitionTime"] and each["lastUpdateTime"] for each in kept)


async def test_a_new_server_certificate_is_shown_without_a_restart(tmp_path: Path):
    async with running_identity_hub(tmp_path) as hub:
        await renew_and_compare(hub)


async def renew_and_compare(hub: IdentityHub) -> None:
    certificate, key = hub.installation.server_files
    host, port = hub.url.removeprefix("https://").split(":")
    before = certificate.read_bytes()
    clock = ManualClock(hub.state.clock.now() + 300 * 24 * 3600)
    assert needs_renewal(before, clock.now())

    def renew(now: float) -> None:
        write_pair(hub.authority.issue_server(("127.0.0.1",), now), certificate, key)
        reload_certificate(hub.tls, certificate, key)

    async with asyncio.TaskGroup() as group:
        renewing = group.create_task(
            renew_forever(clock, lambda: (certificate.read_bytes(),), renew)
        )
        await clock.advance(1)
        renewing.cancel()

    shown = await asyncio.to_thread(ssl.get_server_certificate, (host, int(port)))
    assert shown.strip() == certificate.read_text().strip() != before.decode().strip()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600


async def test_every_namespace_has_its_account_and_our_authority(hub: IdentityHub):
    await hub.kubectl("create", "namespace", "apps")

    async def found() -> bool:
        here = await hub.kubectl("get", "sa,cm", "-n", "apps", "-o", "name")
        there = await hub.kubectl("get", "sa,cm", "-n", "default", "-o", "name")
        both = {"serviceaccount/default", "configmap/kube-root-ca.crt"}
        return both == set(here.split()) and both <= set(there.split())

    assert await until(found, seconds=10)


async def test_cluster_info_tells_newcomers_where_we_are(hub: IdentityHub):
    path = "/api/v1/namespaces/kube-public/configmaps/cluster-info"

    async def published() -> str | None:
        return (
            (await hub.ask("GET", path, token="root-token")).body.get("data", {}).get("kubeconfig")
        )

    assert hub.url in await until(published)
