"""Several hubs on one etcd are one hub: to clients, to tokens, to leaders, and to themselves."""

import asyncio
import json
import uuid
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import pytest_asyncio

from clusterspace.apis.identities import LEADER_HEADER
from clusterspace.apiserver.identity.authority import server_names
from clusterspace.apiserver.store.etcd.client import EtcdSettings
from clusterspace.client.kubeconfig import read_kubeconfig
from clusterspace.client.requests import ApiRequest, ResourcePath
from clusterspace.client.resources import ClusterClient
from clusterspace.client.settings import AuthInfo
from clusterspace.controllers.leases import LEASES
from clusterspace.errors import AlreadyExists, Conflict, Forbidden, StoreUnreadable
from clusterspace.kube.objects import Object, find_at, resource_version_of, with_value
from clusterspace.kube.resources import GroupVersionResource
from clusterspace.roots.hub import RunningHub, running_hub
from clusterspace.roots.hub_state import HUB_LEASE
from clusterspace.roots.settings import HubSettings
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map, namespace
from clusterspace.testing.etcd import EtcdCluster, etcd_for_test
from clusterspace.testing.hubs import client_for_test
from clusterspace.testing.steps import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

MAPS = ResourcePath(CONFIG_MAPS, "default")
QUOTAS = GroupVersionResource("", "v1", "resourcequotas")


@dataclass(frozen=True, slots=True)
class Hub:
    """One of the hubs, and its administrator."""

    running: RunningHub
    client: ClusterClient
    stack: AsyncExitStack


def encryption(directory: Path) -> Path:
    key = {"name": "one", "secret": b64encode(b"0123456789abcdef" * 2).decode()}
    providers = [{"aesgcm": {"keys": [key]}}, {"identity": {}}]
    config = {
        "apiVersion": "apiserver.config.k8s.io/v1",
        "kind": "EncryptionConfiguration",
        "resources": [{"resources": ["secrets"], "providers": providers}],
    }
    file = directory / "encryption.json"
    file.write_text(json.dumps(config))
    return file


async def start(directory: Path, etcd: EtcdSettings, file: Path | None) -> Hub:
    stack = AsyncExitStack()
    settings = HubSettings(directory, port=0, etcd=etcd, encryption_file=file)
    running = await stack.enter_async_context(running_hub(settings))
    reached = read_kubeconfig([directory / "kubeconfig"]).settings(cluster=directory.name)
    return Hub(running, await stack.enter_async_context(client_for_test(reached)), stack)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def etcd(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EtcdCluster]:
    async with etcd_for_test(tmp_path_factory.mktemp("etcd")) as cluster:
        yield cluster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hubs(
    tmp_path_factory: pytest.TempPathFactory, etcd: EtcdCluster
) -> AsyncIterator[list[Hub]]:
    directory = tmp_path_factory.mktemp("hubs")
    file = encryption(directory)
    async with AsyncExitStack() as stack:
        running: list[Hub] = []
        for name in ("one", "two", "three"):
            running.append(await start(directory / name, etcd.settings, file))
            stack.push_async_callback(running[-1].stack.aclose)
        yield running


async def test_what_one_hub_has_answered_every_other_shows(hubs: list[Hub]) -> None:
    created = await hubs[0].client.create(MAPS, config_map("shown"))
    for step in range(10):
        created = await hubs[step % 3].client.update(
            MAPS.named("shown"), {**created, "data": {"step": str(step)}}
        )
        for other in hubs:
            assert await other.client.get(MAPS.named("shown")) == created
            assert created in await other.client.list_objects(MAPS)


async def test_of_two_hubs_that_create_one_name_one_does(hubs: list[Hub]) -> None:
    async def create(hub: Hub) -> bool:
        try:
            await hub.client.create(MAPS, config_map("wanted"))
        except AlreadyExists:
            return False
        return True

    async with asyncio.TaskGroup() as group:
        tries = [group.create_task(create(hub)) for hub in hubs * 3]
    assert sum(task.result() for task in tries) == 1


