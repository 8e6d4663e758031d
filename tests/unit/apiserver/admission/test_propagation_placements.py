"""ClusterResourcePlacements are completed, and refused with every reason."""

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.apiserver.hub_subjects import hub_state

from clusterspace.apis.crds import definitions
from clusterspace.apiserver.admission.propagation import PlacementRules
from clusterspace.apiserver.builtin_resources import builtin_resources
from clusterspace.apiserver.catalog import Catalog
from clusterspace.apiserver.definition_controller import CustomResourceController
from clusterspace.apiserver.forms import decode_stored
from clusterspace.apiserver.http.users import ANONYMOUS
from clusterspace.apiserver.state import Admission, HubState
from clusterspace.apiserver.writing import create_own
from clusterspace.errors import Invalid
from clusterspace.kube.objects import Object, find_at, with_metadata, with_value
from clusterspace.testing.clocks import ManualClock

APP = {"group": "", "version": "v1", "kind": "Namespace", "name": "app"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
GROUP = "placement.kubernetes-fleet.io"


@pytest.fixture
async def hub() -> HubState:
    state = replace(
        hub_state(clock=ManualClock()),
        catalog=Catalog(builtin_resources()),
        plugins=(PlacementRules(),),
    )
    controller = CustomResourceController(state)
    await controller.install(definitions())
    await controller.load()
    return state


def placement(*selectors: Object, name: str = "crp", **spec: Any) -> Object:
    return {
        "apiVersion": f"{GROUP}/v1beta1",
        "kind": "ClusterResourcePlacement",
        "metadata": {"name": name},
        "spec": {"resourceSelectors": list(selectors) or [APP], **spec},
    }


def picking(kind: str = "PickAll", **policy: Any) -> Object:
    return placement(policy={"placementType": kind, **policy})


def applying(**strategy: Any) -> Object:
    return placement(strategy={"applyStrategy": strategy})


async def admitted(hub: HubState, new: Object, old: Object | None = None) -> Object:
    served = hub.catalog.get_storage(GROUP, "clusterresourceplacements")
    return await PlacementRules().admit(hub, Admission(served, ANONYMOUS, new, old))


async def refused(hub: HubState, new: Object, old: Object | None = None) -> set[str]:
    """Return the fields a placement is refused for."""
    with pytest.raises(Invalid) as refusal:
        await admitted(hub, new, old)
    assert refusal.value.details is not None
    return {cause.field for cause in refusal.value.details.causes}


async def test_what_authors_leave_out_is_filled_in(hub: HubState) -> None:
    spec = (await admitted(hub, placement()))["spec"]

    assert spec["policy"] == {"placementType": "PickAll"}
    assert spec["strategy"]["rollingUpdate"] == {
        "maxUnavailable": "25%",
        "maxSurge": "25%",
        "unavailablePeriodSeconds": 60,
    }
    assert spec["strategy"]["applyStrategy"]["whenToTakeOver"] == "Always"
    assert spec["revisionHistoryLimit"] == 10


async def test_what_authors_wrote_stays(hub: HubState) -> None:
    written = placement(strategy={"rollingUpdate": {"maxSurge": 0}})

    spec = (await admitted(hub, written))["spec"]

    assert spec["strategy"]["rollingUpdate"]["maxSurge"] == 0


async def test_a_placement_is_stored_as_it_was_completed(hub: HubState) -> None:
    served = hub.catalog.get_storage(GROUP, "clusterresourceplacements")

    entry = await create_own(hub, served, placement(), "test")

    stored = decode_stored(entry, served.form)
    assert find_at(stored, "spec", "strategy", "type") == "RollingUpdate"


async def test_a_kind_the_hub_does_not_serve_is_refused(hub: HubState) -> None:
    unknown = {"group": "moon.io", "version": "v1", "kind": "Rocket", "name": "x"}

    assert await refused(hub, placement(unknown)) == {"spec.resourceSelectors[0].kind"}


async def test_a_namespaced_kind_is_refused_unless_its_namespace_is_selected_in_part(
    hub: HubState,
) -> None:
    config = {"group": "", "version": "v1", "kind": "ConfigMap", "name": "x"}

    assert await refused(hub, placement(config)) == {"spec.resourceSelectors[0].kind"}
    partly = {**APP, "selectionScope": "NamespaceWithResourceSelectors"}
    assert await admitted(hub, placement(partly, config))


async def test_labels_that_cannot_be_read_are_refused(hub: HubState) -> None:
    bad = {
        "group": "",
        "version": "v1",
        "kind": "Namespace",
        "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Nearby"}]},
    }

    assert await refused(hub, placement(bad)) == {"spec.resourceSelectors[0].labelSelector"}


