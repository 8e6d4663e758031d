"""What an agent knows of its hub and shows to it, and how long that lasts."""

from base64 import b64decode
from random import Random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.fleet.membership.agent_certificates import START, keyed_certificate

from clusterspace.apiserver.identity.certificates.requests import (
    Approved,
    Requester,
    judge_request,
    read_asked,
)
from clusterspace.errors import CannotJoin, UnusableKubeconfig
from clusterspace.fleet.membership import manifests
from clusterspace.fleet.membership.manifests import NOWHERE, Location
from clusterspace.fleet.membership.pull_join import FoundHub
from clusterspace.fleet.membership.registration import (
    LONGEST_NAME,
    AgentCredentials,
    KeyedCertificate,
    is_readable,
    is_renewal_due,
    read_registration,
    refusal_of,
    refuse_name,
    registration_secret,
    request_name,
    request_object,
)
from clusterspace.kube.objects import annotations_of, with_metadata, with_value


def test_the_hub_approves_what_an_agent_asks_for() -> None:
    name = "w" * LONGEST_NAME
    request = request_object(f"{name}-abcde", name, ec.generate_private_key(ec.SECP256R1()))

    assert judge_request(read_asked(request), Requester(cluster=name)) == Approved()


@pytest.mark.parametrize("name", ["w" * (LONGEST_NAME + 1), "West", "hub", ""])
def test_a_name_no_certificate_can_hold_is_refused(name: str) -> None:
    with pytest.raises(CannotJoin):
        refuse_name(name)


def test_a_request_holds_the_key_that_stays_here_by_its_public_half_only() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    request = request_object("west-abcde", "west", key)

    pem = b64decode(request["spec"]["request"])
    assert b"PRIVATE" not in pem
    assert x509.load_pem_x509_csr(pem).public_key() == key.public_key()


def test_requests_have_names_their_agent_may_read() -> None:
    name = request_name("west", Random(1))

    assert name.startswith("west-")
    assert len(name) == len("west-") + 5


def test_a_certificate_is_renewed_when_half_of_its_life_is_over() -> None:
    certificate = keyed_certificate(seconds=1000).certificate

    assert not is_renewal_due(certificate, START + 499)
    assert is_renewal_due(certificate, START + 500)


def test_a_certificate_without_its_key_is_not_used() -> None:
    held = keyed_certificate()

    assert is_readable(held)
    assert not is_readable(KeyedCertificate(held.certificate, b""))
    assert not is_readable(KeyedCertificate(b"nonsense", held.key))


def test_a_key_is_not_shown_in_logs() -> None:
    assert "PRIVATE" not in repr(keyed_certificate())


async def test_a_new_certificate_comes_with_its_own_key() -> None:
    first, second = keyed_certificate(), keyed_certificate()
    credentials = AgentCredentials(b"authority", first)
    credentials.current = second

    material = (await credentials.get()).material
    assert (material.certificate, material.key) == (second.certificate, second.key)


def test_a_refusal_is_told_in_the_hubs_words() -> None:
    denied = {"type": "Denied", "status": "True", "reason": "NotAllowed", "message": "used before"}

    assert refusal_of({"status": {"conditions": [denied]}}) == "used before"
    assert refusal_of({"status": {}}) == ""


HELD = keyed_certificate()
HUB = FoundHub("https://hub.example:6443", HELD.certificate)


@given(st.from_regex(r"[a-z][a-z0-9-]{0,40}[a-z0-9]", fullmatch=True))
def test_an_agent_reads_what_the_registration_wrote(cluster_name: str) -> None:
    read = read_registration(
        registration_secret(cluster_name, HUB.server, HUB.authority, HELD, "sha256:00")
    )

    assert (read.cluster_name, read.hub.server) == (cluster_name, HUB.server)
    assert (read.authority, read.keyed) == (HUB.authority, HELD)
    assert not read.hub.trust.skips_verification


def test_a_registration_of_somebody_else_is_refused() -> None:
    secret = registration_secret("west", HUB.server, HUB.authority, HELD, "sha256:00")

    with pytest.raises(UnusableKubeconfig, match="which cluster this is"):
        read_registration(with_metadata(secret, annotations={}))
    with pytest.raises(UnusableKubeconfig, match="karmada-kubeconfig"):
        read_registration(with_value(secret, {}, "data"))


def test_everything_on_the_member_carries_the_mark_of_its_hub() -> None:
    mark = "sha256:00"
    made = [
        manifests.agent_namespace(mark),
        manifests.agent_account(mark),
        manifests.agent_role(mark),
        manifests.agent_role_binding(mark),
        manifests.agent_deployment("clusterspace:1", mark),
        registration_secret("west", HUB.server, HUB.authority, HELD, mark),
    ]

    assert {annotations_of(each)[manifests.HUB_MARK] for each in made} == {mark}


def test_the_hub_is_given_no_way_into_a_pull_cluster() -> None:
    cluster = manifests.cluster("west", "id-1", location=NOWHERE)

    assert cluster["spec"] == {"syncMode": "Pull", "id": "id-1"}


def test_a_pull_cluster_says_where_it_runs() -> None:
    cluster = manifests.cluster("west", "id-1", location=Location("acme", "north", ("n1", "n2")))

    assert cluster["spec"]["zones"] == ["n1", "n2"]
    assert (cluster["spec"]["provider"], cluster["spec"]["region"]) == ("acme", "north")
