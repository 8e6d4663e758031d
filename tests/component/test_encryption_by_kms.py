"""Keys wrapped by a key management service, whose plug-in is a real gRPC server at a socket."""

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from clusterspace.apiserver.store.encryption import EncryptedStore, Encryption, read_encryption
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.errors import StoreUnreadable, UnusableConfiguration
from clusterspace.kube.protobuf.wire import read_fields, write_bytes_field
from clusterspace.roots.config_files import LOOK_SECONDS
from clusterspace.roots.stores import follow_services
from clusterspace.testing.clocks import ManualClock, settle
from clusterspace.testing.steps import stop, until

KEY = "/registry/core/secrets/default/a"


class Service:
    """A service with a key that can be rolled; it remembers the old ones."""

    def __init__(self) -> None:
        self.keys = {"k1": AESGCM(os.urandom(32))}
        self.health = "ok"
        self.wrapped = 0
        self.unwrapped = 0

    @property
    def key_id(self) -> str:
        return list(self.keys)[-1]

    def roll(self) -> None:
        self.keys[f"k{len(self.keys) + 1}"] = AESGCM(os.urandom(32))

    async def status(self, _request: bytes, _context: Any) -> bytes:
        return fields((1, b"v2"), (2, self.health.encode()), (3, self.key_id.encode()))

    async def encrypt(self, request: bytes, _context: Any) -> bytes:
        self.wrapped += 1
        nonce = os.urandom(12)
        sealed = nonce + self.keys[self.key_id].encrypt(nonce, read(request)[1], b"note")
        note = fields((1, b"note.example.com"), (2, b"note"))
        return fields((1, sealed), (2, self.key_id.encode()), (3, note))

    async def decrypt(self, request: bytes, context: Any) -> bytes:
        self.unwrapped += 1
        asked = read(request)
        key = self.keys.get(asked[3].decode())
        if key is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no such key")
            raise AssertionError("unreachable")
        note = read(asked[4])[2]
        return fields((1, key.decrypt(asked[1][:12], asked[1][12:], note)))


def fields(*pairs: tuple[int, bytes]) -> bytes:
    return b"".join(write_bytes_field(number, value) for number, value in pairs)


def read(message: bytes) -> dict[int, bytes]:
    found = {each.number: each.value for each in read_fields(message, "test")}
    return {number: value for number, value in found.items() if isinstance(value, bytes)}


@asynccontextmanager
async def plugin(service: Service, socket: Path) -> AsyncGenerator[None]:
    methods = {"Status": service.status, "Encrypt": service.encrypt, "Decrypt": service.decrypt}
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()
    }
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("v2.KeyManagementService", handlers),)
    )
    server.add_insecure_port(f"unix://{socket}")
    await server.start()
    try:
        yield
    finally:
        # Calls whose answer is on its way are let through: cut off, they outlive the server.
        await server.stop(5)


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Service]:
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    running = Service()
    async with plugin(running, tmp_path / "kms.sock"):
        yield running


def keys(directory: Path, **settings: Any) -> Encryption:
    kms = {"apiVersion": "v2", "name": "vault", "endpoint": f"unix://{directory / 'kms.sock'}"}
    rule = {"resources": ["secrets"], "providers": [{"kms": {**kms, **settings}}]}
    return read_encryption(
        {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "EncryptionConfiguration",
            "resources": [rule],
        }
    )


async def value_at(store: EncryptedStore, key: str = KEY) -> bytes:
    found = await store.get(key)
    assert found is not None
    return found.value


async def test_values_open_after_a_start_with_one_question_to_the_service(
    service: Service, tmp_path: Path
) -> None:
    inner = MemoryStore()
    store = await EncryptedStore.over(inner, keys(tmp_path))
    for number in range(20):
        await store.put(f"{KEY}{number}", b"secret")

    again = await EncryptedStore.over(inner, keys(tmp_path))

    assert await value_at(again, f"{KEY}7") == b"secret"
    stored = await inner.get(f"{KEY}7")
    assert stored is not None
    assert stored.value.startswith(b"k8s:enc:kms:v2:vault:")
    assert b"secret" not in stored.value
    assert (service.wrapped, service.unwrapped) == (2, 1)


async def test_a_rolled_key_of_the_service_is_used_and_what_is_older_is_stale(
    service: Service, tmp_path: Path
) -> None:
    clock = ManualClock()
    store = await EncryptedStore.over(MemoryStore(), keys(tmp_path))
    await store.put(KEY, b"old")
    following = asyncio.create_task(follow_services(store, clock))
    await settle()

    service.roll()
    await clock.advance(LOOK_SECONDS)
    await until(lambda: store.is_stale(KEY))
    await store.put(KEY + "2", b"new")
    await stop(following)

    assert await value_at(store) == b"old"
    assert not await store.is_stale(KEY + "2")


async def test_a_service_that_is_gone_is_told_at_the_start_and_hurts_nobody_later(
    tmp_path: Path,
) -> None:
    logging.getLogger("grpc").setLevel(logging.CRITICAL)
    service, inner = Service(), MemoryStore()
    async with plugin(service, tmp_path / "kms.sock"):
        store = await EncryptedStore.over(inner, keys(tmp_path))

    await store.put(KEY, b"written without it")
    assert await value_at(store) == b"written without it"
    with pytest.raises(StoreUnreadable, match=r"the KMS plug-in vault at unix://.*kms.sock failed"):
        await store.refresh_keys()
    with pytest.raises(StoreUnreadable, match="the KMS plug-in vault"):
        await EncryptedStore.over(inner, keys(tmp_path, timeout="100ms"))


async def test_a_service_that_lost_its_key_is_told_at_the_start(
    service: Service, tmp_path: Path
) -> None:
    inner = MemoryStore()
    store = await EncryptedStore.over(inner, keys(tmp_path))
    await store.put(KEY, b"lost")
    service.roll()
    del service.keys["k1"]

    with pytest.raises(StoreUnreadable, match="failed: no such key"):
        await EncryptedStore.over(inner, keys(tmp_path))


async def test_an_unwell_service_is_not_written_with(service: Service, tmp_path: Path) -> None:
    service.health = "sealed"

    with pytest.raises(StoreUnreadable, match="health 'sealed'"):
        await EncryptedStore.over(MemoryStore(), keys(tmp_path))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"apiVersion": "v1"}, "kms.apiVersion: it has to be v2"),
        ({"name": ""}, "kms.name: it has to be there"),
        ({"endpoint": "https://kms.example.com"}, "kms.endpoint: it has to be a socket"),
        ({"timeout": "soon"}, "kms.timeout: it has to be a time"),
        ({"more": 1}, "there is no field more"),
    ],
)
def test_a_bad_configuration_is_refused_with_the_place(
    tmp_path: Path, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(UnusableConfiguration, match=words):
        keys(tmp_path, **settings)
