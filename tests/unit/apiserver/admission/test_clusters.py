"""One ID for one cluster, whoever creates it and however fast."""

import asyncio
from dataclasses import replace

import pytest
from tests.unit.apiserver.hub_subjects import hub_state

from clusterspace.apis.crds import definitions
from clusterspace.apiserver.admission.clusters import ON_ITS_WAY_SECONDS, ClusterRules
from clusterspace.apiserver.builtin_resources import builtin_resources
from clusterspace.apiserver.catalog import Catalog, Served
from clusterspace.apiserver.definition_controller import CustomResourceController
from clusterspace.apiserver.forms import decode_stored
from clusterspace.apiserver.http.users import User
from clusterspace.apiserver.state import Admission, HubState
from clusterspace.apiserver.writing import create_own
from clusterspace.errors import Invalid
from clusterspace.kube.objects import Object, uid_of, with_value
from clusterspace.testing.clocks import ManualClock

ALICE = User("alice")


@pytest.fixture
async def hub() -> HubState:
    state = replace(
        hub_state(clock=ManualClock()),
        catalog=Catalog(builtin_resources()),
        plugins=(ClusterRules(),),
    )
    controller = CustomResourceController(state)
    await controller.install(definitions())
    await controller.load()
    return state


def clusters_of(hub: HubState) -> Served:
    return hub.catalog.get_storage("cluster.karmada.io", "clusters")


def cluster(name: str, cluster_id: str = "", **spec: object) -> Object:
    identified = {"id": cluster_id} if cluster_id else {}
    return {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name},
        "spec": {"syncMode": "Push", **identified, **spec},
    }


async def create(hub: HubState, wanted: Object) -> None:
    await create_own(hub, clusters_of(hub), wanted, "test")


async def admit(hub: HubState, new: Object, old: Object | None = None) -> Object:
    return await hub.plugins[0].admit(hub, Admission(clusters_of(hub), ALICE, new, old))


async def test_an_id_that_another_cluster_has_is_refused_and_the_other_is_named(
    hub: HubState,
) -> None:
    await create(hub, cluster("west", "id-1"))

    with pytest.raises(Invalid, match="cluster west has this ID"):
        await create(hub, cluster("east", "id-1"))


async def test_the_hub_is_not_its_own_member(hub: HubState) -> None:
    namespaces = hub.catalog.get_storage("", "namespaces")
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}
    await create_own(hub, namespaces, body, "test")
    entry = await hub.store.get(namespaces.key("", "kube-system"))
    assert entry is not None
    own_id = uid_of(decode_stored(entry, namespaces.form))

    with pytest.raises(Invalid, match="it is the hub itself"):
        await create(hub, cluster("west", own_id))


async def test_of_two_that_race_exactly_one_wins(hub: HubState) -> None:
    clock = hub.clock
    assert isinstance(clock, ManualClock)
    names = [f"west-{number}" for number in range(5)]
    racing = [asyncio.create_task(create(hub, cluster(name, "id-1"))) for name in names]

    await clock.advance(2 * ON_ITS_WAY_SECONDS)
    outcomes = await asyncio.gather(*racing, return_exceptions=True)

    refused = [each for each in outcomes if isinstance(each, Invalid)]
    assert len(refused) == len(names) - 1
    assert outcomes.count(None) == 1


async def test_an_id_set_aside_for_a_cluster_that_never_came_is_free_again(
    hub: HubState,
) -> None:
    clock = hub.clock
    assert isinstance(clock, ManualClock)
    await admit(hub, cluster("never", "id-1"))
    waiting = asyncio.create_task(create(hub, cluster("west", "id-1")))

    await clock.advance(ON_ITS_WAY_SECONDS - 0.1)
    assert not waiting.done()
    await clock.advance(0.2)
    await waiting

    assert await hub.store.get(clusters_of(hub).key("", "west")) is not None
    with pytest.raises(Invalid, match="cluster west has this ID"):
        await create(hub, cluster("never", "id-1"))


async def test_clusters_without_an_id_do_not_get_in_each_others_way(hub: HubState) -> None:
    await create(hub, cluster("west"))
    await create(hub, cluster("east"))


async def test_an_id_once_set_stays(hub: HubState) -> None:
    before = cluster("west", "id-1")

    with pytest.raises(Invalid, match="field is immutable"):
        await admit(hub, cluster("west", "id-2"), before)
    with pytest.raises(Invalid, match="field is immutable"):
        await admit(hub, cluster("west"), before)
    assert await admit(hub, before, cluster("west")) == before


async def test_an_id_set_later_must_be_free_too(hub: HubState) -> None:
    await create(hub, cluster("east", "id-1"))

    with pytest.raises(Invalid, match="cluster east has this ID"):
        await admit(hub, cluster("west", "id-1"), cluster("west"))


@pytest.mark.parametrize("name", ["karmada", "hub", "all"])
async def test_names_that_mean_something_else_are_refused(hub: HubState, name: str) -> None:
    with pytest.raises(Invalid, match="is reserved"):
        await admit(hub, cluster(name))


async def test_a_new_cluster_counts_nodes_by_nine_sizes(hub: HubState) -> None:
    stored = await admit(hub, cluster("west"))

    assert len(stored["spec"]["resourceModels"]) == 9
    own = [{"grade": 0, "ranges": []}]
    assert (await admit(hub, cluster("w", resourceModels=own)))["spec"]["resourceModels"] == own


async def test_one_zone_is_a_list_of_zones(hub: HubState) -> None:
    spec = (await admit(hub, cluster("west", zone="a")))["spec"]

    assert spec["zones"] == ["a"]
    assert "zone" not in spec


async def test_the_same_taint_twice_is_refused(hub: HubState) -> None:
    taint = {"key": "team", "effect": "NoSchedule"}

    with pytest.raises(Invalid, match="Duplicate value"):
        await admit(hub, cluster("west", taints=[taint, taint]))


async def test_other_objects_and_the_status_pass(hub: HubState) -> None:
    before = cluster("west", "id-1")
    reported = with_value(before, "v1.35.0", "status", "kubernetesVersion")
    served = clusters_of(hub)

    admission = Admission(served, ALICE, reported, before, "status")

    assert await hub.plugins[0].admit(hub, admission) is reported


async def test_a_condition_with_little_in_it_is_taken_as_karmada_takes_it(hub: HubState) -> None:
    rules = clusters_of(hub).rules
    bare = {"type": "Odd one", "status": "", "reason": "", "lastTransitionTime": None}
    reported = with_value(cluster("west"), [bare], "status", "conditions")

    assert rules.validate_create(reported) == ()
