"""A certificate authority of our own: EC keys, server and client certificates, and their renewal.

Our own certificates are renewed before they expire, without a restart.
"""

import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.users import BACKDATED_SECONDS
from clusterspace.errors import ClusterspaceError

_log = structlog.get_logger(__name__)

BACKDATED: Final = timedelta(seconds=BACKDATED_SECONDS)

AUTHORITY_LIFE: Final = timedelta(days=3650)
CERTIFICATE_LIFE: Final = timedelta(days=365)

RENEWED_AT: Final = 0.8
"""The share of its life after which a certificate is renewed: there is time to notice a failure."""

LOOK_SECONDS: Final = 3600.0
RETRY_SECONDS: Final = 60.0


class UnreadableCertificate(ClusterspaceError):
    """A certificate or key that cannot be read."""


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A certificate and its private key, in PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """A certificate authority that can issue."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, name: str, now: float) -> "Authority":
        """Make a new authority that signs itself."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = _builder(subject, subject, key.public_key(), now, AUTHORITY_LIFE)
        certificate = (
            # A length of 0: it signs certificates, and no other authorities.
            builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key)

    @classmethod
    def load(cls, pair: KeyPair) -> "Authority":
        """Read an authority from PEM."""
        try:
            certificate = x509.load_pem_x509_certificate(pair.certificate)
            key = serialization.load_pem_private_key(pair.key, password=None)
        except ValueError as error:
            raise UnreadableCertificate(f"the authority's PEM cannot be read: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise UnreadableCertificate("the authority's key is not an EC key")
        return cls(certificate, key)

    @property
    def pair(self) -> KeyPair:
        """The authority's own certificate and key."""
        return KeyPair(_pem(self._certificate), _key_pem(self._key))

    def issue_server(self, names: Sequence[str], now: float) -> KeyPair:
        """Issue a certificate for a server that is reached by these host names and addresses."""
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        hosts: list[x509.GeneralName] = []
        for name in names:
            try:
                hosts.append(x509.IPAddress(ipaddress.ip_address(name)))
            except ValueError:
                hosts.append(x509.DNSName(name))
        alternatives = x509.SubjectAlternativeName(hosts)
        return self._issue(subject, now, ExtendedKeyUsageOID.SERVER_AUTH, alternatives)

    def issue_client(self, user: str, groups: Sequence[str], now: float) -> KeyPair:
        """Issue a certificate that logs in as a user with groups."""
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        return self._issue(x509.Name(attributes), now, ExtendedKeyUsageOID.CLIENT_AUTH, None)

    def _issue(
        self,
        subject: x509.Name,
        now: float,
        usage: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self._certificate.subject
        builder = (
            _builder(subject, issuer, key.public_key(), now, CERTIFICATE_LIFE)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
            )
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        return KeyPair(_pem(builder.sign(self._key, hashes.SHA256())), _key_pem(key))


def expires_at(certificate_pem: bytes) -> float:
    """Return when a certificate ends, in seconds since 1970."""
    return x509.load_pem_x509_certificate(certificate_pem).not_valid_after_utc.timestamp()


def organizations(certificate_pem: bytes) -> tuple[str, ...]:
    """Return the groups a client certificate logs in with."""
    subject = x509.load_pem_x509_certificate(certificate_pem).subject
    return tuple(
        str(each.value) for each in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    )


def server_names(certificate_pem: bytes) -> frozenset[str]:
    """Return the host names and addresses a server certificate is for."""
    extensions = x509.load_pem_x509_certificate(certificate_pem).extensions
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    hosts = names.get_values_for_type(x509.DNSName)
    addresses = names.get_values_for_type(x509.IPAddress)
    return frozenset([*hosts, *map(str, addresses)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: float,
    life: timedelta,
) -> x509.CertificateBuilder:
    start = datetime.fromtimestamp(now, UTC) - BACKDATED
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + life)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def needs_renewal(certificate_pem: bytes, now: float) -> bool:
    """Whether most of a certificate's life is over."""
    certificate = x509.load_pem_x509_certificate(certificate_pem)
    start = certificate.not_valid_before_utc.timestamp()
    end = certificate.not_valid_after_utc.timestamp()
    return now >= start + RENEWED_AT * (end - start)


async def renew_forever(
    clock: Clock, current: Callable[[], Sequence[bytes]], renew: Callable[[float], None]
) -> None:
    """Look at the current certificates now and then; when one is due, renew. Until cancelled.

    `renew` makes new ones, writes them where `current` reads them and puts them to use.
    """
    while True:
        now = clock.now()
        is_due = any(needs_renewal(each, now) for each in current())
        while is_due:
            try:
                renew(clock.now())
            except (OSError, ClusterspaceError) as error:
                # A full disk must not end the hub's life: there is a fifth of its life left.
                _log.error("certificates were not renewed", reason=str(error))
                await clock.sleep(RETRY_SECONDS)
                continue
            _log.info("certificates renewed")
            is_due = False
        await clock.sleep(LOOK_SECONDS)
