"""What is planted in Secrets is nowhere on disk, keys roll, and a lost one is told at once."""

import asyncio
import json
import re
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
import yaml

from clusterspace.apiserver.store import backups
from clusterspace.apiserver.store.encryption import (
    HUB_IDENTITY,
    EncryptedStore,
    Encryption,
    read_encryption,
)
from clusterspace.apiserver.store.etcd.client import EtcdSettings
from clusterspace.apiserver.store.interface import Event, Revision, Store
from clusterspace.apiserver.store.memory import MemoryStore
from clusterspace.apiserver.store.sqlite import SqliteStore
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.errors import (
    Compacted,
    StoreError,
    StoreUnreadable,
    UnusableConfiguration,
    WatcherEvicted,
)
from clusterspace.kube.objects import Object
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots import config_files
from clusterspace.roots.config_files import LOOK_SECONDS
from clusterspace.roots.hub import running_hub
from clusterspace.roots.settings import HubSettings
from clusterspace.roots.stores import encryption_tasks, load_encryption, rewrite
from clusterspace.testing.builders import CONFIG_MAPS, config_map
from clusterspace.testing.clocks import ManualClock, settle
from clusterspace.testing.etcd import etcd_for_test, find_program
from clusterspace.testing.hubs import client_for_test
from clusterspace.testing.steps import stop, until
from clusterspace.testing.store_contract import WAITING_EVENTS, DurableStoreContract, GuardedWrites

SECRETS = GroupVersionResource("", "v1", "secrets")
KEY = "/registry/core/secrets/default/a"
PLANTED = "planted-and-not-to-be-found"


def key_of(name: str) -> dict[str, str]:
    return {"name": name, "secret": b64encode(name.encode().ljust(32, b".")).decode()}


def config(*keys: str, kind: str = "aesgcm", resources: tuple[str, ...] = ("secrets",)) -> Any:
    provider: Any = {kind: {"keys": [key_of(each) for each in keys]}}
    rule = {"resources": list(resources), "providers": [provider, {"identity": {}}]}
    return {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [rule],
    }


def keys(*names: str, **options: Any) -> Encryption:
    return read_encryption(config(*names, **options))


def secret(name: str) -> Object:
    data = {"text": b64encode(PLANTED.encode()).decode()}
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data}


class TestEncryptedStore(GuardedWrites, DurableStoreContract):
    async def open_store(self, directory: Path) -> Store:
        inner = await SqliteStore.open(
            directory / "store.db", maximum_waiting_events=WAITING_EVENTS
        )
        return await EncryptedStore.over(inner, keys("a", resources=("*.*",)))


@asynccontextmanager
async def hub_on_disk(
    directory: Path, file: Path | None, etcd: EtcdSettings | None = None
) -> AsyncGenerator[ClusterClient]:
    settings = HubSettings(directory, port=0, encryption_file=file, etcd=etcd)
    async with running_hub(settings):
        connection = read_kubeconfig([directory / "kubeconfig"]).settings(cluster="hub")
        async with client_for_test(connection) as client:
            yield client


def files_with(directory: Path, *words: bytes) -> set[str]:
    files = (each for each in directory.rglob("*") if each.is_file())
    return {each.name for each in files if any(word in each.read_bytes() for word in words)}


@pytest.mark.sqlite("it looks into the file")
async def test_a_hundred_planted_secrets_are_found_nowhere_on_disk(tmp_path: Path) -> None:
    file, data = tmp_path / "keys.json", tmp_path / "data"
    file.write_text(json.dumps(config("a")))
    seen = PLANTED.encode(), b64encode(PLANTED.encode()), b64encode(PLANTED.encode()).rstrip(b"=")

    async with hub_on_disk(data, file) as hub:
        for number in range(100):
            await hub.create(ResourcePath(SECRETS, "default"), secret(f"s{number}"))
        control = config_map("control", {"text": "what-is-not-encrypted"})
        await hub.create(ResourcePath(CONFIG_MAPS, "default"), control)
        while_it_runs = files_with(data, *seen)
        backups.back_up(data / "store.db", tmp_path / "backup.db")
        found = await hub.get(ResourcePath(SECRETS, "default", "s7"))

    assert while_it_runs | files_with(tmp_path, *seen) == set()
    assert {"store.db", "backup.db"} <= files_with(tmp_path, b"what-is-not-encrypted")
    assert found["data"] == secret("s7")["data"]


