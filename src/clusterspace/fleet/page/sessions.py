"""What somebody has logged in with, kept behind a random secret that only their browser has.

    bearer token, or certificate ──login──> secret (a cookie) ──> the same credential, asked anew

A session is no credential: with every request the one behind it is asked about again, so that a
token that is revoked or a certificate that ends takes its sessions along. The token itself is kept
sealed with a key that is made of the secret, and the secret is not kept: what lies in our memory
between two requests opens nothing.

Codes are the same thing with a shorter life, used once: `clusterspace ui` gets one with the
credentials of a kubeconfig, and the browser that it opens logs in with it.

Where several processes serve one address, all of them know all sessions (aio/siblings.py): a
browser has several connections, each to any of them. What they tell each other opens nothing, too.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec
from nacl.exceptions import CryptoError
from nacl.secret import SecretBox

from clusterspace.aio.clocks import Clock
from clusterspace.apiserver.http.users import CertificateLogin

SESSION_SECONDS: Final = 12 * 3600.0
"""A working day. Longer than that nobody should be logged in without having shown who they are."""
IDLE_SECONDS: Final = 3600.0
"""A session that nobody uses ends sooner. A page that is open has watches, which count as use."""
CODE_SECONDS: Final = 60.0
"""From the command that prints an address to the browser that opens it."""
WRITE_SECONDS: Final = 900.0
"""For how long a session that was asked to may change things."""

_MOST: Final = 2000
_MOST_EACH: Final = 20
"""Sessions of one user; with one more, the one that was used longest ago ends."""
_SECRET_BYTES: Final = 32
_CLOSED_SECONDS: Final = 60.0
"""For how long a session that was closed is known to be: longer than a worker takes to start."""
_REPORT_SECONDS: Final = 60.0
"""Between two times that other workers are told of a session in use: it ends after an hour."""


@dataclass(frozen=True, slots=True)
class Credential:
    """What somebody has shown to log in: a bearer token, or a client certificate."""

    token: str = field(default="", repr=False)
    certificate: CertificateLogin | None = None


@dataclass(slots=True)
class Session:
    """One login. Times are those of a clock that only goes forward."""

    user: str
    certificate: CertificateLogin | None
    sealed: bytes = field(repr=False)
    opened: float
    used: float
    writes_until: float = 0.0
    reported: float = 0.0
    """When other workers were last told that it is used."""


class Sessions:
    """Sessions by their secrets: bounded in number, in life, and for each user.

    The order of `_sessions` is the order in which they were last used, the oldest in front.
    """

    def __init__(
        self, clock: Clock, *, seconds: float = SESSION_SECONDS, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._idle_seconds = idle_seconds
        self._sessions: dict[bytes, Session] = {}
        self._closed: dict[bytes, float] = {}
        """When sessions were closed that another worker may yet tell us of: never opened again."""
        self.tell: Callable[[bytes], None] = lambda _: None
        self.on_less: Callable[[], None] = lambda: None
        """Hears that a session has ended or may do less, by way of another worker: what it has open
        here is to be looked at again."""

    def hear(self, message: bytes) -> None:
        """Take over what became of a session by way of another worker."""
        name, session = msgspec.json.decode(message, type=tuple[bytes, Session | None])
        if session is None:
            self._close(name)
            self.on_less()
        elif name not in self._closed:
            known = self._sessions.pop(name, None)
            if known is not None and known.used > session.used:
                session.used = known.used
            self._sessions[name] = session
            if known is not None and session.writes_until < known.writes_until:
                self.on_less()

    def known(self) -> Iterator[bytes]:
        """Return all sessions, and the ends of those that ended last, as they are told."""
        self._drop_ended()
        for name, session in self._sessions.items():
            yield msgspec.json.encode((name, session))
        for name in self._closed:
            yield msgspec.json.encode((name, None))

    def _close(self, name: bytes) -> Session | None:
        now = self._clock.monotonic()
        self._closed = {
            each: at for each, at in self._closed.items() if now - at < _CLOSED_SECONDS
        } | {name: now}
        return self._sessions.pop(name, None)

    def _tell_of(self, name: bytes, session: Session | None) -> None:
        if session is not None:
            session.reported = session.used
        self.tell(msgspec.json.encode((name, session)))  # serials have more digits than MessagePack

    def open(self, user: str, credential: Credential) -> str:
        """Keep a credential and return the secret that finds it."""
        self._drop_ended()
        own = [key for key, each in self._sessions.items() if each.user == user]
        if len(own) >= _MOST_EACH:
            self._close(own[0])
            self._tell_of(own[0], None)
        elif len(self._sessions) >= _MOST:
            # Whoever has the most pays, so that nobody's many keep out somebody's first.
            counts: dict[str, int] = {}
            for each in self._sessions.values():
                counts[each.user] = counts.get(each.user, 0) + 1
            most = max(counts, key=lambda name: counts[name])
            name = next(key for key, each in self._sessions.items() if each.user == most)
            self._close(name)
            self._tell_of(name, None)
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        now = self._clock.monotonic()
        sealed = bytes(SecretBox(_key(secret)).encrypt(credential.token.encode()))
        name = _name(secret)
        session = Session(user, credential.certificate, sealed, now, now)
        self._sessions[name] = session
        self._tell_of(name, session)
        return secret

    def find(self, secret: str) -> Session | None:
        """Return the session of a secret, which counts as used; None when there is none."""
        key, now = _name(secret), self._clock.monotonic()
        session = self._sessions.pop(key, None)
        if session is None or self._has_ended(session, now):
            return None
        session.used = now
        self._sessions[key] = session
        if now - session.reported >= _REPORT_SECONDS:
            self._tell_of(key, session)
        return session

    def credential_of(self, session: Session, secret: str) -> Credential:
        """Return what a session was opened with."""
        try:
            token = SecretBox(_key(secret)).decrypt(session.sealed)
        except CryptoError as error:  # found by its secret, so that this cannot be
            raise AssertionError("a session was sealed with another secret") from error
        return Credential(token.decode(), session.certificate)

    def close(self, secret: str) -> bool:
        """End a session; return whether there was one. Of several at once one hears True."""
        name = _name(secret)
        session = self._close(name)
        self._tell_of(name, None)
        return session is not None and not self._has_ended(session, self._clock.monotonic())

    def seconds_left(self, session: Session) -> float:
        """Return for how long a session lasts, if it is used."""
        return max(0.0, session.opened + self._seconds - self._clock.monotonic())

    def may_write(self, session: Session) -> bool:
        """Whether its user has asked to change things, a short while ago."""
        return self.writes_for(session) > 0

    def writes_for(self, session: Session) -> float:
        """Return for how long a session may change things yet."""
        return max(0.0, session.writes_until - self._clock.monotonic())

    def allow_writes(self, secret: str, session: Session, *, allowed: bool) -> None:
        """Let a session change things for a while, or no longer."""
        session.writes_until = self._clock.monotonic() + WRITE_SECONDS if allowed else 0.0
        self._tell_of(_name(secret), session)

    def _has_ended(self, session: Session, now: float) -> bool:
        return now >= min(session.opened + self._seconds, session.used + self._idle_seconds)

    def _drop_ended(self) -> None:
        now = self._clock.monotonic()
        ended = [key for key, each in self._sessions.items() if self._has_ended(each, now)]
        for key in ended:
            del self._sessions[key]


def _name(secret: str) -> bytes:
    """Return what a session is kept under: from it the secret cannot be told."""
    return hashlib.sha256(b"name:" + secret.encode(errors="replace")).digest()


def _key(secret: str) -> bytes:
    return hashlib.sha256(b"key:" + secret.encode(errors="replace")).digest()
