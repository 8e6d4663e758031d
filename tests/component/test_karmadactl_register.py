"""How far stock `karmadactl register` gets at our hub, request by request, and why no further.

Its requests are written down here, for the program itself is not at hand. It finds the hub, asks
for the certificate of Karmada's installer, with which it would write roles for the agent, and
waits for that. Nobody gets that certificate: the hub scopes agents by who they are.
"""

import base64
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from tests.component.identity_hub import REQUESTS, IdentityHub, running_identity_hub
from tests.unit.apiserver.identity.certificates.requested import WEST, key, pem, signing_request

from clusterspace.apiserver.identity.config_maps import sign
from clusterspace.kube.objects import Object
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN_ID, TOKEN_SECRET = "abcdef", "0123456789abcdef"
TOKEN = f"{TOKEN_ID}.{TOKEN_SECRET}"
A_YEAR = 31_536_000
INSTALLER = "system:karmada:agent:rbac-generator"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
CLUSTER_INFO = "/api/v1/namespaces/kube-public/configmaps/cluster-info"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[IdentityHub]:
    async with running_identity_hub(tmp_path_factory.mktemp("hub")) as running:
        assert (await running.ask("POST", SECRETS, token_secret(), token="root-token")).code == 201
        yield running


def token_secret() -> Object:
    """Return what `karmadactl token create` makes."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "bootstrap.kubernetes.io/token",
        "metadata": {"name": f"bootstrap-token-{TOKEN_ID}", "namespace": "kube-system"},
        "stringData": {
            "token-id": TOKEN_ID,
            "token-secret": TOKEN_SECRET,
            "expiration": "2999-01-01T00:00:00Z",
            "usage-bootstrap-signing": "true",
            "usage-bootstrap-authentication": "true",
            "auth-extra-groups": "system:bootstrappers:karmada:default-cluster-token",
        },
    }


def request_of(name: str, user: str) -> Object:
    """Return a certificate request as karmadactl makes it."""
    return signing_request(
        pem(names=(user,)),
        name,
        signerName="kubernetes.io/kube-apiserver-client",
        usages=["digital signature", "key encipherment", "client auth"],
        expirationSeconds=A_YEAR,
    )


async def test_it_finds_the_hub_and_can_tell_that_it_is_the_right_one(hub: IdentityHub) -> None:
    async def signed() -> Object | None:
        found = (await hub.ask("GET", CLUSTER_INFO)).body["data"]
        return found if f"jws-kubeconfig-{TOKEN_ID}" in found else None

    data = await until(signed)

    expected = sign(data["kubeconfig"], TOKEN_ID, TOKEN_SECRET)
    assert data[f"jws-kubeconfig-{TOKEN_ID}"] == expected


@pytest.mark.parametrize(
    ("name", "user"), [("agent-rbac-generator-west1a2b3", INSTALLER), ("west-9z8y7", WEST)]
)
async def test_what_it_asks_for_is_taken_and_left_to_an_operator(
    hub: IdentityHub, name: str, user: str
) -> None:
    made = await hub.ask("POST", REQUESTS, request_of(name, user), token=TOKEN)
    assert made.code == 201
    # What is decided after it shows that it had its turn.
    await approved(hub, request_of(f"{name}-after", WEST))

    held = await hub.ask("GET", f"{REQUESTS}/{name}", token=TOKEN)

    assert held.body["status"] == {}


async def test_an_operators_yes_makes_an_agent_for_a_day(hub: IdentityHub) -> None:
    certificate = await approved(hub, request_of("west-1x1x1", WEST))
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc

    assert life <= timedelta(days=1, minutes=5)


async def test_even_with_an_operators_yes_the_installer_reaches_nothing(
    hub: IdentityHub, tmp_path: Path
) -> None:
    certificate = await approved(hub, request_of("agent-rbac-generator-west2", INSTALLER))
    files = tmp_path / "installer.crt", tmp_path / "installer.key"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key().private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    role = {"metadata": {"name": "system:karmada:west:agent"}, "rules": []}
    roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    cluster = "/apis/cluster.karmada.io/v1alpha1/clusters/west"

    made = await hub.ask("POST", roles, role, certificate=files)
    found = await hub.ask("GET", cluster, certificate=files)

    assert (made.code, found.code) == (403, 403)


async def approved(hub: IdentityHub, request: Object) -> x509.Certificate:
    """Say yes to a request, as an operator does; return what is issued."""
    made = await hub.ask("POST", REQUESTS, request, token=TOKEN)
    condition = {"type": "Approved", "status": "True", "reason": "Test", "message": "yes"}
    path = f"{REQUESTS}/{request['metadata']['name']}"
    body = {**made.body, "status": {"conditions": [condition]}}
    assert (await hub.ask("PUT", f"{path}/approval", body, token="root-token")).code == 200

    async def issued() -> str | None:
        status = (await hub.ask("GET", path, token="root-token")).body["status"]
        return status.get("certificate")

    return x509.load_pem_x509_certificate(base64.b64decode(await until(issued)))