async def test_a_hundred_planted_secrets_are_found_in_no_file_of_etcd(tmp_path: Path) -> None:
    file, data = tmp_path / "keys.json", tmp_path / "data"
    file.write_text(json.dumps(config("a")))
    seen = PLANTED.encode(), b64encode(PLANTED.encode()), b64encode(PLANTED.encode()).rstrip(b"=")
    async with etcd_for_test(tmp_path, tls=False) as etcd:
        async with hub_on_disk(data, file, etcd.at("/hub")) as hub:
            for number in range(100):
                await hub.create(ResourcePath(SECRETS, "default"), secret(f"s{number}"))
            control = config_map("control", {"text": "what-is-not-encrypted"})
            await hub.create(ResourcePath(CONFIG_MAPS, "default"), control)
            found = await hub.get(ResourcePath(SECRETS, "default", "s7"))
            while_it_runs = files_with(tmp_path, *seen)
        if (etcdctl := find_program("etcdctl")) is not None:
            where = f"--endpoints={etcd.members[0].url}"
            backup = str(tmp_path / "backup.snapshot")
            taking = await asyncio.create_subprocess_exec(
                etcdctl, where, "snapshot", "save", backup
            )
            assert await taking.wait() == 0
            assert files_with(tmp_path, b"what-is-not-encrypted") >= {"backup.snapshot"}
        for member in etcd.members:
            await member.kill()

    assert while_it_runs | files_with(tmp_path, *seen) == set()
    # What is not encrypted is in etcd's log: the search looks where secrets would be.
    assert any(name.endswith(".wal") for name in files_with(tmp_path, b"what-is-not-encrypted"))
    assert found["data"] == secret("s7")["data"]


async def test_a_hub_that_lost_its_key_refuses_to_start_and_says_which(tmp_path: Path) -> None:
    file, data = tmp_path / "keys.json", tmp_path / "data"
    file.write_text(json.dumps(config("lost")))
    async with hub_on_disk(data, file) as hub:
        await hub.create(ResourcePath(SECRETS, "default"), secret("a"))

    file.write_text(json.dumps(config("other")))
    for given in (file, None):
        with pytest.raises(StoreUnreadable, match="aesgcm key 'lost', and no key") as refused:
            async with hub_on_disk(data, given):
                pass
        # Hubs on etcd have sealed what they have in common, too.
        assert str(refused.value).partition(" is encrypted")[0] in (KEY, HUB_IDENTITY)

    file.write_text(json.dumps(config("other", "lost")))
    async with hub_on_disk(data, file) as hub:
        assert (await hub.get(ResourcePath(SECRETS, "default", "a")))["data"]


@pytest.mark.sqlite("it looks into the file")
async def test_rewriting_encrypts_what_was_plain_and_lets_the_old_key_go(tmp_path: Path) -> None:
    file, data = tmp_path / "keys.json", tmp_path / "data"
    async with hub_on_disk(data, None) as hub:
        await hub.create(ResourcePath(SECRETS, "default"), secret("a"))
    file.write_text(json.dumps(config("new")))
    told: list[tuple[str, int, int]] = []

    async with hub_on_disk(data, file) as hub:
        before = await hub.get(ResourcePath(SECRETS, "default", "a"))
        await rewrite(hub.connection.settings, ["secrets"], lambda *each: told.append(each))
        after = await hub.get(ResourcePath(SECRETS, "default", "a"))
        await rewrite(hub.connection.settings, ["secrets"], lambda *_: None)
        again = await hub.get(ResourcePath(SECRETS, "default", "a"))

    assert told[0][1:] == (0, told[-1][2])
    assert told[-1][1] == told[-1][2] > 0
    assert after["data"] == before["data"]
    assert after["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"]
    assert again == after, "what is as it should be is not written"
    records = [each for each in backups.read_log(data / "store.db") if each.key == KEY]
    assert (records[-1].value or b"").startswith(b"k8s:enc:aesgcm:v1:new:")

    store = await SqliteStore.open(data / "store.db")
    plain = b64encode(PLANTED.encode())
    assert files_with(data, plain) == {"store.db"}, "the past is still there"
    await store.compact(store.current_revision)
    await store.close()
    assert files_with(data, plain) == set()


@pytest.mark.sqlite("it looks into a copy of the file")
async def test_keys_are_rolled_on_a_running_hub_and_no_request_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await roll_keys(tmp_path, monkeypatch)


async def test_keys_are_rolled_on_a_hub_on_etcd_and_no_request_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with etcd_for_test(tmp_path, tls=False) as etcd:
        await roll_keys(tmp_path, monkeypatch, etcd.at("/hub"))


