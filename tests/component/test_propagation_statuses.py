"""Statuses against a live hub: what clusters report is shown on bindings and templates, calmly."""

import itertools
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.component.works_site import Running, Site, running_works

from clusterspace.apis.works import RESOURCE_BINDINGS
from clusterspace.client.requests import ResourcePath, resource_path_of
from clusterspace.client.resources import Client, PatchType, WriteOptions
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, find_at, metadata_of, with_metadata, with_value
from clusterspace.testing.builders import CONFIG_MAPS, DEPLOYMENTS, config_map, deployment
from clusterspace.testing.crashes import CrashingClient
from clusterspace.testing.hubs import client_for_test, hub_for_test
from clusterspace.testing.settled import settled
from clusterspace.testing.steps import delete, until_equal

pytestmark = pytest.mark.asyncio(loop_scope="module")

REFUSED: dict[str, Any] = {"status": "False", "reason": "AppliedFailed", "message": "no room"}
MEMBERS = tuple(f"member{number}" for number in range(1, 9))
_numbers = itertools.count(1)


class Counting(CrashingClient):
    """Counts the writes to statuses, by what they are written to."""

    def __init__(self, inner: Client) -> None:
        super().__init__(inner)
        self.status_writes: dict[str, int] = {}

    async def patch(
        self,
        place: ResourcePath,
        patch_type: PatchType,
        patch: Any,
        options: WriteOptions | None = None,
    ) -> Object:
        if place.subresource == "status":
            name = f"{place.resource.resource}/{place.name}"
            self.status_writes[name] = self.status_writes.get(name, 0) + 1
        return await super().patch(place, patch_type, patch, options or WriteOptions())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    directory = tmp_path_factory.mktemp("hub")
    async with hub_for_test(directory) as settings, client_for_test(settings) as hub_client:
        site = Site(hub_client)
        for name in MEMBERS:
            await site.join(name)
        yield site


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def counting(site: Site) -> Counting:
    return Counting(site.hub_client)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(site: Site, counting: Counting) -> AsyncIterator[Running]:
    async with running_works(site.hub_client, counting) as running:
        yield running


async def fully_applied(site: Site, place: ResourcePath) -> str | None:
    binding = await site.hub_client.get(place)
    told = find_condition(find_at(binding, "status", "conditions"), "FullyApplied")
    return None if told is None else str(told["status"])


def counters(generation: int, **status: int) -> Object:
    return {
        "generation": 1,
        "observedGeneration": 1,
        "resourceTemplateGeneration": generation,
        **status,
    }


async def test_a_burst_of_reports_is_one_write_of_the_binding(
    site: Site, running: Running, counting: Counting
) -> None:
    name = f"config-{next(_numbers)}"
    template = await site.put(CONFIG_MAPS, config_map(name))
    place = await site.bind(template, *MEMBERS)
    works = await site.until_works(place, *MEMBERS)
    await until_equal(lambda: fully_applied(site, place), "False")
    await settled()
    before = counting.status_writes[f"resourcebindings/{place.name}"]

    for work in works.values():
        await site.report(work)
    await until_equal(lambda: fully_applied(site, place), "True")
    await settled()

    assert counting.status_writes[f"resourcebindings/{place.name}"] - before == 1
    assert f"configmaps/{name}" not in counting.status_writes


async def test_a_report_that_says_nothing_new_is_not_written(
    site: Site, running: Running, counting: Counting
) -> None:
    template = await site.put(CONFIG_MAPS, config_map(f"config-{next(_numbers)}"))
    place = await site.bind(template, "member1")
    (work,) = (await site.until_works(place, "member1")).values()
    await site.report(work)
    await until_equal(lambda: fully_applied(site, place), "True")
    before = counting.status_writes[f"resourcebindings/{place.name}"]

    await site.report(work, message="done again")
    await settled()

    assert counting.status_writes[f"resourcebindings/{place.name}"] == before


