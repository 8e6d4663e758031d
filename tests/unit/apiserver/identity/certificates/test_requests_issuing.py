"""What a signer issues, whatever was asked for."""

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID
from tests.unit.apiserver.identity.certificates.requested import (
    agent_request,
    key,
    pem,
    signing_request,
)

from clusterspace.apiserver.identity.authority import AUTHORITY_LIFE, Authority
from clusterspace.apiserver.identity.certificates.requests import (
    CLIENT_SIGNER,
    Issuer,
    Terms,
    plan_certificate,
    read_asked,
)

NOW = 1_700_000_000.0
AUTHORITY = Authority.create("test", NOW)
YEAR = 365 * 24 * 3600


@pytest.mark.parametrize(
    ("seconds", "granted"), [(None, YEAR), (600, 600), (YEAR, YEAR), (10 * YEAR, YEAR)]
)
def test_a_user_lives_as_long_as_asked_and_a_year_at_most(seconds: int | None, granted: int):
    request = signing_request(
        pem(names=("jane",), groups=("dev",)), signerName=CLIENT_SIGNER, expirationSeconds=seconds
    )

    assert plan_certificate(read_asked(request)) == Terms("jane", ("dev",), granted)


def issued(terms: Terms, now: float = NOW) -> x509.Certificate:
    signed = Issuer(AUTHORITY.pair).issue(read_asked(agent_request()), terms, now)
    return x509.load_pem_x509_certificate(signed)


def test_a_certificate_logs_in_and_does_nothing_else():
    certificate = issued(Terms("jane", ("dev",), 600))

    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints)
    assert constraints.critical
    assert not constraints.value.ca
    assert not any(
        isinstance(each.value, x509.SubjectAlternativeName) for each in certificate.extensions
    )
    assert certificate.public_key() == key().public_key()


def test_extensions_that_were_asked_for_are_not_taken_over():
    names = x509.SubjectAlternativeName([x509.DNSName("hub")])
    authority = x509.BasicConstraints(ca=True, path_length=None)
    request = signing_request(pem(extensions=(names, authority)))

    signed = Issuer(AUTHORITY.pair).issue(read_asked(request), Terms("jane", (), 600), NOW)

    extensions = x509.load_pem_x509_certificate(signed).extensions
    assert not extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert x509.SubjectAlternativeName not in {type(each.value) for each in extensions}


def test_no_certificate_outlives_the_authority():
    late = NOW + AUTHORITY_LIFE.total_seconds() - 3600

    certificate = issued(Terms("jane", (), YEAR), late)

    authority = x509.load_pem_x509_certificate(AUTHORITY.pair.certificate)
    assert certificate.not_valid_after_utc == authority.not_valid_after_utc
