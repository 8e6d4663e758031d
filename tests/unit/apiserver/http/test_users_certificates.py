"""Whom a client certificate names, and from when to when."""

import re

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from clusterspace.apiserver.http.users import read_login
from clusterspace.apiserver.identity.authority import CERTIFICATE_LIFE, Authority
from clusterspace.errors import Unauthorized

NOW = 1_700_000_000.0
AUTHORITY = Authority.create("test", NOW)


def der(user: str, *groups: str) -> bytes:
    pem = AUTHORITY.issue_client(user, groups, NOW).certificate
    certificate = x509.load_pem_x509_certificate(pem)
    return certificate.public_bytes(serialization.Encoding.DER)


def test_a_certificate_names_user_groups_and_times():
    login = read_login(der("jane", "dev", "ops"))

    assert login.user.name == "jane"
    assert login.user.groups == ("dev", "ops", "system:authenticated")
    fingerprint = login.user.extra["authentication.kubernetes.io/credential-id"][0]
    assert re.fullmatch("X509SHA256=[0-9a-f]{64}", fingerprint)
    assert login.starts == NOW - 300
    assert login.ends == NOW - 300 + CERTIFICATE_LIFE.total_seconds()


def test_a_certificate_that_cannot_be_read_is_nobodys():
    with pytest.raises(Unauthorized):
        read_login(b"not DER")
