"""Throw-away certificates for tests: an authority that writes PEM files into a directory."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_YEAR = datetime.timedelta(days=365)


class Authority:
    """Signs certificates; its own is `<name>.crt`."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _subject(f"test {name}", "")
        basic = x509.BasicConstraints(ca=True, path_length=None)
        builder = _builder(self._name, self._name, self._key.public_key())
        self._write(name, builder.add_extension(basic, critical=True))

    def issue(self, file_name: str, *, user: str = "", group: str = "", host: str = "") -> bytes:
        """Write `<file_name>.crt` and `.key`; return the certificate in DER."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_subject(user or host, group), self._name, key.public_key())
        usage = ExtendedKeyUsageOID.SERVER_AUTH if host else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if host:
            address = x509.IPAddress(ipaddress.ip_address(host))
            builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        (self._directory / f"{file_name}.key").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return self._write(file_name, builder)

    def _write(self, file_name: str, builder: x509.CertificateBuilder) -> bytes:
        certificate = builder.sign(self._key, hashes.SHA256())
        pem = certificate.public_bytes(serialization.Encoding.PEM)
        (self._directory / f"{file_name}.crt").write_bytes(pem)
        return certificate.public_bytes(serialization.Encoding.DER)


def _subject(common_name: str, organization: str) -> x509.Name:
    names = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        names.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(names)


def _builder(
    subject: x509.Name, issuer: x509.Name, public_key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _YEAR)
        .not_valid_after(now + _YEAR)
    )
