"""Keys that a key management service wraps.

Its plug-in speaks KMS v2 over a socket, as it does for kube-apiserver. The service never sees a
value. Values are sealed with a data key of our own; the service wraps that
key, and the wrapped key lies beside every value it sealed:

    value ──data key──> sealed      data key ──service's key KEY_ID──> wrapped, stored with it

A hub makes a data key when it starts, and another when the service has a new key. What lies in the
store is unwrapped before the first request; from then on nothing waits for the service but a new
data key.
"""

import os
import uuid
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, cast

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from clusterspace.errors import CannotOpen, MalformedObject, StoreUnreadable
from clusterspace.kube.protobuf.wire import read_fields, write_bytes_field

if TYPE_CHECKING:
    from grpc.aio import Channel

_SERVICE: Final = "/v2.KeyManagementService/"
_VERSIONS: Final = ("v2", "v2beta1")
_WELL: Final = "ok"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_LARGEST_WRAPPED: Final = 1024
"""What a plug-in may answer; more would be stored with every value."""


class _Call(Protocol):
    """A call without serializers: bytes in, bytes out."""

    def __call__(self, request: bytes, *, timeout: float) -> Awaitable[bytes]: ...


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """A data key as the service wrapped it, and what it needs to unwrap it."""

    ciphertext: bytes
    key_id: str
    annotations: Mapping[str, bytes] = field(default_factory=dict[str, bytes])

    @property
    def identity(self) -> tuple[bytes, str]:
        """What tells it from others."""
        return self.ciphertext, self.key_id


class KmsPlugin:
    """A plug-in at a socket; every call says in one sentence why it failed."""

    def __init__(self, name: str, endpoint: str, timeout_seconds: float) -> None:
        self._name = name
        self._endpoint = endpoint
        self._timeout = timeout_seconds

    async def key_id(self) -> str:
        """Return which key the service wraps with now."""
        answer = _read(await self._call("Status", b""))
        version, health, key_id = (_text(answer, number) for number in (1, 2, 3))
        if version not in _VERSIONS or health != _WELL or not key_id:
            why = f"it says version {version!r}, health {health!r}, key {key_id!r}"
            raise self._trouble(why)
        return key_id

    async def wrap(self, key: bytes) -> WrappedKey:
        """Have a data key wrapped."""
        uid = str(uuid.uuid4()).encode()
        request = write_bytes_field(1, key) + write_bytes_field(2, uid)
        answer = _read(await self._call("Encrypt", request))
        wrapped = WrappedKey(_last(answer, 1), _text(answer, 2), _annotations(answer.get(3, ())))
        if not wrapped.key_id or not 0 < len(wrapped.ciphertext) < _LARGEST_WRAPPED:
            raise self._trouble("it wrapped a key to nothing, or to something too large")
        return wrapped

    async def unwrap(self, wrapped: WrappedKey) -> bytes:
        """Have a data key unwrapped."""
        uid = str(uuid.uuid4()).encode()
        request = write_bytes_field(1, wrapped.ciphertext) + write_bytes_field(2, uid)
        request += write_bytes_field(3, wrapped.key_id.encode())
        for key, value in wrapped.annotations.items():
            entry = write_bytes_field(1, key.encode()) + write_bytes_field(2, value)
            request += write_bytes_field(4, entry)
        return _last(_read(await self._call("Decrypt", request)), 1)

    async def _call(self, method: str, request: bytes) -> bytes:
        from grpc.aio import AioRpcError

        try:
            async with self._channel() as channel:
                call = cast("_Call", channel.unary_unary(_SERVICE + method))
                return await call(request, timeout=self._timeout)
        except AioRpcError as error:
            raise self._trouble(error.details() or error.code().name) from None

    @asynccontextmanager
    async def _channel(self) -> "AsyncGenerator[Channel]":
        # Calls are rare: one channel for each survives a plug-in that was started anew.
        from grpc.aio import insecure_channel

        async with insecure_channel(self._endpoint) as channel:
            yield channel

    def _trouble(self, why: str) -> StoreUnreadable:
        return StoreUnreadable(f"the KMS plug-in {self._name} at {self._endpoint} failed: {why}")


