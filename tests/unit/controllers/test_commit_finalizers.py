from tests.unit.controllers.hub_in_memory import HubInMemory

from clusterspace.client.requests import ResourcePath
from clusterspace.controllers.commit import ensure_finalizer, release
from clusterspace.kube.objects import (
    finalizers_of,
    with_metadata,
    without_finalizer,
)
from clusterspace.testing.builders import PODS, pod

HOLD = "example.com/hold"
WEB = ResourcePath(PODS, "default", "web")


async def test_an_object_is_held_once_and_let_go():
    hub_client = HubInMemory()
    made = await hub_client.create(WEB.collection, pod("web", finalizers=["other/one"]))

    held = await ensure_finalizer(hub_client, WEB, made, HOLD)
    again = await ensure_finalizer(hub_client, WEB, held, HOLD)

    assert finalizers_of(held) == ("other/one", HOLD)
    assert again is held
    await release(hub_client, WEB, held, HOLD)
    assert finalizers_of(hub_client.objects[WEB]) == ("other/one",)


async def test_what_is_being_deleted_takes_no_new_finalizers():
    hub_client = HubInMemory()
    going = pod("web", deletionTimestamp="2026-01-01T00:00:00Z")

    assert await ensure_finalizer(hub_client, WEB, going, HOLD) is going
    assert hub_client.objects == {}


async def test_releasing_what_is_gone_is_no_error():
    gone = pod("web", finalizers=[HOLD], resourceVersion="5")

    await release(HubInMemory(), WEB, gone, HOLD)


def test_the_last_finalizer_leaves_no_empty_list():
    held = with_metadata(pod("web"), finalizers=[HOLD])

    assert "finalizers" not in without_finalizer(held, HOLD)["metadata"]
    assert without_finalizer(held, "other") is held
