"""A hub's objects move from SQLite to etcd and back, and nothing else about them changes."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from click.testing import CliRunner, Result

from clusterspace.aio.clocks import SystemClock
from clusterspace.apiserver.store.backups import read_backup
from clusterspace.apiserver.store.etcd.client import EtcdSettings
from clusterspace.apiserver.store.etcd.store import EtcdStore
from clusterspace.apiserver.store.interface import Revision
from clusterspace.apiserver.store.sqlite import SqliteStore
from clusterspace.cli.commands.store import store as store_command
from clusterspace.cli.output import ExitCode
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ResourcePath
from clusterspace.errors import Compacted, StoreUnreadable, UnusableConfiguration
from clusterspace.kube.objects import Object, resource_version_of, uid_of
from clusterspace.roots.hub import running_hub
from clusterspace.roots.migration import Moved, back_up, digest_of, migrate, restore
from clusterspace.roots.settings import HubSettings
from clusterspace.testing.builders import CONFIG_MAPS, config_map
from clusterspace.testing.etcd import EtcdCluster, etcd_for_test
from clusterspace.testing.hubs import client_for_test
from clusterspace.testing.steps import until

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


@pytest.mark.sqlite("it moves from a file, and back to one")
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


@pytest.mark.sqlite("it moves from a file, and back to one")
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


# -- backups of what is in etcd ------------------------------------------------------------------


def run_store(*words: str) -> Result:
    return CliRunner().invoke(store_command, words, catch_exceptions=False)


async def store_words(*words: str) -> Result:
    return await asyncio.to_thread(run_store, *words)


async def test_a_backup_of_etcd_is_of_one_revision_while_hubs_write(
    tmp_path: Path, etcd: EtcdCluster
) -> None:
    """Each writer counts up two keys, one after the other: no moment has the second ahead."""
    settings = etcd.at(f"/{uuid.uuid4()}")
    stores = [await EtcdStore.open(settings) for _ in range(2)]

    async def write(store: EtcdStore, name: str) -> None:
        for number in range(150):
            for key in ("a", "b"):
                await store.put(f"/registry/core/{name}/{key}", str(number).encode())

    async with asyncio.TaskGroup() as group:
        for number, store in enumerate(stores):
            group.create_task(write(store, f"writer-{number}"))
        backups = [await back_up(settings, tmp_path / f"{number}.db") for number in range(4)]
    for store in stores:
        await store.close()

    for number, made in enumerate(backups):
        items, state = read_backup(tmp_path / f"{number}.db")
        found = {item.key: int(item.value) for item in items}
        assert state.revision == made.revision
        assert digest_of(items) == made.digest
        for writer in ("writer-0", "writer-1"):
            first = found.get(f"/registry/core/{writer}/a", -1)
            assert first - found.get(f"/registry/core/{writer}/b", -1) in (0, 1)


async def test_a_backup_of_etcd_comes_back_to_etcd_and_to_sqlite(
    tmp_path: Path, etcd: EtcdCluster
) -> None:
    source, target = etcd.at(f"/{uuid.uuid4()}"), etcd.at(f"/{uuid.uuid4()}")
    servers = ",".join(source.servers)
    store = await EtcdStore.open(source)
    for name in ("b", "a", "c"):
        await store.put(f"/registry/core/x/{name}", b"sealed:" + name.encode())
    changed = await store.put("/registry/core/x/b", b"sealed:\xff\x00")
    newest = store.current_revision
    await store.close()
    backup = str(tmp_path / "backup.db")

    at_source = ("--etcd-servers", servers, "--etcd-prefix", source.prefix)
    at_target = ("--etcd-servers", servers, "--etcd-prefix", target.prefix)
    made = await store_words("backup", backup, *at_source)
    assert (made.exit_code, "3 objects" in made.output) == (0, True), made.output
    assert (await store_words("check", backup)).exit_code == 0
    restored = await store_words("restore", backup, *at_target)
    assert restored.exit_code == 0, restored.output
    beside = await store_words("restore", backup, "--data-dir", str(tmp_path / "home"))
    assert beside.exit_code == 0, beside.output
    checked = await store_words("check", *at_target)
    assert (checked.exit_code, "Every member has the same." in checked.output) == (0, True)

    shared, lone = await EtcdStore.open(target), await SqliteStore.open(tmp_path / "home/store.db")
    try:
        for each in (shared, lone):
            items = (await each.range("/registry/")).items
            in_order = sorted(items, key=lambda item: item.create_revision)
            assert [item.key[-1] for item in in_order] == ["b", "a", "c"]
            assert in_order[0].value == changed.value
            assert each.current_revision > newest + 1_000_000
            with pytest.raises(Compacted):
                each.watch("", after=newest)
    finally:
        await shared.close()
        await lone.close()


async def test_a_hub_goes_on_from_a_backup_of_etcd(tmp_path: Path, etcd: EtcdCluster) -> None:
    source, target = etcd.at(f"/{uuid.uuid4()}"), etcd.at(f"/{uuid.uuid4()}")
    data_dir = tmp_path / "hub"
    before = await maps_of(HubSettings(data_dir, port=0, etcd=source), "map-b", "map-a")

    await back_up(source, tmp_path / "backup.db")
    await restore(tmp_path / "backup.db", target, lambda *_: None)

    after = await maps_of(HubSettings(data_dir, port=0, etcd=target), "map-c")
    assert [uid_of(each) for each in after[:2]] == [uid_of(each) for each in before]


async def test_each_thing_that_cannot_be_is_said_in_a_sentence(
    tmp_path: Path, etcd: EtcdCluster
) -> None:
    settings = etcd.at(f"/{uuid.uuid4()}")
    there = ("--etcd-servers", settings.servers[0], "--etcd-prefix", settings.prefix)
    backup = str(tmp_path / "backup.db")
    (tmp_path / "nothing.db").write_bytes(b"this is no backup")

    for words, sentence in (
        (("backup", backup), "either --data-dir or --etcd-servers"),
        (("backup", backup, "--data-dir", "x", *there), "either --data-dir or --etcd-servers"),
        (("check",), "either PLACE or --etcd-servers"),
        (("backup", backup, *there), f"no hub has its objects under {settings.prefix}"),
        (("check", *there), f"no hub has its objects under {settings.prefix}"),
        (("backup", backup, "--etcd-servers", "10.0.0.1"), "is no address such as"),
        (("restore", str(tmp_path / "none.db"), *there), "there is no backup at"),
        (("restore", str(tmp_path / "nothing.db"), *there), "is not a store file"),
    ):
        ended = await store_words(*words)
        assert (ended.exit_code != 0, sentence in ended.output) == (True, True), ended.output

    store = await EtcdStore.open(settings)
    try:
        await store.put("/registry/core/x/a", b"1")
        assert (await store_words("backup", backup, *there)).exit_code == 0
        for words, sentence in (
            (("backup", backup, *there), "is there already and is not overwritten"),
            (("backup", str(tmp_path / "no" / "b.db"), *there), "there is no directory"),
            (("restore", backup, *there), "is a hub's already"),
        ):
            ended = await store_words(*words)
            assert (ended.exit_code, sentence in ended.output) == (1, True), ended.output
    finally:
        await store.close()


@pytest.mark.slow
async def test_a_member_with_other_data_is_found_and_one_that_is_silent_is_said(
    tmp_path: Path,
) -> None:
    """What a broken disk does: a member answers from data that the others do not have."""
    async with etcd_for_test(tmp_path, members=3, tls=False, is_durable=True) as cluster:
        settings = cluster.at(f"/{uuid.uuid4()}")
        there = ("--etcd-servers", ",".join(settings.servers), "--etcd-prefix", settings.prefix)
        store = await EtcdStore.open(settings)
        for number in range(20):
            await store.put(f"/registry/core/x/{number:02}", b"value-of-an-object")
        await store.close()
        assert (await store_words("check", *there)).exit_code == 0

        victim = cluster.members[2]
        await victim.kill()
        silent = await store_words("check", *there)
        assert (silent.exit_code, "did not answer" in silent.output) == (1, True), silent.output

        # Its log would repair it: what is compared is what was folded into its database.
        database = tmp_path / victim.name / "member" / "snap" / "db"
        data = database.read_bytes()
        assert b"value-of-an-object" in data
        database.write_bytes(data.replace(b"value-of-an-object", b"value-of-an-0bject"))
        await victim.start()
        await cluster.until_ready()
        damaged = await until(lambda: _damage_said(*there))
        assert f"{victim.url} has another /registry/core/x/" in damaged


async def _damage_said(*there: str) -> str:
    checked = await store_words("check", *there)
    return checked.output if checked.exit_code == ExitCode.DAMAGED.value else ""