# The service is asked at the start, when a configuration is taken, and every few seconds for
# another key; never for a read or a write. Those are sealed and opened between two awaits of the
# store, and a service that is slow or away must not stop a hub that has its keys in memory.
#
#     start        unwrap every data key that any stored value names; then ask for the key of now
#     key of now   k1: a data key is made here, wrapped by k1, and everything is sealed with it
#     k2           another data key is made and wrapped; values name theirs, so both stay in memory
#     a crash      data keys are nowhere but in memory and, wrapped, beside each value
#
# `_keys` only grows, and a key is in it before anything is sealed with it: whatever this process
# has stored it can open, whatever has become of the service since.
class KmsProvider:
    """Seals with a data key that the service wraps."""

    def __init__(self, name: str, plugin: KmsPlugin, prefix: bytes) -> None:
        self.prefix: Final = prefix
        self._name = name
        self._plugin = plugin
        self._keys: dict[tuple[bytes, str], AESGCM] = {}
        self._writing: WrappedKey | None = None

    def seal(self, value: bytes, place: bytes) -> bytes:
        """Seal with the data key of now, and put the wrapped key beside it."""
        wrapped = self._writing
        if wrapped is None:
            raise StoreUnreadable(f"the KMS plug-in {self._name} has not been asked yet")
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + self._keys[wrapped.identity].encrypt(nonce, value, place)
        body = write_bytes_field(1, sealed) + write_bytes_field(2, wrapped.key_id.encode())
        body += write_bytes_field(3, wrapped.ciphertext)
        for key, note in wrapped.annotations.items():
            entry = write_bytes_field(1, key.encode()) + write_bytes_field(2, note)
            body += write_bytes_field(4, entry)
        return self.prefix + body

    def open(self, sealed: bytes, place: bytes) -> bytes:
        """Open with the data key beside the value, which was unwrapped before."""
        body, wrapped = self._parts(sealed)
        cipher = self._keys.get(wrapped.identity)
        if cipher is None:
            raise CannotOpen
        try:
            return cipher.decrypt(body[:_NONCE_BYTES], body[_NONCE_BYTES:], place)
        except (InvalidTag, ValueError) as error:
            raise CannotOpen from error

    def is_current(self, sealed: bytes) -> bool:
        """Whether the value was sealed with a data key that the service's key of now wraps."""
        if not sealed.startswith(self.prefix) or self._writing is None:
            return False
        return self._parts(sealed)[1].key_id == self._writing.key_id

    async def prepare(self, sealed: Iterable[bytes]) -> bool:
        """Unwrap the keys of these values, and have one to write with; False when all was there."""
        unknown: dict[tuple[bytes, str], WrappedKey] = {}
        for each in sealed:
            if each.startswith(self.prefix):
                wrapped = self._parts(each)[1]
                if wrapped.identity not in self._keys:
                    unknown[wrapped.identity] = wrapped
        for identity, wrapped in unknown.items():
            self._keys[identity] = AESGCM(await self._plugin.unwrap(wrapped))
        return await self.refresh() or bool(unknown)

    async def refresh(self) -> bool:
        """Make another data key if the service has another key; return whether one was made."""
        key_id = await self._plugin.key_id()
        if self._writing is not None and self._writing.key_id == key_id:
            return False
        key = os.urandom(_KEY_BYTES)
        wrapped = await self._plugin.wrap(key)
        # First known, then used: nobody can read a value whose key is not there yet.
        self._keys[wrapped.identity] = AESGCM(key)
        self._writing = wrapped
        return True

    def _parts(self, sealed: bytes) -> tuple[bytes, WrappedKey]:
        try:
            fields = _read(sealed[len(self.prefix) :])
            wrapped = WrappedKey(
                _last(fields, 3), _text(fields, 2), _annotations(fields.get(4, ()))
            )
            return _last(fields, 1), wrapped
        except MalformedObject as error:
            raise CannotOpen from error


def _read(message: bytes) -> dict[int, list[bytes]]:
    """Return the texts and bytes of a message by number; numbers in it mean nothing to us."""
    found: dict[int, list[bytes]] = {}
    for each in read_fields(message, "KMS"):
        if isinstance(each.value, bytes):
            found.setdefault(each.number, []).append(each.value)
    return found


def _last(fields: Mapping[int, list[bytes]], number: int) -> bytes:
    return fields.get(number, [b""])[-1]


def _text(fields: Mapping[int, list[bytes]], number: int) -> str:
    return _last(fields, number).decode(errors="replace")


def _annotations(entries: Iterable[bytes]) -> dict[str, bytes]:
    pairs = (_read(each) for each in entries)
    return {_text(each, 1): _last(each, 2) for each in pairs}
