"""What Works tell of one cluster, and what a placement makes of all of them."""

from typing import Any

import pytest
from tests.unit.fleet.propagation.placements.objects import placement

from clusterspace.apis.fleet_placements import MANIFEST_HASH, TAKE_OVER, ResourceIdentifier
from clusterspace.apis.works import identifier_of
from clusterspace.fleet.propagation.placements.picking import ClusterDecision, Picking
from clusterspace.fleet.propagation.placements.status import (
    ClusterReport,
    ClusterView,
    Summary,
    cluster_conditions,
    failed_placements,
    placement_status,
    report_cluster,
    with_invalid_selectors,
)
from clusterspace.kube.conditions import Condition
from clusterspace.kube.objects import Object
from clusterspace.testing.builders import config_map, deployment

SETTINGS = ResourceIdentifier("", "v1", "ConfigMap", "app", "settings")
WEB = ResourceIdentifier("apps", "v1", "Deployment", "app", "web")
JOB = ResourceIdentifier("batch", "v1", "Job", "app", "once")
TAKEN = "resource(kind=ConfigMap, app/settings) already exists in the cluster west and so on"


def work(
    status: str = "True",
    *,
    state: str = "aa",
    observed: int = 2,
    health: str = "Healthy",
    manifest: Object | None = None,
    **more: Any,
) -> Object:
    held = manifest or config_map("settings", namespace="app")
    applied = {"type": "Applied", "status": status, "observedGeneration": observed, **more}
    return {
        "metadata": {
            "namespace": "karmada-es-west",
            "generation": 2,
            "annotations": {MANIFEST_HASH: state, **more.pop("annotations", {})},
        },
        "spec": {"workload": {"manifests": [held]}},
        "status": {
            "conditions": [applied],
            "manifestStatuses": [{"identifier": identifier_of(held, 0), "health": health}],
        },
    }


def report(
    *works: tuple[ResourceIdentifier, Object | None], obstacles: Any = None, problems: Any = None
) -> ClusterReport:
    wanted = {identity: "aa" for identity, _ in works}
    held = {identity: each for identity, each in works if each is not None}
    return report_cluster(wanted, held, obstacles or {}, problems or {})


def told(found: ClusterReport) -> list[tuple[str, str, str]]:
    return [(c.type, c.status, c.reason) for c in cluster_conditions(found, 1)]


DONE = [
    ("Overridden", "True", "NoOverrideSpecified"),
    ("WorkSynchronized", "True", "AllWorkSynced"),
    ("Applied", "True", "AllWorkHaveBeenApplied"),
]


def test_a_cluster_that_has_everything_is_available() -> None:
    assert told(report((SETTINGS, work()))) == [*DONE, ("Available", "True", "AllWorkAreAvailable")]


def test_a_cluster_that_is_to_have_nothing_is_available_too() -> None:
    assert told(report())[-1] == ("Available", "True", "AllWorkAreAvailable")


@pytest.mark.parametrize("missing", [None, work(state="old")])
def test_a_work_of_an_earlier_state_is_no_answer(missing: Object | None) -> None:
    assert told(report((SETTINGS, missing)))[-1] == (
        "WorkSynchronized", "False", "WorkNotSynchronizedYet",
    )  # fmt: skip


def test_why_the_engine_cannot_hand_an_object_over_is_told() -> None:
    found = report((SETTINGS, None), problems={SETTINGS: "west: too large"})

    assert told(found)[-1] == ("WorkSynchronized", "False", "SyncWorkFailed")
    assert cluster_conditions(found, 1)[-1].message == "west: too large"


def test_what_a_member_said_of_an_earlier_generation_is_no_answer() -> None:
    assert told(report((SETTINGS, work(observed=1))))[-1] == (
        "Applied", "Unknown", "ApplyInProgress",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (work("False", message=TAKEN), "NotTakenOver"),
        (work("False", message=TAKEN, annotations={TAKE_OVER: "IfNoDiff"}), "FailedToTakeOver"),
        (work("False", message="too large"), "ManifestApplyFailed"),
    ],
)
def test_what_a_member_would_not_have_is_told_with_its_reason(refused: Object, reason: str) -> None:
    found = report((SETTINGS, refused), (WEB, work(manifest=deployment("web", namespace="app"))))

    assert told(found)[-1] == ("Applied", "False", "NotAllWorkHaveBeenApplied")
    (failed,) = failed_placements(found, "2026-01-01T00:00:00Z")
    assert (failed["kind"], failed["name"]) == ("ConfigMap", "settings")
    assert failed["condition"]["reason"] == reason


