"""Credentials that count no longer though they have not ended: the list of them, and who is on it.

    kind: ConfigMap, metadata: {name: revoked-credentials, namespace: kube-system}
    data:
      certificate-<SHA-256 of the certificate>: '{"user":"jane","until":"2027-01-01T00:00:00Z"}'
      serial-<serial number in hex>:            '{"reason":"laptop stolen"}'
      user-<digest of the name>:                '{"user":"jane","before":"2026-11-16T04:00:00Z"}'
      user-<digest of the name>:                '{"user":"bob","all":true}'

An entry for a user is about the certificates issued to that name until `before`: one that is issued
later counts. With `all`, every credential of the name is refused, of whatever kind and age, until
the entry is taken back: for tokens of other issuers, which nobody here can end.

A key says what is revoked and the value why, so an entry whose value cannot be read revokes all the
same. Only that of a user needs its value, for the name.

Agents of clusters that left have a list of their own, which the hub writes (`identity/agents.py`):

    kind: ConfigMap, metadata: {name: revoked-agents, namespace: kube-system}
    data: {west: "2026-01-01T00:00:00Z"}
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from clusterspace.apiserver.http.users import CertificateLogin
from clusterspace.errors import MalformedTimestamp
from clusterspace.kube.times import parse_time

NAMESPACE: Final = "kube-system"
NAME: Final = "revoked-credentials"
AGENTS_NAME: Final = "revoked-agents"

CERTIFICATE: Final = "certificate-"
SERIAL: Final = "serial-"
USER: Final = "user-"


@dataclass(frozen=True, slots=True)
class RevocationList:
    """Whose credentials are refused."""

    certificates: frozenset[str] = frozenset()
    serials: frozenset[int] = frozenset()
    users: Mapping[str, float] = field(default_factory=dict[str, float])
    """Names, and the moment until which certificates issued to them are refused."""
    denied: frozenset[str] = frozenset()
    """Names of which every credential is refused."""

    def covers(self, login: CertificateLogin) -> bool:
        """Whether a client certificate is refused."""
        if login.fingerprint in self.certificates or login.serial in self.serials:
            return True
        name = login.user.name
        since = self.users.get(name)
        if since is not None and login.issued <= since:
            return True
        return name in self.denied

    def denies(self, user: str) -> bool:
        """Whether every credential of a user is refused, tokens too."""
        return user in self.denied


NOTHING_REVOKED: Final = RevocationList()


def user_key(name: str) -> str:
    """Return the key of a user's entry: names may hold what keys of ConfigMaps may not."""
    return USER + hashlib.sha256(name.encode()).hexdigest()[:32]


def read_entry(text: str) -> dict[str, Any]:
    """Return what an entry says; nothing when it cannot be read."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return {}


def read_revocations(data: Mapping[str, Any] | None) -> RevocationList:
    """Read the data of the ConfigMap; keys that are none of ours mean nothing."""
    certificates, serials, users, denied = set[str](), set[int](), dict[str, float](), set[str]()
    for key, text in (data or {}).items():
        if key.startswith(CERTIFICATE):
            certificates.add(key.removeprefix(CERTIFICATE).lower())
        elif key.startswith(SERIAL):
            try:
                serials.add(int(key.removeprefix(SERIAL), 16))
            except ValueError:
                continue
        elif key.startswith(USER):
            entry = read_entry(str(text))
            name = entry.get("user")
            if not isinstance(name, str) or user_key(name) != key:
                continue
            if entry.get("all") is True:
                denied.add(name)
            else:
                users[name] = revoked_until(entry.get("before"))
    return RevocationList(frozenset(certificates), frozenset(serials), users, frozenset(denied))


def is_agent_revoked(data: Mapping[str, Any] | None, cluster: str, issued: float) -> bool:
    """Whether the list of agents covers a certificate of a cluster's agent that was issued then."""
    since = (data or {}).get(cluster)
    return since is not None and issued <= revoked_until(since)


def revoked_until(text: object) -> float:
    """Return the moment an entry names; one that cannot be read revokes for good."""
    try:
        return parse_time(str(text))
    except MalformedTimestamp:
        return float("inf")
