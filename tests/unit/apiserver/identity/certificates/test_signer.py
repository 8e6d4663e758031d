"""Requests settled from end to end: agents get theirs, nobody gets anything else."""

import base64

import pytest
from cryptography import x509
from tests.unit.apiserver.identity.certificates.hostile_requests import (
    AGENT,
    HOSTILE,
    WITH_TOKEN,
    Hostile,
)
from tests.unit.apiserver.identity.certificates.requested import agent_request, pem, signing_request
from tests.unit.apiserver.identity.subjects import OPERATOR, MemoryHub

from clusterspace.apiserver.http.users import User
from clusterspace.apiserver.identity.agents import Revocations
from clusterspace.apiserver.identity.authority import Authority
from clusterspace.apiserver.identity.bootstrap_tokens import (
    SPENT_ON,
    TYPE,
    BootstrapTokens,
    cluster_token_secret,
)
from clusterspace.apiserver.identity.certificates.requests import CLIENT_SIGNER, Issuer
from clusterspace.apiserver.identity.certificates.signer import CertificateSigner
from clusterspace.errors import Invalid
from clusterspace.kube.objects import Object, annotations_of, name_of

GROUP, PLURAL = "certificates.k8s.io", "certificatesigningrequests"
AUTHORITY = Authority.create("test", 1_700_000_000.0)


class SigningHub(MemoryHub):
    """A hub with its signer, one good token for `west`, and some that are not."""

    accepts_karmadas = False

    async def start(self) -> "SigningHub":
        self.signer = CertificateSigner(
            self.state,
            BootstrapTokens(self.state),
            Revocations(self.state),
            Issuer(AUTHORITY.pair),
            accepts_karmadas=self.accepts_karmadas,
        )
        await self.create_namespace("kube-system")
        now = self.clock.now()
        for token_id, cluster, since in (
            ("ourtok", "west", now),
            ("easttk", "east", now),
            ("oldtok", "west", now - 3600),
        ):
            token = f"{token_id}.{'s' * 26}"
            await self.create("", "secrets", cluster_token_secret(token, cluster, since))
        used = cluster_token_secret(f"usedtk.{'s' * 26}", "west", now)
        used["metadata"]["annotations"][SPENT_ON] = "uid-x west-other"
        await self.create("", "secrets", used)
        plain = {
            "token-id": "plain1",
            "token-secret": "0123456789abcdef",
            "usage-bootstrap-authentication": "true",
        }
        await self.create_secret("kube-system", "bootstrap-token-plain1", plain, secret_type=TYPE)
        return self

    async def settle(self, request: Object, user: User) -> Object:
        made = await self.create(GROUP, PLURAL, request, user)
        await self.signer.settle(name_of(made))
        return await self.get(GROUP, PLURAL, "", name_of(made))

    async def approve(self, request: Object) -> Object:
        conditions = [{"type": "Approved", "status": "True", "reason": "Operator"}]
        await self.edit(GROUP, PLURAL, request, status={"conditions": conditions})
        await self.signer.settle(name_of(request))
        return await self.get(GROUP, PLURAL, "", name_of(request))


def verdicts(request: Object) -> list[str]:
    return [each["type"] for each in request["status"].get("conditions", [])]


def certificate_in(request: Object) -> x509.Certificate:
    return x509.load_pem_x509_certificate(base64.b64decode(request["status"]["certificate"]))


@pytest.mark.parametrize("user", [WITH_TOKEN, AGENT], ids=["by token", "by certificate"])
async def test_the_agent_of_a_cluster_gets_its_certificate(user: User):
    hub = await SigningHub().start()

    settled = await hub.settle(agent_request(), user)

    certificate = certificate_in(settled)
    assert verdicts(settled) == ["Approved"]
    assert (
        certificate.subject.rfc4514_string()
        == "CN=system:karmada:agent:west,O=system:karmada:agents"
    )
    assert certificate.not_valid_after_utc.timestamp() == hub.clock.now() + 24 * 3600
    certificate.verify_directly_issued_by(
        x509.load_pem_x509_certificate(AUTHORITY.pair.certificate)
    )


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda hostile: hostile.tries)
async def test_a_hostile_request_is_not_signed(hostile: Hostile):
    hub = await SigningHub().start()

    settled = await settle_or_refuse(hub, hostile)

    assert settled is None or "certificate" not in settled["status"]
    assert settled is None or "Approved" not in verdicts(settled)


