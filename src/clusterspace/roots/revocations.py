"""`certs revoke`, `revoked` and `reinstate`: the hub's list of credentials that count no longer."""

import hashlib
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.http.revocations import (
    CERTIFICATE,
    NAME,
    NAMESPACE,
    SERIAL,
    USER,
    read_entry,
    read_revocations,
    revoked_until,
    user_key,
)
from clusterspace.apiserver.http.users import read_login
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.settings import ConnectionSettings
from clusterspace.controllers.commit import commit
from clusterspace.errors import AlreadyExists, ClusterspaceError, Conflict, Unauthorized
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.kube.times import format_time
from clusterspace.roots.clients import open_client, read_pem

_LIST: Final = ResourcePath(GroupVersionResource("", "v1", "configmaps"), NAMESPACE, NAME)


class CannotRevoke(ClusterspaceError):
    """What was given names no credential, or the one it is done with."""


@dataclass(frozen=True, slots=True)
class Revocation:
    """One entry of the list: its key, and what it says."""

    key: str
    entry: dict[str, Any]

    @classmethod
    def of_certificate(cls, pem: bytes, reason: str = "") -> "Revocation":
        """Return the entry for one certificate; nobody needs it after the certificate's end."""
        try:
            certificate = x509.load_pem_x509_certificate(pem)
            login = read_login(certificate.public_bytes(Encoding.DER))
        except (ValueError, Unauthorized) as error:
            raise CannotRevoke("the file holds no client certificate in PEM") from error
        about = {"user": login.user.name, "until": format_time(login.ends), "reason": reason}
        return cls(CERTIFICATE + login.fingerprint, about)

    @classmethod
    def of_fingerprint(cls, text: str, reason: str = "") -> "Revocation":
        """Return the entry for the certificate with this SHA-256, with colons or without."""
        digest = text.lower().removeprefix("x509sha256=").removeprefix("sha256:").replace(":", "")
        if len(digest) != hashlib.sha256().digest_size * 2 or not _is_hex(digest):
            raise CannotRevoke("a fingerprint is a SHA-256 of 64 hexadecimal digits")
        return cls(CERTIFICATE + digest, {"reason": reason})

    @classmethod
    def of_serial(cls, text: str, reason: str = "") -> "Revocation":
        """Return the entry for the certificate with this serial number, in hex."""
        digits = text.lower().removeprefix("0x").replace(":", "").lstrip("0")
        if not _is_hex(digits):
            raise CannotRevoke("a serial number is written in hexadecimal digits")
        return cls(SERIAL + digits, {"reason": reason})

    @classmethod
    def of_user(cls, name: str, now: float, reason: str = "") -> "Revocation":
        """Return the entry for every certificate that was issued to a user until now."""
        about = {"user": name, "before": format_time(now), "reason": reason}
        return cls(user_key(name), about)

    @classmethod
    def of_all(cls, name: str, reason: str = "") -> "Revocation":
        """Return the entry that refuses a user whatever they show."""
        return cls(user_key(name), {"user": name, "all": True, "reason": reason})


def _is_hex(text: str) -> bool:
    return bool(text) and all(each in "0123456789abcdef" for each in text)


async def revoke(
    hub: ConnectionSettings, revocation: Revocation, *, spares_caller: bool = True
) -> None:
    """Enter a credential; entries of certificates that have ended since go.

    CannotRevoke when it is the certificate this is done with, unless told that this is meant.
    """
    now = SystemClock().now()
    said = {key: value for key, value in revocation.entry.items() if value}
    added = {revocation.key: msgspec.json.encode(said).decode()}
    own = read_pem(hub.identity.certificate)
    if spares_caller and own:
        certificate = x509.load_pem_x509_certificate(own)
        login = read_login(certificate.public_bytes(Encoding.DER))
        if read_revocations(added).covers(login):
            why = f"this is the certificate of {login.user.name!r} that you are logged in with"
            raise CannotRevoke(f"{why}: --including-me does it all the same")
    async with open_client(hub) as client:
        while True:
            existing = await client.find(_LIST)
            if existing is None:
                made = {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": NAME, "namespace": NAMESPACE},
                    "data": added,
                }
                try:
                    await client.create(_LIST.collection, made)
                except AlreadyExists:
                    continue  # somebody was quicker: ours goes beside theirs
                return
            data: dict[str, str] = existing.get("data") or {}
            kept = {
                key: text
                for key, text in data.items()
                if "until" not in (entry := read_entry(text)) or revoked_until(entry["until"]) > now
            }
            try:
                await commit(client, _LIST, existing, {**existing, "data": {**kept, **added}})
            except Conflict:
                continue
            return


@dataclass(frozen=True, slots=True)
class RevokedCredential:
    """One entry, as people read it."""

    key: str
    what: str
    user: str
    since: str
    reason: str


async def list_revoked(hub: ConnectionSettings) -> list[RevokedCredential]:
    """Return what is revoked, in the order of keys."""
    async with open_client(hub) as client:
        found = await client.find(_LIST)
    data: dict[str, str] = (found or {}).get("data") or {}
    return [_described(key, read_entry(text)) for key, text in sorted(data.items())]


def _described(key: str, entry: dict[str, Any]) -> RevokedCredential:
    what, since = "unknown: it revokes nothing", ""
    if key.startswith(CERTIFICATE):
        what = "one certificate"
    elif key.startswith(SERIAL):
        what = "one certificate, by its serial number"
    elif key.startswith(USER) and entry.get("all") is True:
        what = "every credential"
    elif key.startswith(USER):
        what, since = "certificates issued until", str(entry.get("before", ""))
    said = {name: str(entry.get(name, "")) for name in ("user", "reason")}
    return RevokedCredential(key, what, said["user"], since, said["reason"])


async def reinstate(hub: ConnectionSettings, key: str) -> None:
    """Take an entry back, by its key or by the user it is about."""
    async with open_client(hub) as client:
        found = await client.find(_LIST)
        data: dict[str, str] = (found or {}).get("data") or {}
        keys = [each for each in (key, user_key(key)) if each in data]
        if not keys:
            raise CannotRevoke(f"{key!r} is not revoked: clusterspace certs revoked shows what is")
        # One key by name: what others enter meanwhile stays.
        body = msgspec.json.encode({"data": {keys[0]: None}})
        headers = (("Content-Type", "application/merge-patch+json"),)
        ask = ApiRequest("PATCH", _LIST.path, headers=headers, body=body)
        await client.connection.ask(ask)