async def test_a_template_shows_the_sum_and_is_observed_only_when_all_clusters_have_seen_it(
    site: Site, running: Running
) -> None:
    template = await site.put(DEPLOYMENTS, deployment(f"web-{next(_numbers)}", replicas=2))
    place = await site.bind(template, "member1", "member2", replicas=2)
    works = await site.until_works(place, "member1", "member2")

    async def shown() -> Object:
        return (await site.hub_client.get(resource_path_of(DEPLOYMENTS, template))).get(
            "status"
        ) or {}

    await site.report(works["member1"], counters(1, replicas=2, readyReplicas=1))
    await until_equal(shown, {"replicas": 2, "readyReplicas": 1})
    await site.report(works["member2"], counters(1, replicas=2, readyReplicas=2))
    await until_equal(shown, {"replicas": 4, "readyReplicas": 3, "observedGeneration": 1})

    changed = await site.change(
        resource_path_of(DEPLOYMENTS, template),
        lambda held: with_value(held, "web:2", *_image_path(held)),
    )
    assert metadata_of(changed)["generation"] == 2
    await site.report(works["member1"], counters(2, replicas=3, readyReplicas=1))
    await until_equal(shown, {"replicas": 5, "readyReplicas": 3, "observedGeneration": 1})
    await site.report(works["member2"], counters(2, replicas=2, readyReplicas=2))
    await until_equal(shown, {"replicas": 5, "readyReplicas": 3, "observedGeneration": 2})


async def test_a_template_whose_copies_were_withdrawn_tells_of_none(
    site: Site, running: Running
) -> None:
    """It said 2/2 for as long as one looked."""
    template = await site.put(DEPLOYMENTS, deployment(f"web-{next(_numbers)}", replicas=2))
    place = await site.bind(template, "member1", "member2", replicas=2)
    works = await site.until_works(place, "member1", "member2")

    async def ready() -> int:
        live = await site.hub_client.get(resource_path_of(DEPLOYMENTS, template))
        return find_at(live, "status", "readyReplicas") or 0

    for work in works.values():
        await site.report(work, counters(1, replicas=1, readyReplicas=1))
    await until_equal(ready, 2)
    await delete(site.hub_client, place)

    await until_equal(ready, 0)
    live = await site.hub_client.get(resource_path_of(DEPLOYMENTS, template))
    assert not find_at(live, "status", "conditions")


def _image_path(held: Object) -> tuple[str, ...]:
    return ("spec", "template", "metadata", "annotations", "image")


async def test_what_others_write_into_the_status_of_a_template_stays(
    site: Site, running: Running
) -> None:
    template = await site.put(DEPLOYMENTS, deployment(f"web-{next(_numbers)}"))
    told = {"type": "Tested", "status": "True", "reason": "ByHand", "message": ""}
    where = resource_path_of(DEPLOYMENTS, template)
    await site.change(where, lambda held: {**held, "status": {"conditions": [told]}})
    place = await site.bind(template, "member1")
    (work,) = (await site.until_works(place, "member1")).values()

    await site.report(work, counters(1, replicas=1))

    async def replicas() -> Any:
        return find_at(await site.hub_client.get(where), "status", "replicas")

    await until_equal(replicas, 1)
    conditions = (await site.hub_client.get(where))["status"]["conditions"]
    assert find_condition(conditions, "Tested") is not None


async def test_a_template_that_was_made_anew_is_not_told_about_the_old_one(
    site: Site, running: Running
) -> None:
    name = f"web-{next(_numbers)}"
    template = await site.put(DEPLOYMENTS, deployment(name))
    place = await site.bind(template, "member1")
    (work,) = (await site.until_works(place, "member1")).values()
    where = resource_path_of(DEPLOYMENTS, template)
    await site.delete(where)
    again = await site.put(DEPLOYMENTS, deployment(name))

    await site.report(work, counters(1, replicas=1))
    await until_equal(lambda: fully_applied(site, place), "True")

    assert (await site.hub_client.get(where))["status"] == again["status"]


async def test_why_a_cluster_did_not_take_the_object_is_on_the_binding(
    site: Site, running: Running
) -> None:
    template = await site.put(CONFIG_MAPS, config_map(f"config-{next(_numbers)}"))
    place = await site.bind(template, "member1", "member2")
    works = await site.until_works(place, "member1", "member2")
    await site.report(works["member1"])
    await site.report(works["member2"], **REFUSED)

    async def items() -> Any:
        return find_at(await site.hub_client.get(place), "status", "aggregatedStatus")

    refused = {"clusterName": "member2", "health": "Unknown", "appliedMessage": "no room"}
    accepted = {"clusterName": "member1", "health": "Healthy", "applied": True}
    await until_equal(items, [accepted, refused])
    assert await fully_applied(site, place) == "False"


async def test_bindings_that_were_never_sent_anywhere_are_told_nothing(
    site: Site, running: Running, counting: Counting
) -> None:
    template = await site.put(CONFIG_MAPS, config_map(f"config-{next(_numbers)}"))
    place = await site.bind(template)
    await site.change(
        place, lambda held: with_metadata(held, labels={**held["metadata"]["labels"], "a": "b"})
    )
    await settled()

    assert place.resource == RESOURCE_BINDINGS
    assert f"resourcebindings/{place.name}" not in counting.status_writes
