"""What a certificate request asks for, and what cannot be read."""

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from tests.unit.apiserver.identity.certificates.requested import agent_request, pem, signing_request

from clusterspace.apiserver.identity.certificates.requests import (
    UnreadableRequest,
    read_asked,
)


def test_everything_that_matters_is_read():
    asked = read_asked(agent_request(expirationSeconds=700))

    assert asked.common_names == ("system:karmada:agent:west",)
    assert asked.organizations == ("system:karmada:agents",)
    assert asked.seconds == 700
    assert asked.usages == {"digital signature", "client auth"}
    assert not asked.has_other_names
    assert not asked.has_attributes


@pytest.mark.parametrize(
    "key",
    [
        ec.generate_private_key(ec.SECP384R1()),
        ec.generate_private_key(ec.SECP521R1()),
        rsa.generate_private_key(65537, 2048),
    ],
    ids=["P-384", "P-521", "RSA 2048"],
)
def test_strong_keys_are_taken(key: object):
    assert read_asked(signing_request(pem(signed_by=key))).common_names


@pytest.mark.parametrize(
    "request_pem",
    [b"", b"not PEM", pem()[:100], b"\xff" * 50],
    ids=["nothing", "not PEM", "cut short", "not text"],
)
def test_what_is_no_request_cannot_be_read(request_pem: bytes):
    with pytest.raises(UnreadableRequest):
        read_asked(signing_request(request_pem))
