"""An OIDC issuer for tests: a process of its own, the keys it signs with, and what it is asked."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from clusterspace.apiserver.identity.authority import Authority
from clusterspace.testing.steps import until

ROOT = Path(__file__).resolve().parents[2]
USERNAME = {"claim": "sub", "prefix": "sso:"}


@dataclass
class Issuer:
    """A running issuer, and its keys."""

    directory: Path
    url: str
    authority: str
    key: Any
    key_id: str = "one"

    def roll(self, key: Any, key_id: str) -> None:
        self.key, self.key_id = key, key_id
        self.publish()

    def publish(self, **discovery: Any) -> None:
        key, algorithm = self.key.public_key(), "RS256"
        if isinstance(self.key, ec.EllipticCurvePrivateKey):
            algorithm, public = "ES256", json.loads(ECAlgorithm.to_jwk(key))
        else:
            public = json.loads(RSAAlgorithm.to_jwk(key))
        odd = [{"kty": "odd"}, "nonsense", {**public, "kid": self.key_id, "alg": algorithm}]
        (self.directory / "jwks.json").write_text(json.dumps({"keys": odd}))
        document = {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/keys",
            "authorization_endpoint": f"{self.url}/authorize?tenant=one",
            "token_endpoint": f"{self.url}/token",
            **discovery,
        }
        (self.directory / "discovery.json").write_text(json.dumps(document))

    def token(self, kid: str = "", key: Any = None, **claims: Any) -> str:
        now = time.time()
        body = {
            "iss": self.url,
            "sub": "jane",
            "aud": "kubernetes",
            "iat": now,
            "exp": now + 600,
            **claims,
        }
        algorithm = "ES256" if isinstance(self.key, ec.EllipticCurvePrivateKey) else "RS256"
        shown = {key: value for key, value in body.items() if value is not None}
        return jwt.encode(shown, key or self.key, algorithm, {"kid": kid or self.key_id})

    def behave(self, **how: Any) -> None:
        """Say how people who come to log in are answered: as `oidc_issuer` does, or otherwise."""
        (self.directory / "behaviour.json").write_text(json.dumps(how))

    def asked(self) -> int:
        file = self.directory / "asked"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def config(self, **entry: Any) -> Any:
        issuer = {
            "url": self.url,
            "audiences": ["kubernetes"],
            "certificateAuthority": self.authority,
            **entry.pop("issuer", {}),
        }
        mappings = {"username": USERNAME, **entry.pop("claimMappings", {})}
        return {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AuthenticationConfiguration",
            "jwt": [{"issuer": issuer, "claimMappings": mappings, **entry}],
        }


@asynccontextmanager
async def running_issuer(directory: Path) -> AsyncGenerator[Issuer]:
    """Run an issuer for as long as the block lasts."""
    now = time.time()
    authority = Authority.create("sso", now)
    pair = authority.issue_server(["127.0.0.1"], now)
    (directory / "tls.crt").write_bytes(pair.certificate)
    (directory / "tls.key").write_bytes(pair.key)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.component.oidc_issuer", str(directory), cwd=ROOT
    )
    try:
        port = await until(lambda: read_text(directory / "port"))
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        signing = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        (directory / "signing.pem").write_bytes(signing)
        running = Issuer(
            directory, f"https://127.0.0.1:{port}", authority.pair.certificate.decode(), key
        )
        running.publish()
        yield running
    finally:
        process.kill()
        await process.wait()


def read_text(file: Path) -> str:
    return file.read_text() if file.exists() else ""
