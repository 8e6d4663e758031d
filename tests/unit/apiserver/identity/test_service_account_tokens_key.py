"""The key behind service-account tokens."""

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from clusterspace.apiserver.identity.service_account_tokens import SigningKey, UnreadableSigningKey

_PLAIN = (
    serialization.Encoding.PEM,
    serialization.PrivateFormat.PKCS8,
    serialization.NoEncryption(),
)


def test_a_key_read_back_is_the_same_key():
    key = SigningKey.create()

    assert SigningKey.load(key.pem).key_id == key.key_id


@pytest.mark.parametrize(
    "pem",
    [
        b"",
        b"not a key",
        ec.generate_private_key(ec.SECP384R1()).private_bytes(*_PLAIN),
        rsa.generate_private_key(65537, 2048).private_bytes(*_PLAIN),
    ],
)
def test_a_pem_of_anything_else_is_refused(pem: bytes):
    with pytest.raises(UnreadableSigningKey):
        SigningKey.load(pem)
