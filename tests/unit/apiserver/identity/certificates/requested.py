"""Certificate requests, honest and otherwise, as their makers would build them."""

import base64
from collections.abc import Sequence
from functools import cache
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from clusterspace.apis.identities import AGENT_SIGNER, AGENTS
from clusterspace.kube.objects import Object

WEST = "system:karmada:agent:west"
USAGES = ("digital signature", "client auth")


@cache
def key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def pem(
    *,
    names: Sequence[str] = (WEST,),
    groups: Sequence[str] = (AGENTS,),
    others: Sequence[x509.NameAttribute[str]] = (),
    extensions: Sequence[x509.ExtensionType] = (),
    password: bytes = b"",
    signed_by: Any = None,
) -> bytes:
    """Return a request in PEM; by default the one the agent of `west` makes."""
    attributes = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, each) for each in groups]
    attributes += [x509.NameAttribute(NameOID.COMMON_NAME, each) for each in names]
    subject = x509.Name([*attributes, *others])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    if password:
        challenge = x509.oid.AttributeOID.CHALLENGE_PASSWORD
        builder = builder.add_attribute(challenge, password)
    signed = builder.sign(signed_by or key(), hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM)


def signing_request(request: bytes, name: str = "west-abcde", **spec: Any) -> Object:
    """Return a CertificateSigningRequest for the agents' signer."""
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {
            "request": base64.b64encode(request).decode(),
            "signerName": AGENT_SIGNER,
            "usages": list(USAGES),
            **spec,
        },
    }


def agent_request(name: str = "west-abcde", **spec: Any) -> Object:
    """Return what the agent of `west` asks for."""
    return signing_request(pem(), name, **spec)