async def roll_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, etcd: EtcdSettings | None = None
) -> None:
    monkeypatch.setattr(config_files, "LOOK_SECONDS", 0.05)
    file, data = tmp_path / "keys.json", tmp_path / "data"
    file.write_text(json.dumps(config("old")))
    plain = PLANTED.encode(), b64encode(PLANTED.encode()).rstrip(b"=")
    place, wanted = ResourcePath(SECRETS, "default"), secret("x")["data"]
    done = {"written": 0, "read": 0}

    async def write(hub: ClusterClient, who: int) -> None:
        while True:
            done["written"] += 1
            await hub.create(place, secret(f"w{who}-{done['written']}"))

    async def read(hub: ClusterClient) -> None:
        while True:
            for each in await hub.list_objects(place):
                assert each["data"] == wanted
            assert (await hub.get(ResourcePath(SECRETS, "default", "s0")))["data"] == wanted
            done["read"] += 1

    async def replaced(keys: str, *more: str) -> None:
        """Replace the file, and have all of them work on both sides of it."""
        file.write_text(json.dumps(config(keys, *more)))
        count = len(said) + 1
        await until(lambda: sum("are replaced" in each["event"] for each in said) == count)
        said[:] = [each for each in said if "are replaced" in each["event"]]
        before = dict(done)
        await until(lambda: all(done[each] > before[each] + 2 for each in done))

    with structlog.testing.capture_logs() as said:
        async with hub_on_disk(data, file, etcd) as hub:
            for number in range(20):
                await hub.create(place, secret(f"s{number}"))
            said.clear()
            # Whoever fails ends the group, and with it the test.
            async with asyncio.TaskGroup() as group:
                busy = [group.create_task(write(hub, who)) for who in range(2)]
                busy += [group.create_task(read(hub)) for _ in range(2)]
                await replaced("new", "old")
                await rewrite(hub.connection.settings, ["secrets"], lambda *_: None)
                if etcd is None:
                    backups.back_up(data / "store.db", tmp_path / "backup.db")
                await replaced("new")
                for each in busy:
                    each.cancel()
            found = files_with(tmp_path, *plain)
    assert found | files_with(tmp_path, *plain) == set()

    # The old key is gone for good: a hub that has never heard of it starts and reads everything.
    async with hub_on_disk(data, file, etcd) as hub:
        listed = await hub.list_objects(place)
    assert len([each for each in listed if each["data"] == wanted]) >= 20 + done["written"] - 2


@pytest.mark.parametrize("kind", ["aesgcm", "secretbox"])
async def test_keys_roll_while_others_write_and_watch(kind: str) -> None:
    inner = MemoryStore()
    store = await EncryptedStore.over(inner, keys("a", kind=kind))
    watch = store.watch("/registry/", after=store.current_revision)
    written = [
        await store.put(f"{KEY}{number}", f"value {number}".encode()) for number in range(10)
    ]

    async def write() -> None:
        for number, each in enumerate(written):
            await store.put(each.key, b"new " + each.value, expected=each.mod_revision)
            if number == 4:
                await store.replace_keys(keys("b", "a", kind=kind))

    await write()
    values = [each.value async for each in events_of(watch, 20)]

    assert values[10:] == [b"new " + value for value in values[:10]]
    sealed = [each.value for each in (await inner.range("/registry/")).items]
    names = sorted(each.split(b":")[4] for each in sealed)
    assert names == [b"a"] * 5 + [b"b"] * 5
    stale = [each.key for each in written if await store.is_stale(each.key)]
    assert stale == [each.key for each in written[:5]]


async def events_of(watch: Any, count: int) -> AsyncIterator[Event]:
    async for events in watch:
        for each in events:
            yield each
            count -= 1
        if not count:
            watch.close()


async def test_keys_that_do_not_open_all_there_is_are_not_taken() -> None:
    store = await EncryptedStore.over(MemoryStore(), keys("a"))
    await store.put(KEY, b"{}")

    with pytest.raises(StoreUnreadable):
        await store.replace_keys(keys("b"))

    found = await store.get(KEY)
    assert found is not None
    assert found.value == b"{}"


async def test_a_past_whose_key_is_gone_counts_as_forgotten() -> None:
    store = await EncryptedStore.over(MemoryStore(), keys("a"))
    first = await store.put(KEY, b"1")
    await store.replace_keys(keys("b", "a"))
    await store.put(KEY, b"2")
    await store.replace_keys(keys("b"))
    ended = Endings()

    with pytest.raises(Compacted):
        await store.get(KEY, at=first.mod_revision)
    with pytest.raises(Compacted):
        await store.range("/registry/", at=first.mod_revision)
    with pytest.raises(WatcherEvicted):
        await anext(store.watch("/registry/", after=Revision(1)))
    store.subscribe("/registry/", after=Revision(1), sink=ended)
    await store.put(KEY, b"3")

    assert [type(each) for each in ended.reasons] == [WatcherEvicted]
    assert ended.events == []


