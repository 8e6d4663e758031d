import asyncio
from random import Random

import pytest

from clusterspace.client.confirming import MOST_QUESTIONS, Missing, View, confirm_gone
from clusterspace.client.places import Place
from clusterspace.client.raw_objects import Version
from clusterspace.client.resources import EVERYTHING, ListOptions
from clusterspace.errors import ClusterMisbehaved, Forbidden
from clusterspace.kube.objects import Object
from clusterspace.kube.selectors import parse_label_selector
from clusterspace.testing.builders import PODS, pod

OURS = Missing("default/web", Version("u", "5"))


def view(labels: str = "", *, has_field_selector: bool = False) -> View:
    return View(Place(PODS), parse_label_selector(labels), has_field_selector)


class Live:
    """What asking by name finds."""

    def __init__(self, held: Object | Exception | None) -> None:
        self._held = held
        self.asked: list[str] = []

    async def find(self, place: Place) -> Object | None:
        self.asked.append(place.key)
        await asyncio.sleep(0)
        if isinstance(self._held, Exception):
            raise self._held
        return self._held

    async def get(self, place: Place) -> Object:
        raise NotImplementedError

    async def list_objects(self, place: Place, options: ListOptions = EVERYTHING) -> list[Object]:
        raise NotImplementedError


def live_pod(uid: str = "u", version: str = "5", **labels: str) -> Object:
    return pod("web", uid=uid, resourceVersion=version, labels=labels)


@pytest.mark.parametrize(
    ("seen_by", "live", "must_show"),
    [
        (view(), live_pod(), True),
        (view(), live_pod(version="6"), True),
        (view(), live_pod(uid="another"), False),
        (view("app=web"), live_pod(version="6", app="web"), True),
        (view("app=web"), live_pod(version="6", app="other"), False),
        (view(has_field_selector=True), live_pod(), True),
        (view(has_field_selector=True), live_pod(version="6"), False),
    ],
)
def test_what_a_right_list_must_show(seen_by: View, live: Object, must_show: bool):
    assert seen_by.must_show(live, OURS) is must_show


async def test_what_is_gone_by_name_is_gone():
    live = Live(None)

    await confirm_gone(live, "west", view(), [OURS], Random(1))

    assert live.asked == ["default/web"]


async def test_one_that_lives_convicts_the_list():
    with pytest.raises(ClusterMisbehaved, match="without default/web, which is there"):
        await confirm_gone(Live(live_pod()), "west", view(), [OURS], Random(1))


async def test_what_cannot_be_asked_for_is_not_gone():
    with pytest.raises(Forbidden):
        await confirm_gone(Live(Forbidden("no")), "west", view(), [OURS], Random(1))


async def test_of_many_a_sample_is_asked_for():
    many = [Missing(f"default/p{number}", Version("u", "5")) for number in range(500)]
    live = Live(None)

    await confirm_gone(live, "west", view(), many, Random(1))

    assert len(set(live.asked)) == MOST_QUESTIONS


class Slow(Live):
    """Finds one object at once; asked for another, it takes its time even to stop."""

    def __init__(self) -> None:
        super().__init__(live_pod())
        self.stopping = asyncio.Event()

    async def find(self, place: Place) -> Object | None:
        if place.key == OURS.key:
            return await super().find(place)
        try:
            await asyncio.Event().wait()
        finally:
            self.stopping.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        return None


async def test_whoever_is_told_to_stop_stops_although_the_cluster_lied():
    live, other = Slow(), Missing("default/other", Version("v", "5"))
    confirming = asyncio.create_task(confirm_gone(live, "west", view(), [OURS, other], Random(1)))
    for _ in range(5):
        await asyncio.sleep(0)

    confirming.cancel()

    with pytest.raises(asyncio.CancelledError):
        await confirming