def test_an_object_of_somebody_else_is_told_as_left_alone() -> None:
    found = report((SETTINGS, None), obstacles={SETTINGS: "PropagationPolicy a/b places it"})

    (failed,) = failed_placements(found, "")
    assert failed["condition"]["message"] == (
        "ConfigMap app/settings is left alone: PropagationPolicy a/b places it"
    )


def test_a_deployment_is_available_when_it_says_so() -> None:
    web = deployment("web", namespace="app")

    assert told(report((WEB, work(manifest=web))))[-1][2] == "AllWorkAreAvailable"
    sick = report((WEB, work(manifest=web, health="Unhealthy")))
    assert told(sick)[-1] == ("Available", "False", "NotAllWorkAreAvailable")


def test_what_cannot_tell_is_taken_for_available_with_a_reason_of_its_own() -> None:
    assert told(report((JOB, work())))[-1] == (
        "Available", "True", "NotAllWorkAreAvailabilityTrackable",
    )  # fmt: skip


# All clusters together


def view(cluster: str, *conditions: tuple[str, str]) -> ClusterView:
    made = tuple(Condition(kind, status, "R", f"{kind} there", 1) for kind, status in conditions)
    return ClusterView(cluster, made, "0")


def summary(*views: ClusterView, asked_for: int | None = None, **more: Any) -> Summary:
    picked = {each.cluster: ClusterDecision(each.cluster, True, "") for each in views}
    unpicked = (ClusterDecision("moon", False, "too far"),)
    return Summary(Picking(picked, unpicked, asked_for), "PickN", views, **more)


def kinds(status: Object) -> list[tuple[str, str]]:
    prefix = "ClusterResourcePlacement"
    return [(c["type"].removeprefix(prefix), c["status"]) for c in status["conditions"]]


def test_conditions_end_with_the_first_that_does_not_hold() -> None:
    east = view("east", ("RolloutStarted", "True"), ("Overridden", "True"))
    west = view("west", ("RolloutStarted", "False"))

    status = placement_status(placement(), summary(east, west), 0)

    assert kinds(status) == [("Scheduled", "True"), ("RolloutStarted", "False")]
    assert status["conditions"][1]["message"] == "west: RolloutStarted there"
    assert status["conditions"][1]["observedGeneration"] == 3


def test_that_clusters_are_missing_does_not_hide_those_that_are_there() -> None:
    east = view("east", ("RolloutStarted", "True"), ("Overridden", "False"))

    status = placement_status(placement(), summary(east, asked_for=2), 0)

    assert kinds(status) == [
        ("Scheduled", "False"),
        ("RolloutStarted", "True"),
        ("Overridden", "False"),
    ]
    (unfilled,) = status["placementStatuses"][1:]
    assert unfilled["conditions"][0]["message"] == "moon: too far"


def test_a_condition_keeps_its_time_while_it_holds() -> None:
    east = view("east", ("RolloutStarted", "True"))
    first = placement_status(placement(), summary(east), 0)

    later = placement_status({**placement(), "status": first}, summary(east), 60)

    assert later == first


def test_bad_selectors_leave_the_rest_of_the_status_as_it_was() -> None:
    before = {"observedResourceIndex": "4", "conditions": []}

    status = with_invalid_selectors({**placement(), "status": before}, ["no such kind"], 0)

    assert status["observedResourceIndex"] == "4"
    assert status["conditions"][0]["reason"] == "InvalidResourceSelectors"


@pytest.mark.parametrize(
    ("names", "where"), [(["east"], "on its cluster"), (["east", "west"], "on all 2 clusters")]
)
def test_where_something_holds_is_said_in_words(names: list[str], where: str) -> None:
    views = [view(each, ("RolloutStarted", "True")) for each in names]

    status = placement_status(placement(), summary(*views), 0)

    assert status["conditions"][1]["message"] == where
