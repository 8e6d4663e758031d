"""A hub's objects move from SQLite to etcd and back, and nothing else about them changes."""

import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.store.etcd.client import EtcdSettings
from clusterspace.apiserver.store.etcd.store import EtcdStore
from clusterspace.apiserver.store.interface import Revision
from clusterspace.apiserver.store.sqlite import SqliteStore
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import Compacted, StoreUnreadable, UnusableConfiguration
from clusterspace.kube.objects import Object, resource_version_of, uid_of
from clusterspace.roots.hub import running_hub
from clusterspace.roots.migration import Moved, migrate
from clusterspace.roots.settings import HubSettings
from clusterspace.testing.builders import CONFIG_MAPS, config_map
from clusterspace.testing.etcd import EtcdCluster, etcd_for_test
from clusterspace.testing.hubs import client_for_test

MAPS = ResourcePath(CONFIG_MAPS, "default")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def etcd(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EtcdCluster]:
    async with etcd_for_test(tmp_path_factory.mktemp("etcd"), tls=False) as cluster:
        yield cluster


async def move(source: str, target: str, etcd: EtcdSettings) -> Moved:
    return await migrate(source, target, etcd, SystemClock().now(), lambda *_: None)


async def maps_of(settings: HubSettings, *created: str) -> list[Object]:
    async with running_hub(settings):
        reached = read_kubeconfig([settings.data_dir / "kubeconfig"]).settings(cluster="hub")
        async with client_for_test(reached) as client:
            for name in created:
                await client.create(MAPS, config_map(name))
            return [
                each
                for each in await client.list_objects(MAPS)
                if each["metadata"]["name"].startswith("map-")
            ]


async def test_a_hub_moves_to_etcd_and_back(tmp_path: Path, etcd: EtcdCluster) -> None:
    settings = etcd.at(f"/{uuid.uuid4()}")
    servers = ",".join(settings.servers)
    home, back = HubSettings(tmp_path / "home", port=0), HubSettings(tmp_path / "back", port=0)
    before = await maps_of(home, "map-b", "map-a", "map-c")

    there = await move(f"sqlite:{home.data_dir}", f"etcd:{servers}", settings)
    moved = await maps_of(HubSettings(home.data_dir, port=0, etcd=settings), "map-d")
    (back.data_dir / "pki").mkdir(parents=True)
    for each in (home.data_dir / "pki").iterdir():
        (back.data_dir / "pki" / each.name).write_bytes(each.read_bytes())
    home_again = await move(f"etcd:{servers}", f"sqlite:{back.data_dir}", settings)
    after = await maps_of(back)

    assert [uid_of(each) for each in moved[:3]] == [uid_of(each) for each in before]
    assert [uid_of(each) for each in after] == [uid_of(each) for each in moved]
    newest = max(int(resource_version_of(each)) for each in before)
    assert all(newest < int(resource_version_of(each)) for each in moved)
    assert newest < there.revision < home_again.revision
    assert there.objects < home_again.objects


async def test_versions_from_before_are_told_410_and_never_waited_for(
    tmp_path: Path, etcd: EtcdCluster
) -> None:
    settings = etcd.at(f"/{uuid.uuid4()}")
    source = await SqliteStore.open(tmp_path / "store.db")
    first = await source.put("/registry/core/x/b", b'{"metadata":{}}')
    second = await source.put("/registry/core/x/a", b'{"metadata":{}}')
    await source.close()

    await move(f"sqlite:{tmp_path}", f"etcd:{settings.servers[0]}", settings)

    store = await EtcdStore.open(settings)
    try:
        with pytest.raises(Compacted):
            store.watch("", after=second.mod_revision)
        items = (await store.range("/registry/")).items
        by_creation = sorted(items, key=lambda each: each.create_revision)
        assert [each.key for each in by_creation] == [first.key, second.key]
        assert min(each.create_revision for each in items) > second.mod_revision
        changed = await store.put(first.key, b"{}", expected=items[1].mod_revision)
        assert changed.create_revision == items[1].create_revision
    finally:
        await store.close()


async def test_what_is_in_use_or_not_empty_is_refused(tmp_path: Path, etcd: EtcdCluster) -> None:
    settings = etcd.at(f"/{uuid.uuid4()}")
    servers = ",".join(settings.servers)
    with pytest.raises(StoreUnreadable, match="there is no store"):
        await move(f"sqlite:{tmp_path / 'nowhere'}", f"etcd:{servers}", settings)
    with pytest.raises(UnusableConfiguration, match="or back"):
        await move("sqlite:a", "sqlite:b", settings)
    async with running_hub(HubSettings(tmp_path / "alone", port=0)):
        with pytest.raises(StoreUnreadable):
            await move(f"sqlite:{tmp_path / 'alone'}", f"etcd:{servers}", settings)
    async with running_hub(HubSettings(tmp_path / "shared", port=0, etcd=settings)) as hub:
        key = "/registry/coordination.k8s.io/leases/kube-system/clusterspace-hub"
        while await hub.state.store.get(key) is None:
            await hub.state.clock.sleep(0.05)
        with pytest.raises(StoreUnreadable, match="is at work on it"):
            await move(f"etcd:{servers}", f"sqlite:{tmp_path / 'new'}", settings)
        assert not (tmp_path / "new").exists()
    with pytest.raises(StoreUnreadable, match="is a hub's already"):
        await move(f"sqlite:{tmp_path / 'alone'}", f"etcd:{servers}", settings)


async def test_a_move_that_was_cut_short_is_not_taken_for_a_store(etcd: EtcdCluster) -> None:
    settings = etcd.at(f"/{uuid.uuid4()}")
    store = await EtcdStore.open(settings, ahead=5_000)
    await store.put("/registry/core/x/a", b"{}", expected=Revision(0))
    await store.close()
    with pytest.raises(StoreUnreadable, match="was not finished"):
        await EtcdStore.open(settings)