class Endings:
    def __init__(self) -> None:
        self.reasons: list[StoreError] = []
        self.events: list[Event] = []

    def receive(self, events: tuple[Event, ...]) -> None:
        self.events += events

    def end(self, reason: StoreError) -> None:
        self.reasons.append(reason)


async def test_a_value_moved_to_another_key_does_not_open() -> None:
    inner = MemoryStore()
    store = await EncryptedStore.over(inner, keys("a"))
    await store.put(KEY, b"{}")
    stored = await inner.get(KEY)
    assert stored is not None
    await inner.put("/registry/core/secrets/mine/a", stored.value)

    with pytest.raises(StoreUnreadable):
        await store.get("/registry/core/secrets/mine/a")


async def test_a_changed_file_counts_and_a_bad_one_does_not(
    tmp_path: Path, logged_errors: list[Any]
) -> None:
    file, clock = tmp_path / "keys.yaml", ManualClock()
    file.write_text(json.dumps(config("a")))
    store = await EncryptedStore.over(MemoryStore(), load_encryption(file))
    await store.put(KEY, b"{}")
    following = asyncio.ensure_future(encryption_tasks(file, store, clock)["encryption keys"]())
    await settle()

    stale: list[bool] = []
    for content in (json.dumps(config("b", "a")), "kind: Nonsense", json.dumps(config("c"))):
        file.write_text(content)
        await clock.advance(LOOK_SECONDS)
        stale.append(await store.is_stale(KEY))
        await store.put(KEY, b"{}")
    await stop(following)

    assert stale == [True, False, False]
    assert len(logged_errors) == 2


RULE: dict[str, Any] = {"resources": ["secrets"], "providers": [{"identity": {}}]}


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("x", "resources: it has to be a list"),
        ([], "resources: it has to be a list"),
        (["x"], r"resources\[0\]: it has to be a map"),
        ([{**RULE, "more": 1}], "there is no field more"),
        ([{**RULE, "resources": []}], r"resources\[0\].resources: it has to be a list"),
        ([{**RULE, "resources": ["*"]}], "'\\*' names no resource"),
        ([{**RULE, "resources": ["Secrets"]}], "'Secrets' names no resource"),
        ([{**RULE, "providers": [{"rot13": {}}]}], "rot13 is not supported here"),
        ([{**RULE, "providers": [{"aescbc": {}}]}], "aescbc is not supported here"),
        ([{**RULE, "providers": [{"aesgcm": {}}]}], r"aesgcm.keys: it has to be a list"),
        ([{**RULE, "providers": [{}]}], "one provider has to be named"),
    ],
)
def test_a_bad_configuration_is_refused_with_the_place(rules: Any, words: str) -> None:
    with pytest.raises(UnusableConfiguration, match=words):
        read_encryption({**config("a"), "resources": rules})


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"name": "a", "secret": "!"}, "not base64"),
        ({"name": "a", "secret": b64encode(b"short").decode()}, "it has 5 bytes, not 16 or 24"),
        ({"name": "a:b", "secret": ""}, "without a colon"),
        ({"secret": ""}, "name: it has to be there"),
    ],
)
def test_a_bad_key_is_refused_and_not_repeated(bad: Any, words: str) -> None:
    provider = {"aesgcm": {"keys": [bad]}}
    document = {**config("a"), "resources": [{**RULE, "providers": [provider]}]}

    with pytest.raises(UnusableConfiguration, match=words) as refused:
        read_encryption(document)

    assert bad["secret"] == "" or bad["secret"] not in str(refused.value)


@pytest.mark.parametrize(
    ("named", "key", "is_sealed"),
    [
        ("secrets", KEY, True),
        ("secrets", "/registry/core/configmaps/default/a", False),
        ("secrets", "/registry/example.com/secrets/default/a", False),
        ("widgets.example.com", "/registry/example.com/widgets/a", True),
        ("*.example.com", "/registry/example.com/gadgets/a", True),
        ("*.", "/registry/core/configmaps/default/a", True),
        ("*.", "/registry/apps/deployments/default/a", False),
        ("*.*", "/registry/apps/deployments/default/a", True),
    ],
)
def test_a_rule_is_about_the_resources_it_names(named: str, key: str, is_sealed: bool) -> None:
    sealed = keys("a", resources=(named,)).seal(key, b"{}")

    assert sealed.startswith(b"k8s:enc:") == is_sealed


def test_the_configuration_on_the_page_is_one() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "guides" / "encryption.md"
    (block,) = re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)

    assert read_encryption(yaml.safe_load(block)).seal(KEY, b"{}").startswith(b"k8s:enc:aesgcm")