async def test_a_watch_that_began_at_one_hub_goes_on_at_another(hubs: list[Hub]) -> None:
    one, two, three = hubs
    first = await one.client.create(MAPS, config_map("watched-1"))
    second = await two.client.create(MAPS, config_map("watched-2"))
    path = f"{MAPS.path}?watch=1&resourceVersion={resource_version_of(first)}&timeoutSeconds=2"
    answer = await three.client.connection.ask(ApiRequest("GET", path))
    events = [json.loads(line) for line in answer.body.splitlines()]
    assert [find_at(event, "object", "metadata", "uid") for event in events] == [
        second["metadata"]["uid"]
    ]


async def test_hubs_that_start_together_for_the_first_time_become_one(
    tmp_path: Path, etcd: EtcdCluster
) -> None:
    settings, file = etcd.at(f"/{uuid.uuid4()}"), encryption(tmp_path)

    async with asyncio.TaskGroup() as group:
        starting = [
            group.create_task(start(tmp_path / name, settings, file)) for name in ("a", "b", "c")
        ]
    for each in starting:
        await each.result().stack.aclose()

    authorities = {(tmp_path / name / "pki" / "ca.crt").read_bytes() for name in ("a", "b", "c")}
    assert len(authorities) == 1


async def test_credentials_of_one_hub_are_good_at_every_other(hubs: list[Hub]) -> None:
    one, two, _ = hubs
    admin = read_kubeconfig([one.running.installation.kubeconfig]).settings(cluster="one")
    async with client_for_test(replace(admin, server=two.running.url)) as crossed:
        await crossed.get(ResourcePath(NAMESPACES).named("default"))
    accounts = ResourcePath(GroupVersionResource("", "v1", "serviceaccounts"), "default")
    await until(lambda: one.client.find(accounts.named("default")))
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    place = accounts.named("default").with_subresource("token")
    issued = await one.client.create(place, request)
    identity = AuthInfo(token=str(find_at(issued, "status", "token")))
    with pytest.raises(Forbidden, match="system:serviceaccount:default:default"):
        async with client_for_test(
            replace(admin, server=two.running.url, identity=identity)
        ) as account:
            await account.get(MAPS.named("kube-root-ca.crt"))


async def test_two_hubs_do_not_both_admit_what_a_quota_has_room_for_once(hubs: list[Hub]) -> None:
    one = hubs[0].client
    await one.create(ResourcePath(NAMESPACES), namespace("limited"))
    hard = {"count/configmaps": "5"}
    quota: Object = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "few", "namespace": "limited"},
        "spec": {"hard": hard},
    }
    quotas, place = ResourcePath(QUOTAS, "limited"), ResourcePath(CONFIG_MAPS, "limited")
    await until(lambda: one.find(place.named("kube-root-ca.crt")))
    await one.create(quotas, quota)

    async def is_counted() -> bool:
        found = await one.get(quotas.named("few"))
        return find_at(found, "status", "used") == {"count/configmaps": "1"}

    await until(is_counted)

    async def create(hub: Hub, name: str) -> bool:
        try:
            await hub.client.create(place, config_map(name, namespace="limited"))
        except Forbidden:
            return False
        return True

    async with asyncio.TaskGroup() as group:
        tries = [
            group.create_task(create(hubs[number % 3], f"map-{number}")) for number in range(15)
        ]
    assert sum(task.result() for task in tries) == 4
    assert len(await one.list_objects(place)) == 5


async def test_one_hub_looks_after_the_store_and_another_takes_over(
    tmp_path: Path, etcd: EtcdCluster
) -> None:
    settings, file = etcd.at(f"/{uuid.uuid4()}"), encryption(tmp_path)
    one = await start(tmp_path / "one", settings, file)
    two = await start(tmp_path / "two", settings, file)

    async def holder() -> str:
        lease = await two.client.find(HUB_LEASE)
        return str(find_at(lease, "spec", "holderIdentity") or "") if lease else ""

    first = await until(holder)
    await one.stack.aclose()

    async def is_another() -> bool:
        return await holder() not in ("", first)

    try:
        await until(is_another)
        place = ResourcePath(NAMESPACES).named("passing")
        await two.client.create(place.collection, namespace("passing"))
        await two.client.connection.ask(ApiRequest("DELETE", place.path))

        async def is_gone() -> bool:
            return await two.client.find(place) is None

        await until(is_gone)
    finally:
        await two.stack.aclose()