async def settle_or_refuse(hub: SigningHub, hostile: Hostile) -> Object | None:
    """Return the request as it was settled; None when it was not even taken."""
    try:
        return await hub.settle(hostile.request(), hostile.user)
    except Invalid:
        return None


def test_the_collection_of_hostile_requests_is_large_and_each_is_one_of_a_kind():
    assert len({hostile.tries for hostile in HOSTILE}) == len(HOSTILE)
    assert len(HOSTILE) >= 40


async def test_a_token_gets_one_certificate():
    hub = await SigningHub().start()
    await hub.settle(agent_request("west-first"), WITH_TOKEN)

    second = await hub.settle(agent_request("west-again"), WITH_TOKEN)

    assert verdicts(second) == ["Denied"]
    assert "works once" in second["status"]["conditions"][0]["message"]


async def test_a_refused_request_does_not_use_the_token_up():
    hub = await SigningHub().start()
    await hub.settle(signing_request(pem(groups=("system:nodes",)), "west-wrong"), WITH_TOKEN)

    secret = await hub.get("", "secrets", "kube-system", "bootstrap-token-ourtok")
    right = await hub.settle(agent_request("west-right"), WITH_TOKEN)

    assert SPENT_ON not in annotations_of(secret)
    assert verdicts(right) == ["Approved"]


async def test_a_token_older_than_the_cluster_waits_for_an_operator():
    hub = await SigningHub().start()
    await hub.state.store.put("/registry/cluster.karmada.io/clusters/west", b"{}")

    waiting = await hub.settle(agent_request("west-taken"), WITH_TOKEN)

    assert verdicts(waiting) == []
    assert certificate_in(await hub.approve(waiting)).subject


async def test_a_token_made_for_a_cluster_that_is_there_lets_its_agent_in_again():
    hub = await SigningHub().start()
    await hub.state.store.put("/registry/cluster.karmada.io/clusters/west", b"{}")
    token = cluster_token_secret(f"newtok.{'s' * 26}", "west", hub.clock.now())
    await hub.create("", "secrets", token)

    settled = await hub.settle(agent_request("west-again"), User("system:bootstrap:newtok"))

    assert verdicts(settled) == ["Approved"]


async def test_an_operator_can_have_any_user_signed():
    hub = await SigningHub().start()
    request = signing_request(
        pem(names=("jane",), groups=("dev", "ops")), "jane", signerName=CLIENT_SIGNER
    )
    waiting = await hub.settle(request, OPERATOR)
    assert verdicts(waiting) == []

    signed = await hub.approve(waiting)

    assert certificate_in(signed).subject.rfc4514_string() == "CN=jane,O=ops,O=dev"


@pytest.mark.parametrize(
    ("request_pem", "spec"),
    [
        (pem(names=("jane",), groups=("system:masters",)), {"signerName": CLIENT_SIGNER}),
        (pem(names=("jane",), groups=()), {}),
        (pem(names=(), groups=("dev",)), {"signerName": CLIENT_SIGNER}),
        (pem(names=("jane",)), {"signerName": CLIENT_SIGNER, "usages": ["server auth"]}),
    ],
    ids=["masters", "no agent at the agents' signer", "nobody", "a server"],
)
async def test_even_approved_some_requests_fail(request_pem: bytes, spec: Object):
    hub = await SigningHub().start()
    waiting = await hub.settle(signing_request(request_pem, "odd", **spec), OPERATOR)

    failed = await hub.approve(waiting)

    assert verdicts(failed) == ["Approved", "Failed"]
    assert "certificate" not in failed["status"]


async def test_what_was_denied_stays_denied():
    hub = await SigningHub().start()
    made = await hub.create(GROUP, PLURAL, agent_request(), AGENT)
    conditions = [{"type": "Denied", "status": "True", "reason": "Operator"}]
    await hub.edit(GROUP, PLURAL, made, status={"conditions": conditions})

    await hub.signer.settle(name_of(made))

    assert verdicts(await hub.get(GROUP, PLURAL, "", name_of(made))) == ["Denied"]


async def test_an_agents_certificate_lives_a_day_even_when_an_operator_approves_more():
    hub = await SigningHub().start()
    request = agent_request(signerName=CLIENT_SIGNER, expirationSeconds=31_536_000)
    waiting = await hub.settle(request, OPERATOR)

    signed = await hub.approve(waiting)

    assert certificate_in(signed).not_valid_after_utc.timestamp() == hub.clock.now() + 24 * 3600
