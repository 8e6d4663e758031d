"""One door for one cluster, whoever comes first."""

from dataclasses import replace

import pytest
from tests.unit.apiserver.hub_subjects import hub_state

from clusterspace.apis.crds import definitions
from clusterspace.apis.member_clusters import has_member_cluster, owner_reference
from clusterspace.apiserver.admission.clusters import ClusterRules, MemberClusterRules
from clusterspace.apiserver.builtin_resources import builtin_resources
from clusterspace.apiserver.catalog import Catalog, Served
from clusterspace.apiserver.definition_controller import CustomResourceController
from clusterspace.apiserver.forms import decode_stored
from clusterspace.apiserver.http.users import User
from clusterspace.apiserver.state import Admission, HubState
from clusterspace.apiserver.writing import create_own
from clusterspace.errors import Invalid
from clusterspace.kube.objects import Object, with_metadata
from clusterspace.testing.clocks import ManualClock

ALICE = User("alice")
AGENT = User("system:serviceaccount:fleet-system:agent", ("system:serviceaccounts",))
TAINT: Object = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}


@pytest.fixture
async def hub() -> HubState:
    state = replace(
        hub_state(clock=ManualClock()),
        catalog=Catalog(builtin_resources()),
        plugins=(MemberClusterRules(), ClusterRules()),
    )
    controller = CustomResourceController(state)
    await controller.install(definitions())
    await controller.load()
    return state


def members_of(hub: HubState) -> Served:
    return hub.catalog.get_storage("cluster.kubernetes-fleet.io", "memberclusters")


def clusters_of(hub: HubState) -> Served:
    return hub.catalog.get_storage("cluster.karmada.io", "clusters")


def member_cluster(name: str = "west", **spec: object) -> Object:
    identity = {"kind": "ServiceAccount", "name": "agent", "namespace": "fleet-system"}
    return {
        "apiVersion": "cluster.kubernetes-fleet.io/v1beta1",
        "kind": "MemberCluster",
        "metadata": {"name": name},
        "spec": {"identity": identity, **spec},
    }


def cluster(name: str = "west", mode: str = "Push", **spec: object) -> Object:
    return {
        "apiVersion": "cluster.karmada.io/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": name},
        "spec": {"syncMode": mode, **spec},
    }


async def invite(hub: HubState, wanted: Object) -> Object:
    served = members_of(hub)
    return decode_stored(await create_own(hub, served, wanted, "test"), served.form)


async def admit_cluster(hub: HubState, new: Object, user: User = ALICE) -> Object:
    return await hub.plugins[0].admit(hub, Admission(clusters_of(hub), user, new))


@pytest.mark.parametrize(
    ("mode", "leave"), [("Push", "clusterspace unjoin"), ("Pull", "clusterspace unregister")]
)
async def test_a_membercluster_after_a_cluster_is_refused_and_told_the_way_out(
    hub: HubState, mode: str, leave: str
) -> None:
    await create_own(hub, clusters_of(hub), cluster(mode=mode), "test")

    with pytest.raises(Invalid, match=leave):
        await invite(hub, member_cluster())


async def test_a_cluster_after_a_membercluster_is_refused_to_everybody_else(
    hub: HubState,
) -> None:
    await invite(hub, member_cluster())

    with pytest.raises(Invalid, match="a MemberCluster of this name is how this cluster joins"):
        await admit_cluster(hub, cluster())


async def test_who_is_invited_may_make_the_cluster_and_it_is_the_memberclusters(
    hub: HubState,
) -> None:
    await invite(hub, member_cluster())

    assert has_member_cluster(await admit_cluster(hub, cluster(mode="Pull"), AGENT))


async def test_the_controller_makes_the_cluster_by_owning_it(hub: HubState) -> None:
    stored = await invite(hub, member_cluster())
    owned = with_metadata(cluster(mode="Pull"), ownerReferences=[owner_reference(stored)])
    forged = with_metadata(
        cluster(mode="Pull"), ownerReferences=[{**owner_reference(stored), "uid": "another"}]
    )

    assert await admit_cluster(hub, owned) == owned
    with pytest.raises(Invalid):
        await admit_cluster(hub, forged)


async def test_other_names_are_nobodys_business(hub: HubState) -> None:
    await invite(hub, member_cluster("east"))

    assert await admit_cluster(hub, cluster("west")) == cluster("west")


async def test_a_membercluster_that_goes_is_let_go_whatever_is_wrong_with_it(
    hub: HubState,
) -> None:
    spoiled = member_cluster(taints=[TAINT, TAINT])
    going = with_metadata(spoiled, deletionTimestamp="2026-01-01T00:00:00Z")
    admission = Admission(members_of(hub), ALICE, spoiled, going)

    assert await hub.plugins[0].admit(hub, admission) == spoiled
    with pytest.raises(Invalid, match="Duplicate value"):
        await invite(hub, spoiled)


async def test_two_values_of_one_key_are_for_clusters_of_memberclusters_alone(
    hub: HubState,
) -> None:
    stored = await invite(hub, member_cluster())
    taints = [TAINT, {**TAINT, "value": "no"}]
    owner = owner_reference(stored)
    owned = with_metadata(cluster(taints=taints), ownerReferences=[owner])
    rules = hub.plugins[1]

    assert await rules.admit(hub, Admission(clusters_of(hub), ALICE, owned))
    with pytest.raises(Invalid, match="Duplicate value"):
        await rules.admit(hub, Admission(clusters_of(hub), ALICE, cluster(taints=taints)))


@pytest.mark.parametrize("taints", ["all", ["all"], [1], [None]], ids=repr)
async def test_taints_of_no_type_that_fits_are_left_to_the_schema(
    hub: HubState, taints: object
) -> None:
    with pytest.raises(Invalid, match=r"spec\.taints"):
        await create_own(hub, clusters_of(hub), cluster(taints=taints), "test")