async def test_a_deposed_leader_is_refused_by_every_hub(hubs: list[Hub]) -> None:
    one, two, _ = hubs
    place = ResourcePath(LEASES, "default", "led")
    lease = await one.client.create(
        place.collection,
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "led", "namespace": "default"},
            "spec": {"holderIdentity": "a", "leaseTransitions": 1},
        },
    )
    headers = ((LEADER_HEADER, "default/led 1 a"),)
    body = json.dumps(config_map("led-1")).encode()
    leading = ApiRequest("POST", MAPS.path, body=body, headers=headers)
    await two.client.connection.ask(leading)
    assert await one.client.find(MAPS.named("led-1"))

    taken = with_value(
        with_value(lease, "b", "spec", "holderIdentity"), 2, "spec", "leaseTransitions"
    )
    await one.client.update(place, taken)

    body = json.dumps(config_map("led-2")).encode()
    with pytest.raises(Conflict, match="leads no longer"):
        await two.client.connection.ask(ApiRequest("POST", MAPS.path, body=body, headers=headers))


async def test_an_old_encryption_key_becomes_needless_for_what_hubs_share(
    tmp_path: Path, etcd: EtcdCluster
) -> None:
    settings, file = etcd.at(f"/{uuid.uuid4()}"), encryption(tmp_path)
    first = await start(tmp_path / "hub", settings, file)
    await first.stack.aclose()
    old = json.loads(file.read_text())
    new = {"aesgcm": {"keys": [{"name": "two", "secret": b64encode(b"f" * 32).decode()}]}}
    rolled = {**old, "resources": [{"resources": ["secrets"], "providers": [new]}]}
    both = [new, *old["resources"][0]["providers"]]
    file.write_text(
        json.dumps({**old, "resources": [{"resources": ["secrets"], "providers": both}]})
    )
    second = await start(tmp_path / "hub", settings, file)
    await second.stack.aclose()

    file.write_text(json.dumps(rolled))
    third = await start(tmp_path / "hub", settings, file)
    await third.stack.aclose()


async def test_a_hub_without_the_keys_of_the_others_does_not_start(
    tmp_path: Path, etcd: EtcdCluster
) -> None:
    settings = etcd.at(f"/{uuid.uuid4()}")
    first = await start(tmp_path / "first", settings, None)
    try:
        with pytest.raises(
            StoreUnreadable,
            match=r"copy ca\.key, sa\.key of one of them",
        ):
            await start(tmp_path / "second", settings, None)
        for name in ("ca.key", "sa.key", "ca.crt"):
            (tmp_path / "third" / "pki").mkdir(parents=True, exist_ok=True)
            copied = (tmp_path / "first" / "pki" / name).read_bytes()
            (tmp_path / "third" / "pki" / name).write_bytes(copied)
        third = await start(tmp_path / "third", settings, None)
        await third.stack.aclose()
    finally:
        await first.stack.aclose()


async def test_what_stands_before_all_hubs_is_what_they_say(
    etcd: EtcdCluster, tmp_path: Path
) -> None:
    settings = HubSettings(
        tmp_path / "hub",
        port=0,
        etcd=etcd.at("/before-all"),
        encryption_file=encryption(tmp_path),
        endpoint="hub.example.com:6443",
    )
    async with running_hub(settings) as running:
        installation = running.installation
        files = (installation.kubeconfig, installation.component_kubeconfig("fleet"))
        servers = [read_kubeconfig([each]).settings().server for each in files]
        names = server_names(installation.server_files[0].read_bytes())

    assert servers == ["https://hub.example.com:6443"] * 2
    assert {"hub.example.com", "127.0.0.1"} <= names
