"""Certificates for the unit tests of agents."""

from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from clusterspace.fleet.membership.registration import KeyedCertificate

START = 1_800_000_000.0


def keyed_certificate(*, name: str = "west", seconds: float = 1000.0) -> KeyedCertificate:
    """Return a certificate that signs itself and lives for some seconds from START."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    start = datetime.fromtimestamp(START, UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + timedelta(seconds=seconds))
        .sign(key, hashes.SHA256())
    )
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return KeyedCertificate(certificate.public_bytes(serialization.Encoding.PEM), pem)
