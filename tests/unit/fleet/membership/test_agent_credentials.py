"""What an agent asks a certificate for, and when it asks for the next one."""

from base64 import b64decode
from random import Random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from tests.unit.fleet.membership.agent_certificates import START, keyed_certificate

from clusterspace.apiserver.identity.certificates.requests import (
    Approved,
    Requester,
    judge_request,
    read_asked,
)
from clusterspace.errors import CannotJoin
from clusterspace.fleet.membership.agent_credentials import (
    LONGEST_NAME,
    AgentCredentials,
    KeyedCertificate,
    is_readable,
    is_renewal_due,
    refusal_of,
    refuse_name,
    request_name,
    request_object,
)


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
    credentials.held = second

    material = (await credentials.get()).material
    assert (material.certificate, material.key) == (second.certificate, second.key)


def test_a_refusal_is_told_in_the_hubs_words() -> None:
    denied = {"type": "Denied", "status": "True", "reason": "NotAllowed", "message": "used before"}

    assert refusal_of({"status": {"conditions": [denied]}}) == "used before"
    assert refusal_of({"status": {}}) == ""