async def test_a_long_name_is_refused(hub: HubState) -> None:
    assert await refused(hub, placement(name="n" * 64)) == {"metadata.name"}


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        ({"placementType": "PickFixed"}, "clusterNames"),
        ({"placementType": "PickFixed", "clusterNames": ["a", "a"]}, "clusterNames[1]"),
        ({"placementType": "PickFixed", "clusterNames": ["A_b"]}, "clusterNames[0]"),
        ({"placementType": "PickFixed", "clusterNames": ["a" * 64]}, "clusterNames[0]"),
        ({"placementType": "PickN"}, "numberOfClusters"),
        (
            {
                "placementType": "PickN",
                "numberOfClusters": 1,
                "topologySpreadConstraints": [{"topologyKey": "not a key"}],
            },
            "topologySpreadConstraints[0].topologyKey",
        ),
    ],
)
async def test_a_policy_that_cannot_be_meant_is_refused(
    hub: HubState, policy: Object, field: str
) -> None:
    assert await refused(hub, placement(policy=policy)) == {f"spec.policy.{field}"}


async def test_pick_all_cannot_prefer_clusters(hub: HubState) -> None:
    liked = {PREFERRED: [{"weight": 1, "preference": {}}]}

    fields = await refused(hub, picking(affinity={"clusterAffinity": liked}))

    assert fields == {f"spec.policy.affinity.clusterAffinity.{PREFERRED}"}


async def test_a_property_that_is_compared_with_no_quantity_is_refused(hub: HubState) -> None:
    wanted = {"name": "kubernetes-fleet.io/node-count", "operator": "Gt", "values": ["many"]}
    terms = {"clusterSelectorTerms": [{"propertySelector": {"matchExpressions": [wanted]}}]}

    fields = await refused(hub, picking(affinity={"clusterAffinity": {REQUIRED: terms}}))

    where = f"spec.policy.affinity.clusterAffinity.{REQUIRED}.clusterSelectorTerms[0]"
    assert fields == {f"{where}.propertySelector.matchExpressions[0].values[0]"}


@pytest.mark.parametrize(
    ("toleration", "field"),
    [
        ({"operator": "Equal", "value": "x"}, "[0].key"),
        ({"key": "a b", "operator": "Exists"}, "[0].key"),
        ({"key": "a", "operator": "Exists", "value": "x"}, "[0].value"),
        ({"key": "a", "value": "not valid!"}, "[0].value"),
    ],
)
async def test_a_bad_toleration_is_refused(hub: HubState, toleration: Object, field: str) -> None:
    fields = await refused(hub, picking(tolerations=[toleration]))

    assert fields == {f"spec.policy.tolerations{field}"}


async def test_tolerations_can_be_added_and_not_changed_or_removed(hub: HubState) -> None:
    one = {"key": "a", "operator": "Exists"}
    two = {"key": "b", "operator": "Exists"}
    old = picking(tolerations=[one])

    assert await admitted(hub, picking(tolerations=[one, two]), old)
    assert await refused(hub, picking(tolerations=[two]), old) == {"spec.policy.tolerations"}
    assert await refused(hub, picking(), old) == {"spec.policy.tolerations"}
    twice = {"spec.policy.tolerations[1]"}
    assert await refused(hub, picking(tolerations=[one, one])) == twice


async def test_the_type_of_a_policy_never_changes(hub: HubState) -> None:
    fields = await refused(hub, picking("PickN", numberOfClusters=1), picking())

    assert fields == {"spec.policy.placementType"}


async def test_a_policy_that_is_taken_away_is_refused(hub: HubState) -> None:
    old = picking("PickN", numberOfClusters=1)

    assert await refused(hub, placement(), old) == {"spec.policy.placementType"}


@pytest.mark.parametrize(
    ("strategy", "field"),
    [
        ({"type": "ServerSideApply"}, "type"),
    ],
)
async def test_what_members_cannot_be_asked_is_refused_and_not_passed_over(
    hub: HubState, strategy: Object, field: str
) -> None:
    assert await refused(hub, applying(**strategy)) == {f"spec.strategy.applyStrategy.{field}"}


async def test_a_forced_server_side_apply_is_what_members_get(hub: HubState) -> None:
    forced = {"type": "ServerSideApply", "serverSideApplyConfig": {"force": True}}

    assert await admitted(hub, applying(**forced))


async def test_no_rule_keeps_a_placement_from_going(hub: HubState) -> None:
    old = with_metadata(placement(), deletionTimestamp="2026-01-01T00:00:00Z")

    assert await admitted(hub, placement(name="n" * 64), old)


async def test_a_status_is_not_judged(hub: HubState) -> None:
    served = hub.catalog.get_storage(GROUP, "clusterresourceplacements")
    told = with_value(placement(name="n" * 64), [], "status", "conditions")

    admission = Admission(served, ANONYMOUS, told, placement(), "status")

    assert await PlacementRules().admit(hub, admission) is told
