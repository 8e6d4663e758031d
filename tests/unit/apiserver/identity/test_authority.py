"""The installation's own authority: what it issues is what it says, and nothing more."""

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

from clusterspace.apiserver.http.users import read_login
from clusterspace.apiserver.identity.authority import (
    Authority,
    KeyPair,
    UnreadableCertificate,
    expires_at,
    server_names,
)

NOW = 1_700_000_000.0
AUTHORITY = Authority.create("test", NOW)
DAY = 24 * 3600.0


def loaded(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def der(pair: KeyPair) -> bytes:
    return loaded(pair.certificate).public_bytes(serialization.Encoding.DER)


def test_a_client_certificate_names_its_user_and_groups() -> None:
    pair = AUTHORITY.issue_client("alice", ("system:masters", "dev"), NOW)

    user = read_login(der(pair)).user
    assert (user.name, user.groups[:2]) == ("alice", ("system:masters", "dev"))
    loaded(pair.certificate).verify_directly_issued_by(loaded(AUTHORITY.pair.certificate))


def test_a_client_certificate_cannot_serve_and_a_server_certificate_cannot_log_in() -> None:
    client = loaded(AUTHORITY.issue_client("alice", (), NOW).certificate)
    server = loaded(AUTHORITY.issue_server(("localhost",), NOW).certificate)

    def usage(held: x509.Certificate) -> list[x509.ObjectIdentifier]:
        return list(held.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)

    assert usage(client) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert usage(server) == [ExtendedKeyUsageOID.SERVER_AUTH]


def test_only_the_authority_can_sign() -> None:
    issued = loaded(AUTHORITY.issue_client("alice", (), NOW).certificate)
    own = loaded(AUTHORITY.pair.certificate)

    def is_authority(held: x509.Certificate) -> bool:
        return held.extensions.get_extension_for_class(x509.BasicConstraints).value.ca

    assert is_authority(own)
    assert not is_authority(issued)


def test_a_server_certificate_is_for_its_names_and_addresses() -> None:
    pair = AUTHORITY.issue_server(("localhost", "127.0.0.1", "::1", "hub.example.com"), NOW)

    names = server_names(pair.certificate)

    assert names == {"localhost", "127.0.0.1", "::1", "hub.example.com"}


def test_a_new_certificate_is_valid_at_once_even_where_clocks_are_behind() -> None:
    pair = AUTHORITY.issue_client("alice", (), NOW)
    start = loaded(pair.certificate).not_valid_before_utc

    assert start < datetime.datetime.fromtimestamp(NOW - 60, datetime.UTC)
    assert NOW + 364 * DAY < expires_at(pair.certificate) < NOW + 366 * DAY
    assert expires_at(AUTHORITY.pair.certificate) > NOW + 3000 * DAY


def test_an_authority_is_the_same_after_it_was_written_and_read() -> None:
    again = Authority.load(AUTHORITY.pair)
    pair = again.issue_client("bob", (), NOW)

    loaded(pair.certificate).verify_directly_issued_by(loaded(AUTHORITY.pair.certificate))


def test_what_is_no_authority_is_refused() -> None:
    other = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    with pytest.raises(UnreadableCertificate, match="PEM"):
        Authority.load(KeyPair(b"nothing", b"nothing"))
    with pytest.raises(UnreadableCertificate, match="EC key"):
        Authority.load(KeyPair(AUTHORITY.pair.certificate, other))
