"""A namespace goes from a member with what is ours in it, and stays with what somebody made."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio
from tests.component.execution_site import (
    CLUSTER,
    Site,
    executing,
    make_namespace,
    new_name,
    two_clusters,
    work_of,
)

from clusterspace.apis.clusters import CLUSTERS, conditions_of
from clusterspace.apis.works import DELETION_ASKED
from clusterspace.client.requests import ResourcePath
from clusterspace.fleet.execution.contents import (
    COLLECTOR_SECONDS,
    NAMESPACE_KEPT,
    NAMESPACES_KEPT,
    WITH_CONTENTS,
    ContentObject,
    KeptNamespaces,
    divide,
)
from clusterspace.fleet.execution.prune import is_paused
from clusterspace.fleet.execution.takeover import is_managed
from clusterspace.kube.conditions import find_condition
from clusterspace.kube.objects import Object, labels_of, name_of, uid_of, with_metadata
from clusterspace.kube.resources import GroupResource
from clusterspace.testing.builders import CONFIG_MAPS, NAMESPACES, config_map, namespace
from clusterspace.testing.clocks import ManualClock
from clusterspace.testing.faults import fault_proxy, status_reply
from clusterspace.testing.hubs import client_for_test
from clusterspace.testing.steps import edit, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    async with two_clusters(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest_asyncio.fixture(loop_scope="module")
async def fresh_site(tmp_path: Path) -> AsyncIterator[Site]:
    async with two_clusters(tmp_path) as site:
        yield site


def place(name: str) -> ResourcePath:
    return ResourcePath(NAMESPACES, name=name)


async def placed(site: Site, name: str, **metadata: object) -> Object:
    """Order a namespace, and wait until the member has it."""
    work = await site.order(work_of(with_metadata(namespace(name), **metadata), resolution=""))
    await site.applied(name_of(work))
    return work


async def make_by_hand(site: Site, name: str, *names: str) -> list[Object]:
    inside = ResourcePath(CONFIG_MAPS, name)
    return [
        await site.member.create(inside, config_map(each, namespace=name), site.foreign)
        for each in names
    ]


async def until_gone(site: Site, path: ResourcePath) -> None:
    async def is_gone() -> bool:
        return await site.member.find(path) is None

    await until(is_gone)


async def test_what_people_made_by_hand_outlives_the_namespace_it_is_in(fresh_site: Site) -> None:
    site, name = fresh_site, new_name()
    async with executing(site):
        work = await placed(site, name)
        (made,) = await make_by_hand(site, name, "notes")
        await site.delete_work(name_of(work))
        await site.gone(name_of(work))

        event = await site.event(NAMESPACE_KEPT, CLUSTER)

    assert f"namespace {name} stays" in event["message"]
    assert "configmaps notes" in event["message"]
    kept = await site.member.get(place(name))
    assert not is_managed(kept)
    assert not [each for each in labels_of(kept) if "karmada" in each]
    there = await site.member.get(ResourcePath(CONFIG_MAPS, name, "notes"))
    assert uid_of(there) == uid_of(made)
    cluster = await site.hub.get(ResourcePath(CLUSTERS, name=CLUSTER))
    condition = find_condition(conditions_of(cluster), NAMESPACES_KEPT) or {}
    assert condition["status"] == "True"
    assert name in condition["message"]


async def test_a_namespace_with_nothing_foreign_goes(site: Site) -> None:
    name = new_name()
    async with executing(site):
        work = await placed(site, name)
        inside = await site.order(work_of(config_map("ours", namespace=name)))
        await site.applied(name_of(inside))
        # Both at once, in the wrong order: the namespace goes after what was placed in it.
        await site.delete_work(name_of(work))
        await site.delete_work(name_of(inside))

        await until_gone(site, place(name))
        await site.gone(name_of(work))
        await site.gone(name_of(inside))


async def test_an_annotation_lets_a_namespace_go_with_all_that_is_in_it(site: Site) -> None:
    name = new_name()
    async with executing(site):
        work = await placed(site, name, annotations={WITH_CONTENTS: "true"})
        await make_by_hand(site, name, "notes")
        await site.delete_work(name_of(work))

        await until_gone(site, place(name))


async def test_a_namespace_whose_kinds_cannot_all_be_listed_stays(site: Site) -> None:
    name = new_name()
    async with (
        fault_proxy(site.member.connection) as proxy,
        client_for_test(proxy.settings) as member,
        executing(site, member=member),
    ):
        work = await placed(site, name)
        proxy.inject(
            status_reply(500, "InternalError", "the aggregated API is down"),
            when=lambda asked: asked.path.endswith(f"/namespaces/{name}/secrets"),
            times=None,
        )
        await site.delete_work(name_of(work))
        await site.gone(name_of(work))
        event = await site.event(NAMESPACE_KEPT, CLUSTER)

        kept = await site.member.get(place(name))
    assert not is_managed(kept)
    assert "secrets" in event["message"]


async def test_what_a_namespace_would_take_with_it_counts_as_deletions(fresh_site: Site) -> None:
    site, name = fresh_site, new_name()
    async with executing(site):
        work = await placed(site, name, annotations={WITH_CONTENTS: "true"})
        await make_by_hand(site, name, *(f"notes-{number}" for number in range(12)))
        await site.delete_work(name_of(work))

        async def paused() -> bool:
            return is_paused(await site.hub.get(ResourcePath(CLUSTERS, name=CLUSTER)))

        await until(paused)
        assert await site.member.find(place(name)) is not None


async def test_a_namespace_that_somebody_deleted_is_not_counted(fresh_site: Site) -> None:
    site, name = fresh_site, new_name()
    async with executing(site):
        work = await placed(site, name, annotations={WITH_CONTENTS: "true"})
        await make_by_hand(site, name, *(f"notes-{number}" for number in range(12)))
        await edit(site.hub, site.work_path(name_of(work)), asked)
        await site.delete_work(name_of(work))

        await until_gone(site, place(name))


def asked(work: Object) -> Object:
    return with_metadata(work, annotations={DELETION_ASKED: "true"})


async def test_another_hubs_namespace_of_the_same_name_is_used_and_left(site: Site) -> None:
    name = new_name()
    await make_namespace(site.member, name)
    before = await site.member.get(place(name))
    async with executing(site):
        work = await placed(site, name)
        await site.delete_work(name_of(work))
        await site.gone(name_of(work))

    assert await site.member.get(place(name)) == before


def held(resource: str, name: str, *owners: str, **metadata: object) -> ContentObject:
    uid, references = f"{resource}/{name}", [{"uid": each} for each in owners]
    return ContentObject(
        GroupResource("", resource),
        {"metadata": {"name": name, "uid": uid, "ownerReferences": references, **metadata}},
    )


async def test_what_controllers_made_for_ours_is_not_foreign_and_volumes_are() -> None:
    found = (
        held("deployments", "web"),
        held("replicasets", "web-1", "deployments/web"),
        held("pods", "web-1-a", "replicasets/web-1"),
        held("pods", "by-hand"),
        held("pods", "ending", deletionTimestamp="2026-01-01T00:00:00Z"),
        held("configmaps", "kube-root-ca.crt"),
        held("serviceaccounts", "default"),
        held("services", "api"),
        held("endpoints", "api"),
        held("persistentvolumeclaims", "data-web-0"),
    )

    contents = divide(found, (), lambda each: uid_of(each) in ("deployments/web", "services/api"))

    assert [str(each) for each in contents.ours] == ["deployments web", "services api"]
    foreign = {name_of(each.metadata) for each in contents.foreign}
    assert foreign == {"by-hand", "data-web-0"}
    assert "by-hand" in contents.reasons


def owned(name: str, owner: str, kind: str) -> ContentObject:
    reference = {"apiVersion": "apps/v1", "kind": kind, "name": owner, "uid": owner}
    return held("pods", name, ownerReferences=[reference])


async def test_what_was_made_for_what_is_gone_is_waited_for_and_then_foreign() -> None:
    """A namespace stayed for good, since pods of our own Deployment were a moment behind it."""
    found = (
        owned("web-1-a", "replicasets/web-1", "ReplicaSet"),
        held("configmaps", "of-the-pod", "pods/web-1-a"),
        owned("mirror", "node-1", "Node"),
        owned("of-unlisted", "things/x", "Thing"),
    )
    listed = frozenset({("apps", "ReplicaSet")})

    contents = divide(found, (), lambda _: False, listed)

    assert [str(each) for each in contents.leaving] == ["pods web-1-a", "configmaps of-the-pod"]
    assert {name_of(each.metadata) for each in contents.foreign} == {"mirror", "of-unlisted"}
    only_leaving = replace(contents, foreign=())
    clock = ManualClock()
    kept = KeptNamespaces(cast("Any", None), CLUSTER, cast("Any", None), clock)
    assert not kept.waits_for_collector("shop", contents), "it stays in any case"
    assert kept.waits_for_collector("shop", only_leaving)
    await clock.advance(COLLECTOR_SECONDS)
    assert not kept.waits_for_collector("shop", only_leaving)
    assert "pods web-1-a" in only_leaving.uncollected.reasons


async def test_a_namespace_goes_after_what_the_collector_takes(site: Site) -> None:
    name = new_name()
    async with executing(site):
        work = await placed(site, name)
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "gone"}
        orphan = with_metadata(config_map("orphan", namespace=name), ownerReferences=[owner])
        await site.member.create(ResourcePath(CONFIG_MAPS, name), orphan, site.foreign)
        await site.delete_work(name_of(work))

        await until_gone(site, place(name))
        await site.gone(name_of(work))
