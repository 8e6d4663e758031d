"""A sample controller against a live hub: killed at every write, it ends where it would have."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from clusterspace.aio.clocks import SystemClock
from clusterspace.client.requests import ResourcePath
from clusterspace.client.resources import Client, ClusterClient, DeleteOptions, ListOptions
from clusterspace.controllers import commit
from clusterspace.controllers.commit import ensure_finalizer, release
from clusterspace.controllers.controller import (
    Controller,
    ControllerSettings,
    Done,
    Request,
    Result,
    Watch,
)
from clusterspace.controllers.events import EVENTS, EventRecorder
from clusterspace.controllers.informers import Informer, Update, by_owner_uid
from clusterspace.controllers.leases import LEASES, Candidacy, LeaderElection
from clusterspace.kube.objects import (
    Object,
    finalizers_of,
    find_at,
    is_being_deleted,
    metadata_of,
    name_of,
    uid_of,
    with_metadata,
)
from clusterspace.telemetry.logs import current_request_id
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, SECRETS, config_map, namespace
from clusterspace.testing.crashes import CrashingClient, CrashPoint, Killed
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.steps import stop

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOLD = "example.com/copies"
SECONDS = 30.0
_numbers = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub_client(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ClusterClient]:
    directory: Path = tmp_path_factory.mktemp("hub")
    async with (
        hub_for_test(directory) as settings,
        client_for_test(settings) as hub_client,
    ):
        yield hub_client


async def new_namespace(hub_client: ClusterClient) -> str:
    name = f"run-{next(_numbers)}"
    await hub_client.create(ResourcePath(NAMESPACES), namespace(name))
    return name


class Copier:
    """Copies every ConfigMap into a Secret; takes the copy away when the original goes.

    Five kinds of write: hold the original, make the copy, note it on the original, and, when the
    original goes, delete the copy and release the original.
    """

    def __init__(self, hub_client: Client) -> None:
        self._hub_client = hub_client

    async def reconcile(self, request: Request) -> Result:
        place = ResourcePath(CONFIG_MAPS, request.namespace, request.name)
        # Asked live, so that the number of writes does not depend on how far a cache lags.
        original = await self._hub_client.find(place)
        if original is None:
            return Done()
        copy = ResourcePath(SECRETS, request.namespace, request.name)
        if is_being_deleted(original):
            return await self._clean_up(place, copy, original)
        held = await ensure_finalizer(self._hub_client, place, original, HOLD)
        made = await self._make_copy(copy, held)
        noted = with_metadata(held, annotations={"example.com/copy": name_of(made)})
        await commit.commit(self._hub_client, place, held, noted)
        return Done()

    async def _make_copy(self, copy: ResourcePath, original: Object) -> Object:
        owner = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "name": name_of(original),
            "uid": uid_of(original),
        }
        wanted: Object = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": copy.name,
                "namespace": copy.namespace,
                "ownerReferences": [owner],
            },
            "stringData": original["data"],
        }
        present = await self._hub_client.find(copy)
        return present or await self._hub_client.create(copy.collection, wanted)

    async def _clean_up(self, place: ResourcePath, copy: ResourcePath, original: Object) -> Result:
        if HOLD not in finalizers_of(original):
            return Done()
        present = await self._hub_client.find(copy)
        if present is not None:
            await self._hub_client.delete(copy, DeleteOptions(uid=uid_of(present)))
        await release(self._hub_client, place, original, HOLD)
        return Done()


@asynccontextmanager
async def copier(
    hub_client: ClusterClient, space: str, writer: Client
) -> AsyncGenerator[asyncio.Task[None]]:
    """Run one life of the controller; the task ends when it is killed."""
    originals = Informer(
        hub_client,
        ResourcePath(CONFIG_MAPS, space),
        selection=ListOptions(label_selector="copy=yes"),
    )
    copies = Informer(hub_client, ResourcePath(SECRETS, space), indexes={"owner": by_owner_uid})
    controller = Controller(
        "copier",
        Copier(writer).reconcile,
        clock=SystemClock(),
        random=Random(1),
        settings=ControllerSettings(workers=1),
    )
    controller.watch(Watch(originals))
    controller.watch(Watch(copies, to=lambda update: owners_of(update, space)))
    informers = [asyncio.create_task(each.run()) for each in (originals, copies)]
    task = asyncio.create_task(controller.run())
    try:
        yield task
    finally:
        await stop(task, *informers)


def owners_of(update: Update, space: str) -> list[Request]:
    held = update.decode_after() or update.decode_before() or {}
    owners = metadata_of(held).get("ownerReferences") or []
    return [Request(owner["name"], space) for owner in owners]


async def until_settled(hub_client: ClusterClient, space: str, task: asyncio.Task[None]) -> bool:
    """Wait for the end state; False when the controller was killed before."""
    async with asyncio.timeout(SECONDS):
        while not await is_settled(hub_client, space):
            if task.done():
                return False
            await asyncio.sleep(0.01)
    return True


async def is_settled(hub_client: ClusterClient, space: str) -> bool:
    state = await end_state(hub_client, space)
    return state == {"maps": {"kept": "kept"}, "secrets": ["kept"]}


async def end_state(hub_client: ClusterClient, space: str) -> dict[str, Any]:
    """Return what the controller is about: who is noted where, and which copies there are."""
    maps = await hub_client.list_objects(ResourcePath(CONFIG_MAPS, space))
    secrets = await hub_client.list_objects(ResourcePath(SECRETS, space))
    return {
        "maps": {
            name_of(each): find_at(each, "metadata", "annotations", "example.com/copy")
            for each in maps
            if find_at(each, "metadata", "labels", "copy")
        },
        "secrets": sorted({name_of(each) for each in secrets} & {"kept", "leaving"}),
    }


async def live_once(hub_client: ClusterClient, space: str, writer: Client) -> bool:
    async with copier(hub_client, space, writer) as task:
        settled = await until_settled(hub_client, space, task)
        if task.done():
            assert isinstance(task.exception(), Killed)
    return settled


async def prepare(hub_client: ClusterClient) -> str:
    """Make a namespace with one map to keep, and one that was deleted while it was held."""
    space = await new_namespace(hub_client)
    maps = ResourcePath(CONFIG_MAPS, space)
    for name in ("kept", "leaving"):
        held = {"finalizers": [HOLD]} if name == "leaving" else {}
        labelled = config_map(name, {"n": "1"}, namespace=space, labels={"copy": "yes"}, **held)
        made = await hub_client.create(maps, labelled)
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "leaving"}}
    await hub_client.create(ResourcePath(SECRETS, space), secret)
    await hub_client.delete(maps.named("leaving"), DeleteOptions(uid=uid_of(made)))
    return space


FAULT_FREE_WRITES = 5
POINTS = [
    CrashPoint(write, is_after)
    for write in range(1, FAULT_FREE_WRITES + 1)
    for is_after in (False, True)
]


async def test_a_run_without_faults_makes_these_writes(hub_client: ClusterClient):
    space = await prepare(hub_client)
    counting = CrashingClient(hub_client)

    assert await live_once(hub_client, space, counting)
    assert counting.writes == FAULT_FREE_WRITES


@pytest.mark.parametrize("point", POINTS, ids=lambda point: f"{point.write}-{point.is_after}")
async def test_killed_at_any_write_it_ends_where_it_would_have(
    hub_client: ClusterClient, point: CrashPoint
):
    space = await prepare(hub_client)
    crashing = CrashingClient(hub_client, point)
    await live_once(hub_client, space, crashing)

    assert crashing.writes == point.write
    assert await live_once(hub_client, space, CrashingClient(hub_client))


async def test_one_key_is_never_worked_on_twice_at_once(hub_client: ClusterClient):
    space = await new_namespace(hub_client)
    maps = ResourcePath(CONFIG_MAPS, space)
    at_work: set[Request] = set()
    finished: list[Request] = []
    ids: set[str] = set()

    async def reconcile(request: Request) -> Result:
        assert request not in at_work
        at_work.add(request)
        ids.add(current_request_id())
        await asyncio.sleep(0.01)
        at_work.discard(request)
        finished.append(request)
        return Done()

    informer = Informer(hub_client, maps)
    controller = Controller("serial", reconcile, clock=SystemClock(), random=Random(1))
    controller.watch(Watch(informer))
    tasks = [asyncio.create_task(each.run()) for each in (informer, controller)]
    try:
        made = await hub_client.create(maps, config_map("a", namespace=space))
        for number in range(20):
            changed = {**made, "data": {"n": str(number)}}
            made = await hub_client.update(maps.named("a"), changed)
        async with asyncio.timeout(SECONDS):
            while not finished or at_work:  # noqa: ASYNC110 - the hub tells no event of it
                await asyncio.sleep(0.05)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    assert Request("a", space) in finished
    assert len(ids) == len(finished)


async def test_events_are_counted_and_leases_are_held_on_a_live_hub(hub_client: ClusterClient):
    space = await new_namespace(hub_client)
    clock = SystemClock()
    made = await hub_client.create(
        ResourcePath(CONFIG_MAPS, space), config_map("a", namespace=space)
    )
    recorder = EventRecorder(hub_client, component="copier", clock=clock)
    place = ResourcePath(LEASES, space, "copier")
    election = LeaderElection(hub_client, Candidacy(place, "me"), clock=clock, random=Random(1))

    async def work(epoch: int) -> None:
        assert epoch == 1
        for _ in range(2):
            recorder.record(made, "Copied", "it was copied")
            await recorder.flush()

    await election.lead(work)

    (event,) = await hub_client.list_objects(ResourcePath(EVENTS, space))
    assert (event["count"], event["involvedObject"]["uid"]) == (2, uid_of(made))
    lease = await hub_client.get(place)
    assert not lease["spec"].get("holderIdentity")
    assert lease["spec"]["leaseTransitions"] == 1
