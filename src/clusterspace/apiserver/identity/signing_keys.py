"""The key behind service-account tokens: EC P-256, known to verifiers by its digest."""

import base64
import hashlib

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from clusterspace.errors import ClusterspaceError


class UnreadableSigningKey(ClusterspaceError):
    """A PEM that does not hold an EC P-256 private key."""


class SigningKey:
    """A private key that signs tokens, and the public half that checks them."""

    def __init__(self, private: ec.EllipticCurvePrivateKey) -> None:
        self.private = private
        self.public = private.public_key()
        self.key_id = _key_id(self.public)

    @classmethod
    def create(cls) -> "SigningKey":
        """Make a new key."""
        return cls(ec.generate_private_key(ec.SECP256R1()))

    @classmethod
    def load(cls, pem: bytes) -> "SigningKey":
        """Read a key from PEM."""
        try:
            key = serialization.load_pem_private_key(pem, password=None)
        except (ValueError, TypeError) as error:
            raise UnreadableSigningKey(f"the signing key's PEM cannot be read: {error}") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
            raise UnreadableSigningKey("the signing key is not an EC P-256 key")
        return cls(key)

    @property
    def pem(self) -> bytes:
        """The private key, to be kept where only the hub can read it."""
        return self.private.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )


def _key_id(public: ec.EllipticCurvePublicKey) -> str:
    """Name a key by the digest of its public half, as Kubernetes does."""
    encoded = public.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return base64.urlsafe_b64encode(hashlib.sha256(encoded).digest()).decode().rstrip("=")
