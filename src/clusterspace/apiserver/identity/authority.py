"""Certificate authorities of our own: EC keys, server and client certificates, and their renewal.

Our own certificates are renewed before they expire, without a restart. An authority is replaced by
another one with an overlap in which both are trusted:

    old                 old signs
    old, new            both are trusted, old signs         (new is made known to everybody)
    new, old            both are trusted, new signs         (certificates are issued anew)
    new                 old is trusted no longer

Whoever hears of none of this trusts the old one alone. For them a server shows, behind its own
certificate, one in which the old authority vouches for the new one.
"""

import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog
from cryptography import x509
from cryptography.exceptions import InvalidSignature
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
            # A length of 1: one day it vouches for the authority that takes its place, and that
            # one signs certificates and no other authorities.
            builder.add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
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

    @property
    def key_id(self) -> str:
        """What certificates call this authority's key, in hex."""
        return key_id_of(self._certificate)

    def vouch_for(self, successor: "Authority") -> bytes:
        """Return a certificate in PEM in which this authority vouches for another one's key.

        Empty when nobody would believe it: earlier authorities were made to sign no others.
        """
        basic = self._certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
        if basic.path_length == 0:
            return b""
        theirs = successor._certificate
        builder = (
            x509.CertificateBuilder()
            .subject_name(theirs.subject)
            .issuer_name(self._certificate.subject)
            .public_key(theirs.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(theirs.not_valid_before_utc)
            .not_valid_after(min(theirs.not_valid_after_utc, self._certificate.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(signs_certificates=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier(bytes.fromhex(successor.key_id)), False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
            )
        )
        return _pem(builder.sign(self._key, hashes.SHA256()))

    def issue_server(self, names: Sequence[str], now: float, *, is_client: bool = False) -> KeyPair:
        """Issue a certificate for a server that is reached by these host names and addresses.

        `is_client` for one that shows it to others of its kind, too, when it connects to them.
        """
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        hosts: list[x509.GeneralName] = []
        for name in names:
            try:
                hosts.append(x509.IPAddress(ipaddress.ip_address(name)))
            except ValueError:
                hosts.append(x509.DNSName(name))
        alternatives = x509.SubjectAlternativeName(hosts)
        usages = [ExtendedKeyUsageOID.SERVER_AUTH]
        if is_client:
            usages.append(ExtendedKeyUsageOID.CLIENT_AUTH)
        return self._issue(subject, now, usages, alternatives)

    def issue_client(self, user: str, groups: Sequence[str], now: float) -> KeyPair:
        """Issue a certificate that logs in as a user with groups."""
        attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
        attributes.append(x509.NameAttribute(NameOID.COMMON_NAME, user))
        return self._issue(x509.Name(attributes), now, [ExtendedKeyUsageOID.CLIENT_AUTH], None)

    def _issue(
        self,
        subject: x509.Name,
        now: float,
        usages: Sequence[x509.ObjectIdentifier],
        alternatives: x509.SubjectAlternativeName | None,
    ) -> KeyPair:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self._certificate.subject
        builder = (
            _builder(subject, issuer, key.public_key(), now, CERTIFICATE_LIFE)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), False
            )
        )
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        return KeyPair(_pem(builder.sign(self._key, hashes.SHA256())), _key_pem(key))


def key_id_of(certificate: x509.Certificate) -> str:
    """Return what certificates that an authority signs call its key, in hex."""
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
    except x509.ExtensionNotFound:
        computed = x509.SubjectKeyIdentifier.from_public_key(certificate.public_key())
        return computed.digest.hex()
    return found.value.digest.hex()


def signer_of(certificate_pem: bytes) -> str:
    """Return which key signed a certificate, in hex; empty when it does not say."""
    extensions = x509.load_pem_x509_certificate(certificate_pem).extensions
    try:
        found = extensions.get_extension_for_class(x509.AuthorityKeyIdentifier)
    except x509.ExtensionNotFound:
        return ""
    return (found.value.key_identifier or b"").hex()


def read_bundle(bundle: bytes) -> tuple[x509.Certificate, ...]:
    """Return the certificates of a PEM file; UnreadableCertificate when there are none."""
    try:
        return tuple(x509.load_pem_x509_certificates(bundle))
    except ValueError as error:
        raise UnreadableCertificate(f"the authorities' PEM cannot be read: {error}") from error


@dataclass(frozen=True)
class Authorities:
    """Whom an installation trusts: the authority that signs, and those that came before or will."""

    signing: Authority
    others: tuple[x509.Certificate, ...] = ()
    chain: bytes = b""
    """What a server shows behind its own certificate, in PEM."""
    key_ids: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        ids = {self.signing.key_id, *map(key_id_of, self.others)}
        object.__setattr__(self, "key_ids", frozenset(ids))

    @classmethod
    def load(cls, bundle: bytes, key: bytes, chain: bytes = b"") -> "Authorities":
        """Read the trusted authorities; the one whose key this is signs, wherever it stands.

        So one file says who signs, and to replace it is one step: before and after it the key
        belongs to an authority that is trusted.
        """
        trusted = read_bundle(bundle)
        try:
            private = serialization.load_pem_private_key(key, password=None)
        except (ValueError, TypeError) as error:
            raise UnreadableCertificate(f"the authority's key cannot be read: {error}") from error
        if not isinstance(private, ec.EllipticCurvePrivateKey):
            raise UnreadableCertificate("the authority's key is not an EC key")
        public = private.public_key()
        own = [each for each in trusted if each.public_key() == public]
        if not own:
            raise UnreadableCertificate("the authority's key is that of no trusted authority")
        others = tuple(each for each in trusted if each.public_key() != public)
        vouching = read_bundle(chain) if chain else ()
        about_us = b"".join(_pem(each) for each in vouching if each.public_key() == public)
        return cls(Authority(own[0], private), others, about_us)

    @property
    def bundle(self) -> bytes:
        """All of them in PEM, the one that signs first."""
        return self.signing.pair.certificate + b"".join(map(_pem, self.others))

    def issue_server(self, names: Sequence[str], now: float) -> KeyPair:
        """Issue a certificate for a server, with what else it has to show."""
        pair = self.signing.issue_server(names, now)
        return KeyPair(pair.certificate + self.chain, pair.key)


class TrustBundle:
    """The trusted authorities in PEM, as they are now; who publishes them hears of changes."""

    def __init__(self, pem: bytes) -> None:
        self.pem = pem
        self._listeners: list[Callable[[], None]] = []

    def replace(self, pem: bytes) -> None:
        """Trust these from now on."""
        if pem != self.pem:
            self.pem = pem
            for listener in tuple(self._listeners):
                listener()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call somebody at every change; return what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)


def is_vouched_for(certificate_der: bytes, bundle: bytes) -> bool:
    """Whether a certificate that does not say who signed it was signed by a trusted authority."""
    certificate = x509.load_der_x509_certificate(certificate_der)
    for each in read_bundle(bundle):
        try:
            certificate.verify_directly_issued_by(each)
        except (ValueError, TypeError, InvalidSignature):
            continue
        return True
    return False


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
